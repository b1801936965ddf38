"""One attempt to deliver: one request to one address that was looked up once and checked.

It follows no redirect, uses no proxy of the environment, keeps no connection and reads a bounded answer.
"""

from __future__ import annotations

import asyncio
import email.utils
import logging
import os
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias
from urllib.parse import SplitResult, urlsplit

import h11

from coordinator import destinations
from coordinator.destinations import Guard, Refused
from jobs import VERSION

log = logging.getLogger(__name__)

#: Seconds for the connection with its encryption, and for all of an attempt.
CONNECT_SECONDS, TOTAL_SECONDS = 5.0, 15.0
#: Bytes of an answer that are read.
MAX_ANSWER = 64 << 10
#: Addresses of a name that are tried.
_TRIED = 3
#: Most seconds for which an answer may ask to be left alone.
_LONGEST_WAIT = 3600

#: Returns the addresses of a host; OSError when it has none.
Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]

# Of their own, and many: a name that no server knows holds up its thread for half a minute.
_RESOLVERS = ThreadPoolExecutor(128, "webhook-names")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Outcome of an attempt: the answer's status, or an error where none came."""

    status: int | None = None
    error: str = ""
    #: Seconds for which the receiver wants to be left alone.
    wait_seconds: float = 0.0
    seconds: float = 0.0

    @property
    def delivered(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    @property
    def gone(self) -> bool:
        """True when the receiver says that it is gone for good."""
        return self.status == 410

    def text(self) -> str:
        """Return what happened, in a few words."""
        return self.error or f"the receiver answered {self.status}"


async def look_up(host: str, port: int) -> list[str]:
    """Return the addresses of a host, each once."""
    import socket

    try:
        found = await asyncio.get_running_loop().run_in_executor(
            _RESOLVERS, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )
    except socket.gaierror as error:
        raise OSError(f"the name {host} is not found: {error.strerror}") from None
    return list(dict.fromkeys(str(one[4][0]) for one in found))


async def post(
    url: str, headers: Mapping[str, str], body: bytes, guard: Guard, *, resolve: Resolve = look_up,
    connect_seconds: float = CONNECT_SECONDS, total_seconds: float = TOTAL_SECONDS,
) -> Outcome:  # fmt: skip
    """Send a body to a URL that `destinations.url` has read, and return what came of it; raises nothing."""
    began = time.monotonic()
    request = _Request(urlsplit(url), headers, body, guard, resolve, connect_seconds)
    try:
        async with asyncio.timeout(total_seconds):
            await request.run()
    except TimeoutError as error:
        request.error = request.error or str(error) or f"no answer came within {total_seconds:g} s"
    except (Refused, OSError, h11.ProtocolError, UnicodeError) as error:
        request.error = request.error or _said(error)
    # What follows a status changes nothing any more.
    said = "" if request.status else request.error or "the connection ended without an answer"
    return Outcome(
        status=request.status, error=said[:500], wait_seconds=request.wait_seconds, seconds=time.monotonic() - began
    )


class _Request:
    """A request on its way."""

    def __init__(
        self, url: SplitResult, headers: Mapping[str, str], body: bytes, guard: Guard, resolve: Resolve, patience: float
    ) -> None:
        self._url, self._headers, self._body = url, headers, body
        self._guard, self._resolve, self._patience = guard, resolve, patience
        self._host = url.hostname or ""
        self._port = url.port or (443 if url.scheme == "https" else 80)
        self.status: int | None = None
        self.wait_seconds = 0.0
        self.error = ""

    async def run(self) -> None:
        addresses = await self._resolve(self._host, self._port)
        self._check(addresses)
        reader, writer = await self._connected(addresses[:_TRIED])
        try:
            await self._exchange(reader, writer)
        finally:
            writer.transport.abort()

    def _check(self, addresses: Sequence[str]) -> None:
        """Raise Refused. What a name stands for is told to the log: whoever asks may not know the names of others."""
        try:
            self._guard.check(addresses)
        except Refused as refused:
            if destinations.is_address(self._host):
                raise
            log.info("a webhook was not sent: %s", refused, extra={"host": self._host})
            raise Refused(
                f"{self._host} has an address that is not public; the coordinators' log names it, and the operator may "
                "allow its network with WEBHOOK_ALLOW"
            ) from None

    async def _connected(self, addresses: Sequence[str]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return a connection to the first address that takes one. Nothing is looked up again."""
        encrypted = self._url.scheme == "https"
        error: Exception = OSError(f"{self._host} has no address")
        async with asyncio.timeout(None) as limit:
            limit.reschedule(asyncio.get_running_loop().time() + self._patience)
            self.error = f"no connection to {self._host} within {self._patience:g} s"
            for address in addresses:
                try:
                    connection = await asyncio.open_connection(
                        address, self._port, limit=MAX_ANSWER, ssl=encryption_context() if encrypted else None,
                        server_hostname=self._host if encrypted else None,
                    )  # fmt: skip
                except (OSError, UnicodeError) as refused:
                    error = refused
                    continue
                self.error = ""
                return connection
            self.error = ""
            raise error

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        http = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_ANSWER)
        target = f"{self._url.path or '/'}{'?' + self._url.query if self._url.query else ''}"
        fields = {
            "Host": self._url.netloc, "User-Agent": f"threads-cluster/{VERSION}", "Connection": "close",
            "Content-Type": "application/json", "Content-Length": str(len(self._body)), **self._headers,
        }  # fmt: skip
        events = (
            h11.Request(method="POST", target=target, headers=list(fields.items())),
            h11.Data(data=self._body), h11.EndOfMessage(),
        )  # fmt: skip
        writer.write(b"".join(http.send(event) or b"" for event in events))
        await self._answer(http, reader)

    async def _answer(self, http: h11.Connection, reader: asyncio.StreamReader) -> None:
        """Read until the answer ends or has brought MAX_ANSWER bytes."""
        read = 0
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                data = await reader.read(8192)
                read += len(data)
                if read > MAX_ANSWER:
                    return
                http.receive_data(data)
            elif isinstance(event, h11.Response):
                self.status, self.wait_seconds = event.status_code, _asked_wait(event)
            elif not isinstance(event, h11.InformationalResponse | h11.Data):
                return


@cache
def encryption_context() -> ssl.SSLContext:
    return ssl.create_default_context()


def _asked_wait(answer: h11.Response) -> float:
    """Return the seconds of Retry-After, which a date may tell, too; 0 without any."""
    text = next((value for name, value in answer.headers if name == b"retry-after"), b"").decode("ascii", "replace")
    if text.isdigit() and len(text) < 10:
        return min(float(text), _LONGEST_WAIT)
    try:
        left = email.utils.parsedate_to_datetime(text).timestamp() - time.time()
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return min(max(left, 0.0), _LONGEST_WAIT)


def _said(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not valid: {error.verify_message}"
    if isinstance(error, h11.ProtocolError):
        return f"it does not answer as HTTP: {error}"
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and error.errno:
        return os.strerror(error.errno)  # its text may name an address behind the host
    return str(error) or type(error).__name__
