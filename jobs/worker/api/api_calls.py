"""HTTP client of a coordinator's worker API, `/api/worker/*`, with persistent connections.

See docs/lease-protocol.md.
"""

from __future__ import annotations

import json
import logging
import random
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import SplitResult, urlsplit

import httpx

from jobs import VERSION, causes
from jobs.network import exposure
from jobs.store.server.connection import KEEPALIVE, CoordinatorAway, CoordinatorRejects
from jobs.worker.api.calls import Call, plain
from threads_protocol.numbers import short

log = logging.getLogger(__name__)

#: Read timeout in seconds; long polls add their waiting time.
TIMEOUT_SECONDS = 5.0
#: Minimum throughput in bytes per second, from which the timeout of large requests is computed.
SLOWEST = 500_000
#: Minimum and maximum delay before a retry in seconds, with a random factor from 0.5 to 1.
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 2.0
#: Maximum size of a response in bytes.
MAX_ANSWER = 1 << 30
#: Maximum number of idle connections.
_KEPT = 64
#: Errors of a connection that the server closed while it was idle.
_STALE = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)
_BROKEN = (OSError, httpx.HTTPError, httpx.InvalidURL)
#: httpx trace events after which a connection has a new socket.
_CONNECTED = ("connection.connect_tcp.complete", "connection.start_tls.complete")
#: Suffix of the problem type of errors that last until an operator changes a setting.
_UNSET = ":MissingSetting"
#: Values of `field` in a 403 response that rejects the requested data and not the token.
_NOT_ABOUT_THE_TOKEN = ("hashes", "sha256", "units")


class UnusableApi(ValueError):
    """WORKER_API or WORKER_TOKEN is invalid; the message contains the reason and a solution, but no secret."""


class AccessDenied(CoordinatorAway):
    """The coordinator denied this worker access; the message contains the reason and a solution."""

    def __init__(self, why: str) -> None:
        super().__init__(why, LONGEST_PAUSE)


class RequestInterrupted(CoordinatorAway):
    """This process ended its own long poll, because it can now request more work."""

    def __init__(self) -> None:
        super().__init__("repeating the request for work", 0.0)


@dataclass(frozen=True)
class Place:
    """Address of the worker API."""

    secure: bool
    host: str
    port: int
    #: Path before /api if the cluster is not served at the root.
    prefix: str

    def __str__(self) -> str:
        name = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.secure else 'http'}://{name}:{self.port}{self.prefix}"


def place(address: str) -> Place:
    """Parse the address in WORKER_API. Raises UnusableApi."""
    try:
        parts = urlsplit(address)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise _unusable(str(error)) from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise _unusable("it must start with https:// or http:// and contain a host")
    if _has_more(parts):
        raise _unusable("it must not contain a user, a password, a query or a fragment")
    return Place(parts.scheme == "https", parts.hostname, port, parts.path.rstrip("/"))


def _has_more(parts: SplitResult) -> bool:
    return "@" in parts.netloc or bool(parts.query) or bool(parts.fragment)


def _unusable(why: str) -> UnusableApi:
    return UnusableApi(f"WORKER_API is not a valid address: {why}, for example WORKER_API=https://cluster.example")


def check(address: str, token: str) -> Place:
    """Validate WORKER_API and WORKER_TOKEN, and return the address. Raises UnusableApi."""
    found = place(address)
    if not token:
        raise UnusableApi(
            "WORKER_API requires WORKER_TOKEN: create a token with `cluster token create NAME --scopes worker`, where"
            " NAME becomes this worker's name, and store it in WORKER_TOKEN or in the file /run/secrets/worker_token"
        )
    if not token.isascii() or not token.isprintable() or " " in token:
        raise UnusableApi("WORKER_TOKEN contains white space or other characters that tokens never have; copy it again")
    if not found.secure and not exposure.is_loopback(found.host):
        log.warning("WORKER_API is not encrypted, so others on the network can read the token; use https:// instead")
    return found


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """A request to the worker API."""

    method: str = "POST"
    #: Path below /api/worker/, including the query.
    path: str
    body: bytes = b""
    kind: str = "application/json"
    #: Requested byte range of a file, as first-last.
    range: str = ""
    #: Time in seconds to add to the usual timeout.
    seconds: float = 0.0
    #: True for a long poll, which `interrupt` ends.
    polls: bool = False


class Api:
    """Client of the worker API for one worker. Thread-safe.

    `refused` is called with the reason when the coordinator denies the worker access. `authority` is a file with the
    only certificate authority to trust; if it is empty, the system's authorities are trusted.
    """

    def __init__(
        self,
        place: Place,
        token: str,
        *,
        timeout: float = TIMEOUT_SECONDS,
        authority: str = "",
        refused: Callable[[str], None] = lambda why: None,
    ) -> None:
        self.place = place
        self._authority = authority
        self.bearer = token
        self._timeout = timeout
        self.refused = refused
        #: Number of consecutive failed calls.
        self._failures = 0
        self._interrupted = False
        self._anew = False
        self._trust = create_tls_context(authority) if place.secure else None
        self._client = self._new_client()
        #: Client for long polls; at most one long poll is running at a time.
        self._poller = self._new_client()
        self._poll_socket: socket.socket | None = None
        self._polling = False

    def for_heartbeats(self, timeout: float) -> Api:
        """Return a client for the same coordinator with separate connections."""
        return Api(self.place, self.bearer, timeout=timeout, authority=self._authority, refused=self._pass_on)

    def _pass_on(self, why: str) -> None:
        self.refused(why)

    def opening(self, path: str) -> tuple[str, dict[str, str], ssl.SSLContext | None]:
        """Return the URL, the headers and the TLS context for a WebSocket below /api/worker/."""
        address = f"{self.place}/api/worker/{path}"
        return f"ws{address.removeprefix('http')}", {"Authorization": f"Bearer {self.bearer}"}, self._trust

    def call(
        self, name: str, body: dict[str, Any], *, wait_seconds: float = 0.0, slower_seconds: float = 0.0
    ) -> dict[str, Any]:
        """POST /api/worker/{name} and return the response.

        `wait_seconds` is the time that the coordinator can wait for work; `interrupt` ends such a call.
        `slower_seconds` is the time that the response can take for other reasons. Raises CoordinatorAway if a retry can
        succeed, CoordinatorRejects if it cannot, and AccessDenied if the token is invalid.
        """
        text = json.dumps(body, separators=(",", ":"), default=plain).encode()
        asked = _Asked(path=name, body=text, seconds=wait_seconds + slower_seconds, polls=bool(wait_seconds))
        status, content = self._answered(asked)
        answer = _parsed(content)
        if status == HTTPStatus.OK and answer is not None:
            self._failures = 0
            return answer
        raise self._refusal(status, content)

    def ask(self, call: Call, body: dict[str, Any], *, wait_seconds: float = 0.0, slower_seconds: float = 0.0) -> Any:
        """Send a call of the worker API, and return the value in its response. Raises the same errors as `call`."""
        answer = self.call(call.path, body, wait_seconds=wait_seconds, slower_seconds=slower_seconds)
        try:
            return call.read(answer)
        except ValueError as error:
            raise self.away(f"{error}; check that this is the address of a Threads Cluster coordinator") from None

    def octets(
        self, method: str, path: str, body: bytes | None = None, *, range: str = "", seconds: float = 0.0
    ) -> bytes:
        """Send a request with a binary body and return the bytes of the response. Raises the same errors as `call`.

        `path` is below /api/worker/ and can contain a query. `range` is a byte range, first-last. `seconds` is added to
        the usual timeout.
        """
        asked = _Asked(
            method=method, path=path, body=body or b"", kind="application/octet-stream", range=range, seconds=seconds
        )
        status, content = self._answered(asked)
        if status in (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT):
            self._failures = 0
            return content
        raise self._refusal(status, content)

    def _answered(self, asked: _Asked) -> tuple[int, bytes]:
        try:
            return self.exchange(asked)
        except _BROKEN as error:
            if asked.polls and self._anew:
                self._anew = False
                raise RequestInterrupted from None
            raise self.away(_reason(error)) from error

    def interrupt(self) -> None:
        """End the current long poll and all later ones. Takes no lock, so signal handlers can call it."""
        self._interrupted = True
        self._hang_up()

    def repeat_request(self) -> None:
        """End the current long poll, or the next one, with RequestInterrupted. Can be called from any thread."""
        self._anew = True
        self._hang_up()

    def _hang_up(self) -> None:
        polled = self._poll_socket
        if self._polling and polled is not None:
            with suppress(OSError):
                socket.socket.shutdown(polled, socket.SHUT_RDWR)

    def disconnect(self) -> None:
        """Close all connections. Running calls fail, and later calls connect again."""
        closing = (self._client, self._poller)
        self._client, self._poller = self._new_client(), self._new_client()
        for client in closing:
            client.close()

    # -- connections ------------------------------------------------------------------------------------------------

    def exchange(self, asked: _Asked) -> tuple[int, bytes]:
        """Return the status and the content of a response. Retries once if an idle connection was closed."""
        with suppress(*_STALE):
            return self._ask(asked)
        # The retry is outside an except clause, so that its error does not get the first error as its context.
        return self._ask(asked)

    def _new_client(self) -> httpx.Client:
        """Return a client that uses no proxy, follows no redirects and accepts no compressed responses.

        TCP keepalive closes connections to a dead coordinator within about ten seconds.
        """
        keepalive = [(socket.IPPROTO_TCP, option, value) for option, value in KEEPALIVE.items()]
        transport = httpx.HTTPTransport(
            verify=self._trust or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            trust_env=False,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=_KEPT, keepalive_expiry=None),
            socket_options=[(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), *keepalive],
        )
        headers = {"User-Agent": f"threads-cluster-worker/{VERSION}", "Accept-Encoding": "identity"}
        return httpx.Client(transport=transport, trust_env=False, headers=headers)

    def _headers(self, asked: _Asked) -> dict[str, str]:
        headers = {"Authorization": f"Bearer {self.bearer}", "Content-Type": asked.kind}
        return {**headers, "Range": f"bytes={asked.range}"} if asked.range else headers

    def _ask(self, asked: _Asked) -> tuple[int, bytes]:
        seconds = self._timeout + asked.seconds + len(asked.body) / SLOWEST
        client = self._poller if asked.polls else self._client
        request = client.build_request(
            asked.method,
            f"{self.place}/api/worker/{asked.path}",
            content=asked.body,
            headers=self._headers(asked),
            timeout=httpx.Timeout(seconds, connect=self._timeout),
            extensions={"trace": self._follow} if asked.polls else None,
        )
        try:
            answer = client.send(request, stream=True)
            try:
                content = _read(answer)
            finally:
                answer.close()
        finally:
            if asked.polls:
                self._polling = False
        if 300 <= answer.status_code < 400:  # The token must not be sent to a redirect.
            content = answer.headers.get("Location", "").encode()
        return answer.status_code, content

    def _follow(self, step: str, details: dict[str, Any]) -> None:
        """Record the socket of a long poll for `interrupt`. httpx calls this method for each step of such a request."""
        if step in _CONNECTED:
            self._poll_socket = details["return_value"].get_extra_info("socket")
        elif step == "http11.send_request_headers.started":
            self._polling = True
            if self._interrupted or self._anew:
                raise ConnectionAbortedError("this worker is stopping, or repeats its request")

    # -- responses -------------------------------------------------------------------------------------------------

    def _refusal(self, status: int, content: bytes) -> CoordinatorAway | CoordinatorRejects:
        """Convert an error response to an exception."""
        answer = _parsed(content) or {}
        detail, field = str(answer.get("detail", "")), str(answer.get("field", ""))
        denied = status == HTTPStatus.FORBIDDEN and field not in _NOT_ABOUT_THE_TOKEN
        if (denied or status == HTTPStatus.UNAUTHORIZED) and detail:
            why = access_denied(self.place, status, detail)
            self.refused(why)
            return AccessDenied(why)
        unset = str(answer.get("type", "")).endswith(_UNSET)
        if (unset or (400 <= status < 500 and status not in (408, 425, 429))) and detail:
            self._failures = 0
            return CoordinatorRejects(f"the coordinator rejected a call ({status}): {detail}", status, field)
        if 300 <= status < 400:
            where = short(content[:200].decode(errors="replace"))
            return self.away(
                f"it returned a redirect ({status}) to {where}; set WORKER_API to the cluster's own address"
            )
        return self.away(detail or f"it returned HTTP {status} {short(content[:80].decode(errors='replace'))}")

    def away(self, why: str) -> CoordinatorAway:
        """Return the exception for a failed call. Its pause grows with the number of consecutive failures."""
        self._failures += 1
        longest = min(FIRST_PAUSE * 2 ** min(self._failures - 1, 10), LONGEST_PAUSE)
        return CoordinatorAway(f"the coordinator at {self.place}: {why}", longest * random.uniform(0.5, 1.0))


def _read(answer: httpx.Response) -> bytes:
    """Read at most MAX_ANSWER bytes of a response, plus one chunk."""
    pieces, size = [], 0
    for piece in answer.iter_raw():
        pieces.append(piece)
        size += len(piece)
        if size > MAX_ANSWER:
            break
    return b"".join(pieces)


def access_denied(place: Place, status: int, detail: str) -> str:
    """Return the error message for a worker that was denied access: the address, the reason and the next command."""
    return (
        f"the coordinator at {place} denied access to this worker ({status}): {detail}. Create a token with"
        " `cluster token create NAME --scopes worker`, store it in WORKER_TOKEN, and restart the worker"
    )


def _parsed(content: bytes) -> dict[str, Any] | None:
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


def create_tls_context(authority: str) -> ssl.SSLContext:
    """Return a TLS context that trusts the given authority. Raises UnusableApi if the file contains no certificate."""
    try:
        return ssl.create_default_context(cafile=authority or None)
    except OSError as error:  # ssl.SSLError is a subclass of OSError.
        raise UnusableApi(f"WORKER_API_CA: {authority} does not contain a readable certificate: {error}") from None


def _reason(error: Exception) -> str:
    """Return a short description of a connection error."""
    cause = causes.system_error(error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not trusted ({cause.verify_message}): set WORKER_API_CA to the certificate file of the"
            " authority that signed it, and check this machine's clock"
        )
    if isinstance(error, httpx.TimeoutException):
        return "it does not answer in time"
    if isinstance(cause, ConnectionRefusedError):
        return "connection refused"
    return str(error) or type(error).__name__
