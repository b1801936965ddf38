"""The cluster's API as the starter asks it."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

from jobs.settings import Settings


class Api:
    """The API at one address of this machine, with the cluster's token when there is one."""

    def __init__(self, settings: Settings, port: int) -> None:
        host = "127.0.0.1" if settings.bind in ("0.0.0.0", "::", "") else settings.bind
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        self._token = settings.cluster_token
        # Only this machine is asked: a proxy set for the internet must not catch it.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def get(self, path: str) -> Any:
        """Return the JSON answer. Raises OSError or ValueError."""
        request = urllib.request.Request(f"{self.url}{path}")
        if self._token:
            request.add_header("Authorization", f"Bearer {self._token}")
        with self._opener.open(request, timeout=5) as answer:
            return json.load(answer)
