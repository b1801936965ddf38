"""Calls of the worker API of a coordinator, `/api/worker/*`, on kept connections. docs/lease-protocol.md describes it.

The standard library's HTTP client does: workers' images need no package more.
"""

from __future__ import annotations

import json
import logging
import random
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection, RemoteDisconnected
from typing import Any
from urllib.parse import SplitResult, urlsplit

from jobs import VERSION, exposure
from jobs.numbers import short
from jobs.store.connection import KEEPALIVE, CoordinatorAway, CoordinatorRejects

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
_STALE = (RemoteDisconnected, ConnectionResetError, BrokenPipeError, ssl.SSLEOFError)
_BROKEN = (OSError, HTTPException)


class UnusableApi(ValueError):
    """WORKER_API or WORKER_TOKEN cannot be used; the message says why and what to write, and holds no secret."""


class NotLetIn(CoordinatorAway):
    """The coordinator does not let this worker in; the message says why and what to do."""

    def __init__(self, why: str) -> None:
        super().__init__(why, LONGEST_PAUSE)


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


class Api:
    """The worker API for one worker; thread-safe.

    `refused` is called with the reason when the coordinator does not let the worker in any more.
    """

    def __init__(
        self, place: Place, token: str, *, timeout: float = TIMEOUT_SECONDS,
        refused: Callable[[str], None] = lambda why: None,
    ) -> None:  # fmt: skip
        self.place = place
        self._token = token
        self._timeout = timeout
        self.refused = refused
        self._idle: list[HTTPConnection] = []
        self._lock = threading.Lock()
        #: Calls that failed since one came through.
        self._failures = 0
        self._polling: socket.socket | None = None
        self._interrupted = False
        self._trust = ssl.create_default_context() if place.secure else None

    def for_beats(self, timeout: float) -> Api:
        """Return the same with connections of its own."""
        return Api(self.place, self._token, timeout=timeout, refused=self._pass_on)

    def _pass_on(self, why: str) -> None:
        self.refused(why)

    def call(self, name: str, body: dict[str, Any], *, wait_seconds: float = 0.0) -> dict[str, Any]:
        """POST /api/worker/{name} and return the answer.

        Raises CoordinatorAway when it may be repeated, CoordinatorRejects when it may not, NotLetIn for a token that
        does not count. `wait_seconds` is what the answer may wait for work; such a call ends at `interrupt`.
        """
        text = json.dumps(body, separators=(",", ":")).encode()
        try:
            status, content = self._exchange(f"{self.place.prefix}/api/worker/{name}", text, wait_seconds)
        except _BROKEN as error:
            raise self._away(_reason(error)) from error
        return self._read(status, content)

    def interrupt(self) -> None:
        """End the call that waits for work, and every later one of its sort. Safe in a signal handler."""
        self._interrupted = True
        if (polling := self._polling) is not None:
            try:
                socket.socket.shutdown(polling, socket.SHUT_RDWR)
            except OSError:
                return

    def drop_idle(self) -> None:
        """Close the connections that no call uses now."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    # -- connections ------------------------------------------------------------------------------------------------

    def _exchange(self, path: str, text: bytes, wait_seconds: float) -> tuple[int, bytes]:
        """Return status and content. A kept connection that turns out to be closed is replaced once: calls repeat."""
        kept = self._kept()
        if kept is not None:
            try:
                return self._ask(kept, path, text, wait_seconds)
            except _STALE:
                self.drop_idle()  # a coordinator that went closed them all
        return self._ask(self._new(), path, text, wait_seconds)

    def _kept(self) -> HTTPConnection | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _new(self) -> HTTPConnection:
        if self._trust is None:
            return HTTPConnection(self.place.host, self.place.port, timeout=self._timeout)
        return HTTPSConnection(self.place.host, self.place.port, timeout=self._timeout, context=self._trust)

    def _ask(self, connection: HTTPConnection, path: str, text: bytes, wait_seconds: float) -> tuple[int, bytes]:
        headers = {
            "Authorization": f"Bearer {self._token}", "Content-Type": "application/json",
            "User-Agent": f"threads-cluster-worker/{VERSION}",
        }  # fmt: skip
        try:
            if connection.sock is None:
                connection.connect()
                _notice_silence(connection)
            connection.sock.settimeout(self._timeout + wait_seconds + len(text) / SLOWEST)
            self._announce(connection.sock if wait_seconds else None)
            connection.request("POST", path, text, headers)
            answer = connection.getresponse()
            content = answer.read(MAX_ANSWER)
        except BaseException:
            connection.close()
            raise
        finally:
            if wait_seconds:
                self._polling = None
        if answer.will_close or not answer.isclosed():
            connection.close()
        else:
            self._keep(connection)
        return answer.status, content

    def _announce(self, polling: socket.socket | None) -> None:
        """Let `interrupt` find the call that waits."""
        if polling is not None:
            self._polling = polling
            if self._interrupted:
                raise ConnectionAbortedError("this worker stops")

    def _keep(self, connection: HTTPConnection) -> None:
        with self._lock:
            if len(self._idle) < _KEPT:
                self._idle.append(connection)
                return
        connection.close()

    # -- answers ----------------------------------------------------------------------------------------------------

    def _read(self, status: int, content: bytes) -> dict[str, Any]:
        answer = _parsed(content)
        detail = str(answer.get("detail", "")) if answer else ""
        if status == HTTPStatus.OK and answer is not None:
            self._failures = 0
            return answer
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN) and detail:
            why = not_let_in(self.place, status, detail)
            self.refused(why)
            raise NotLetIn(why)
        if 400 <= status < 500 and status not in (408, 425, 429) and detail:
            self._failures = 0
            raise CoordinatorRejects(f"the coordinator rejects a call ({status}): {detail}")
        raise self._away(detail or f"it answers {status} {short(content[:80].decode(errors='replace'))}")

    def _away(self, why: str) -> CoordinatorAway:
        """Return the error of a call that did not come through, with a pause that grows with the failures in a row."""
        self._failures += 1
        longest = min(FIRST_PAUSE * 2 ** min(self._failures - 1, 10), LONGEST_PAUSE)
        return CoordinatorAway(f"the coordinator at {self.place}: {why}", longest * random.uniform(0.5, 1.0))


def _notice_silence(connection: HTTPConnection) -> None:
    """Have the kernel end a connection whose other side is gone, within about ten seconds."""
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEPALIVE.items():
        connection.sock.setsockopt(socket.IPPROTO_TCP, option, value)


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


def _reason(error: Exception) -> str:
    """Return in few words why nothing came back."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not trusted ({error.verify_message}): set SSL_CERT_FILE to the file of the authority"
            " that signed it, and look at this machine's clock"
        )
    if isinstance(error, TimeoutError):
        return "it takes too long to answer"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there"
    return str(error) or type(error).__name__
