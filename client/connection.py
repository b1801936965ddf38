"""One keep-alive HTTP connection to a cluster: asks, comes back after a restart, turns problems into errors."""

from __future__ import annotations

import random
import ssl
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx

from client.errors import ApiError, ClientError, Unreachable

#: Answers of a proxy or a coordinator that say "not now".
BUSY = frozenset({429, 502, 503, 504})
#: Seconds between two attempts at most.
LONGEST_PAUSE = 2.0


class Patience:
    """Counts how long nothing has worked; pauses a little longer each time, gives up after `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.succeeded()

    def succeeded(self) -> None:
        self._since: float | None = None
        self._pause = 0.05

    def failed(self, error: Exception, pause: float = 0.0) -> None:
        """Pauses; raises the error instead when the pause would pass the limit."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        pause = max(pause, self._pause * random.uniform(0.5, 1.0))
        if now + pause - self._since > self.seconds:
            raise error
        time.sleep(pause)
        self._pause = min(self._pause * 2, LONGEST_PAUSE)


class Connection:
    """Not for several threads at once."""

    def __init__(self, url: str, token: str, timeout: float, transport: httpx.BaseTransport | None = None) -> None:
        self.url = (url if "://" in url else f"http://{url}").rstrip("/")
        self.timeout = timeout
        #: Set by the first answer: only a cluster that has answered is worth waiting for.
        self.answered = False
        headers = {"User-Agent": "cluster-client", "Accept": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        # trust_env off: a proxy set for the internet must not catch calls to this machine.
        self.http = httpx.Client(
            base_url=self.url, headers=headers, transport=transport, trust_env=False, verify=trust(self.url)
        )

    def ask(
        self, method: str, path: str, *, patience: float, extra_seconds: float = 0.0, body: Any = None, **query: Any
    ) -> Any:
        """The JSON answer (None when there is no body). Only for what may be sent twice.

        `extra_seconds` is what the answer may take longer because it waits for something.
        """
        enduring = Patience(patience)
        timeout = httpx.Timeout(self.timeout + extra_seconds, connect=min(self.timeout, 5.0))
        content: dict[str, Any] = {} if body is None else {"json": body}
        # Tells proxies that they may send it again too; a key in the body is the one that counts.
        content |= {"headers": {"Idempotency-Key": uuid.uuid4().hex}} if method == "POST" else {}
        while True:
            try:
                answer = self.http.request(method, path, params=present(query), timeout=timeout, **content)
                return self._read(answer)
            except (httpx.TransportError, ApiError) as error:
                self.endure(error, enduring)

    @contextmanager
    def stream(self, path: str, headers: Mapping[str, str]) -> Iterator[httpx.Response]:
        """An open answer; silence of a minute breaks it."""
        timeout = httpx.Timeout(self.timeout, read=60.0)
        with self.http.stream("GET", path, headers=headers, timeout=timeout) as answer:
            if answer.status_code != httpx.codes.OK:
                answer.read()
            self._read_problem(answer)
            yield answer

    def endure(self, error: httpx.TransportError | ApiError, enduring: Patience) -> None:
        """Pauses before the next attempt, or raises what the caller shall see."""
        if isinstance(error, ApiError):
            worth_it = error.status == httpx.codes.TOO_MANY_REQUESTS or (self.answered and error.status in BUSY)
            seen: ClientError = error
        else:
            worth_it = self.answered
            seen = Unreachable(self.url, reason(error))
            seen.__cause__ = error
        if not worth_it:
            raise seen
        enduring.failed(seen, error.retry_after if isinstance(error, ApiError) else 0.0)

    def _read(self, answer: httpx.Response) -> Any:
        self._read_problem(answer)
        try:
            return answer.json() if answer.content else None
        except ValueError as error:
            raise Unreachable(self.url, "what answers there is not a cluster") from error

    def _read_problem(self, answer: httpx.Response) -> None:
        if answer.status_code not in BUSY:
            self.answered = True
        if answer.is_success:
            return
        after = answer.headers.get("Retry-After", "")
        raise ApiError(answer.status_code, problem(answer), float(after) if after.isdigit() else 0.0)


def trust(url: str) -> ssl.SSLContext:
    """The system's certificates for https; an empty store else, since loading one takes 30 ms."""
    return ssl.create_default_context() if url.startswith("https:") else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def present(query: Mapping[str, Any]) -> dict[str, Any]:
    """Without the parameters that were not given."""
    return {name: value for name, value in query.items() if value not in (None, "")}


def problem(answer: httpx.Response) -> dict[str, Any]:
    """Problem details, also for an answer that is none, such as a proxy's page."""
    try:
        said = answer.json()
    except ValueError:
        said = None
    return said if isinstance(said, dict) else {"title": f"{answer.status_code} {answer.reason_phrase}".strip()}


def reason(error: Exception) -> str:
    """In few words why nothing came back."""
    if isinstance(error, httpx.ConnectTimeout | httpx.ReadTimeout):
        return "it takes too long to answer"
    text = str(error)
    if isinstance(error, httpx.ConnectError):
        return text.partition("] ")[2].lower() or text
    return text or type(error).__name__
