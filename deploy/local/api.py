"""Client of the local cluster's API, for the process that starts the cluster."""

from __future__ import annotations

from typing import Any

import httpx

from jobs.settings import Settings


def local_url(settings: Settings, port: int) -> str:
    """Return the URL at which this machine can reach the API."""
    host = "127.0.0.1" if settings.bind in ("0.0.0.0", "::", "") else settings.bind
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def api_of_settings(settings: Settings, port: int) -> Api:
    """Return a client that uses CLUSTER_TOKEN, or no token if it is not set."""
    return Api(local_url(settings, port), next(iter(settings.cluster_tokens()), ""))


class Api:
    """Client of an API on this machine."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self.token = token
        # All requests go to this machine, so proxy settings for the internet are ignored.
        self._http = httpx.Client(base_url=self.url, trust_env=False)

    def get(self, path: str, *, timeout: float = 5.0) -> Any:
        """Send a GET request and return the JSON response. Raises OSError or ValueError."""
        return self._ask("GET", path, timeout)

    def post(self, path: str, body: Any = None) -> Any:
        """Send a POST request and return the JSON response. Raises OSError or ValueError."""
        return self._ask("POST", path, body=body)

    def _ask(self, method: str, path: str, timeout: float = 5.0, body: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        try:
            answer = self._http.request(method, path, headers=headers, timeout=timeout, json=body)
        except httpx.HTTPError as error:
            raise OSError(str(error) or type(error).__name__) from error
        if answer.is_error:
            raise OSError(f"HTTP Error {answer.status_code}: {answer.reason_phrase}")
        return answer.json()
