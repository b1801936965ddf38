"""Calls of the worker API of a coordinator, `/api/worker/*`, on kept connections: docs/lease-protocol.md."""

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

#: Seconds for which an answer may be silent; longer by what a long poll waits.
TIMEOUT_SECONDS = 5.0
#: Bytes a second that a connection carries at least: large results take longer than the timeout.
SLOWEST = 500_000
#: Pauses before another try grow from the first to the last of these, in seconds; at random between half and all.
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 2.0
#: Largest answer that is read.
MAX_ANSWER = 1 << 30
#: Connections that are kept while nobody uses them.
_KEPT = 64
#: Raised by a connection that the other side closed while nobody used it.
_STALE = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)
_BROKEN = (OSError, httpx.HTTPError, httpx.InvalidURL)
#: Steps of a connection after which its socket is another.
_CONNECTED = ("connection.connect_tcp.complete", "connection.start_tls.complete")
#: End of the type of an answer that comes until somebody sets what the coordinator lacks.
_UNSET = ":MissingSetting"
#: Fields of a 403 that is about what was asked for, and not about who asks.
_NOT_ABOUT_THE_TOKEN = ("hashes", "sha256")


class UnusableApi(ValueError):
    """WORKER_API or WORKER_TOKEN cannot be used; the message says why and what to write, and holds no secret."""


class NotLetIn(CoordinatorAway):
    """The coordinator does not let this worker in; the message says why and what to do."""

    def __init__(self, why: str) -> None:
        super().__init__(why, LONGEST_PAUSE)


class AskAnew(CoordinatorAway):
    """A call that waited for work was ended by this process, since it may now ask for more."""

    def __init__(self) -> None:
        super().__init__("it asks anew", 0.0)


@dataclass(frozen=True)
class Place:
    """Where the worker API is."""

    secure: bool
    host: str
    port: int
    #: Path before /api, where the cluster is served under one.
    prefix: str

    def __str__(self) -> str:
        name = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.secure else 'http'}://{name}:{self.port}{self.prefix}"


def place(address: str) -> Place:
    """Return the place that a WORKER_API names. Raises UnusableApi."""
    try:
        parts = urlsplit(address)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise _unusable(str(error)) from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise _unusable("it begins with https:// or http:// and names a host")
    if _has_more(parts):
        raise _unusable("it has a user, a password, a query or a fragment, and none belongs there")
    return Place(parts.scheme == "https", parts.hostname, port, parts.path.rstrip("/"))


def _has_more(parts: SplitResult) -> bool:
    return "@" in parts.netloc or bool(parts.query) or bool(parts.fragment)


def _unusable(why: str) -> UnusableApi:
    return UnusableApi(f"WORKER_API is no address of a coordinator: {why}; write WORKER_API=https://cluster.example")


def check(address: str, token: str) -> Place:
    """Return the place. Raises UnusableApi for an address or a token that no request can be made with."""
    found = place(address)
    if not token:
        raise UnusableApi(
            "WORKER_API needs WORKER_TOKEN: make one with `cluster token create NAME --scopes worker`, where NAME will"
            " be this worker's name, and put it into WORKER_TOKEN or into the file /run/secrets/worker_token"
        )
    if not token.isascii() or not token.isprintable() or " " in token:
        raise UnusableApi("WORKER_TOKEN holds white space or other characters that no token has; copy it again")
    if not found.secure and not exposure.is_loopback(found.host):
        log.warning("WORKER_API is plain HTTP: whoever sees this network reads the token; use https:// beyond your own")
    return found


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """One request."""

    method: str = "POST"
    #: Path below /api/worker/, with its query.
    path: str
    body: bytes = b""
    kind: str = "application/json"
    #: Bytes of a file that are asked for: first-last.
    range: str = ""
    #: Seconds that the answer may take beside the usual.
    seconds: float = 0.0
    #: It waits for work, and `interrupt` ends it.
    polls: bool = False


class Api:
    """The worker API for one worker; thread-safe.

    `refused` is called with the reason when the coordinator does not let the worker in any more. `authority` is a file
    with the one certificate that may have signed the coordinator's; empty: those of the system.
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
        #: Calls that failed since one came through.
        self._failures = 0
        self._interrupted = False
        self._anew = False
        self._trust = trusting(authority) if place.secure else None
        self._client = self._new_client()
        #: For calls that wait for work, of which there is one at a time.
        self._poller = self._new_client()
        self._poll_socket: socket.socket | None = None
        self._polling = False

    def for_beats(self, timeout: float) -> Api:
        """Return the same with connections of its own."""
        return Api(self.place, self.bearer, timeout=timeout, authority=self._authority, refused=self._pass_on)

    def _pass_on(self, why: str) -> None:
        self.refused(why)

    def opening(self, path: str) -> tuple[str, dict[str, str], ssl.SSLContext | None]:
        """Return the URL of a WebSocket below /api/worker/, the headers that open it, and whom it trusts."""
        address = f"{self.place}/api/worker/{path}"
        return f"ws{address.removeprefix('http')}", {"Authorization": f"Bearer {self.bearer}"}, self._trust

    def call(
        self, name: str, body: dict[str, Any], *, wait_seconds: float = 0.0, slower_seconds: float = 0.0
    ) -> dict[str, Any]:
        """POST /api/worker/{name} and return the answer.

        Raises CoordinatorAway when it may be repeated, CoordinatorRejects when it may not, NotLetIn for a token that
        does not count. `wait_seconds` is what the answer may wait for work; such a call ends at `interrupt`.
        `slower_seconds` is what it may take for another reason.
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
        """Make a declared call and return what its answer gives. Errors as `call`."""
        answer = self.call(call.path, body, wait_seconds=wait_seconds, slower_seconds=slower_seconds)
        try:
            return call.read(answer)
        except ValueError as error:
            raise self.away(f"{error}: is it a coordinator of a Threads Cluster?") from None

    def octets(
        self, method: str, path: str, body: bytes | None = None, *, range: str = "", seconds: float = 0.0
    ) -> bytes:
        """Send a request with bytes, or with none, and return the bytes of the answer. Errors as `call`.

        `path` is below /api/worker/ and may have a query. `range` names bytes, first-last. `seconds` is what the answer
        may take beside the usual.
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
                raise AskAnew from None
            raise self.away(_reason(error)) from error

    def interrupt(self) -> None:
        """End the call that waits for work, and every later one of its sort. Safe in a signal handler."""
        self._interrupted = True
        self._hang_up()

    def ask_anew(self) -> None:
        """End the call that waits for work with AskAnew, else the next one of its sort. From any thread."""
        self._anew = True
        self._hang_up()

    def _hang_up(self) -> None:
        polled = self._poll_socket
        if self._polling and polled is not None:
            with suppress(OSError):
                socket.socket.shutdown(polled, socket.SHUT_RDWR)

    def disconnect(self) -> None:
        """Close the connections; calls under way fail, and later ones connect again."""
        closing = (self._client, self._poller)
        self._client, self._poller = self._new_client(), self._new_client()
        for client in closing:
            client.close()

    # -- connections ------------------------------------------------------------------------------------------------

    def exchange(self, asked: _Asked) -> tuple[int, bytes]:
        """Return status and content. A kept connection that turns out to be closed is replaced once: calls repeat."""
        with suppress(*_STALE):
            return self._ask(asked)
        # Not in an except clause: a second error must not have the first as its context.
        return self._ask(asked)

    def _new_client(self) -> httpx.Client:
        """Return a client that uses no proxy, follows no redirect and takes no packed answer.

        The kernel ends its connections to a coordinator that is gone within about ten seconds.
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
        if 300 <= answer.status_code < 400:  # never followed: the token is for the stated address alone
            content = answer.headers.get("Location", "").encode()
        return answer.status_code, content

    def _follow(self, step: str, details: dict[str, Any]) -> None:
        """Let `interrupt` find the socket of the call that waits. httpx calls this at each step of such a call."""
        if step in _CONNECTED:
            self._poll_socket = details["return_value"].get_extra_info("socket")
        elif step == "http11.send_request_headers.started":
            self._polling = True
            if self._interrupted or self._anew:
                raise ConnectionAbortedError("this worker stops, or asks for more")

    # -- answers ----------------------------------------------------------------------------------------------------

    def _refusal(self, status: int, content: bytes) -> CoordinatorAway | CoordinatorRejects:
        """Return the error that an answer is which is not the one that was asked for."""
        answer = _parsed(content) or {}
        detail, field = str(answer.get("detail", "")), str(answer.get("field", ""))
        denied = status == HTTPStatus.FORBIDDEN and field not in _NOT_ABOUT_THE_TOKEN
        if (denied or status == HTTPStatus.UNAUTHORIZED) and detail:
            why = not_let_in(self.place, status, detail)
            self.refused(why)
            return NotLetIn(why)
        unset = str(answer.get("type", "")).endswith(_UNSET)
        if (unset or (400 <= status < 500 and status not in (408, 425, 429))) and detail:
            self._failures = 0
            return CoordinatorRejects(f"the coordinator rejects a call ({status}): {detail}", status, field)
        if 300 <= status < 400:
            where = short(content[:200].decode(errors="replace"))
            return self.away(
                f"it answers {status} and sends to {where}; write the cluster's own address into WORKER_API"
            )
        return self.away(detail or f"it answers {status} {short(content[:80].decode(errors='replace'))}")

    def away(self, why: str) -> CoordinatorAway:
        """Return the error of a call that did not come through, with a pause that grows with the failures in a row."""
        self._failures += 1
        longest = min(FIRST_PAUSE * 2 ** min(self._failures - 1, 10), LONGEST_PAUSE)
        return CoordinatorAway(f"the coordinator at {self.place}: {why}", longest * random.uniform(0.5, 1.0))


def _read(answer: httpx.Response) -> bytes:
    """Return the content, of at most MAX_ANSWER bytes."""
    pieces, size = [], 0
    for piece in answer.iter_raw():
        pieces.append(piece)
        size += len(piece)
        if size > MAX_ANSWER:
            break
    return b"".join(pieces)


def not_let_in(place: Place, status: int, detail: str) -> str:
    """Return what a worker says that is not let in: what, why, and the next command."""
    return (
        f"the coordinator at {place} does not let this worker in ({status}): {detail}. Make a token with"
        " `cluster token create NAME --scopes worker`, put it into WORKER_TOKEN, and start the worker again"
    )


def _parsed(content: bytes) -> dict[str, Any] | None:
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


def trusting(authority: str) -> ssl.SSLContext:
    """Return what certificates are verified with. Raises UnusableApi for a file that has none."""
    try:
        return ssl.create_default_context(cafile=authority or None)
    except OSError as error:  # ssl.SSLError is one
        raise UnusableApi(f"WORKER_API_CA: {authority} has no certificate that can be read: {error}") from None


def _reason(error: Exception) -> str:
    """Return in few words why nothing came back."""
    cause = causes.system_error(error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not trusted ({cause.verify_message}): set WORKER_API_CA to the file of the authority"
            " that signed it, and look at this machine's clock"
        )
    if isinstance(error, httpx.TimeoutException):
        return "it takes too long to answer"
    if isinstance(cause, ConnectionRefusedError):
        return "nothing listens there"
    return str(error) or type(error).__name__
