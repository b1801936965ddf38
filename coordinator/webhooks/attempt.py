"""Attempt to deliver a webhook: one request to a host, whose addresses were resolved once and checked."""

from __future__ import annotations

import asyncio
import email.utils
import logging
import os
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias, cast
from urllib.parse import SplitResult, urlsplit

import httpcore

from coordinator import destinations
from coordinator.destinations import ForbiddenAddress, Guard
from jobs import VERSION, causes

log = logging.getLogger(__name__)

#: Timeout in seconds for connecting, including TLS.
#: Timeout in seconds for the whole attempt.
CONNECT_SECONDS, TOTAL_SECONDS = 5.0, 15.0
#: Maximum size in bytes of a response.
MAX_ANSWER = 64 << 10
#: Maximum number of a host's addresses that are tried.
_TRIED = 3
#: Maximum delay in seconds that a receiver can request with Retry-After.
_LONGEST_WAIT = 3600

#: Function that returns the addresses of a host. Raises OSError if there are none.
Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]

#: Errors of the connection and of the HTTP protocol.
_BROKEN = (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError)

# Threads for DNS lookups. There are many because a lookup without a response blocks its thread for half a minute.
_RESOLVERS = ThreadPoolExecutor(128, "webhook-names")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Result of an attempt: the response's HTTP status, or an error if there was no response."""

    status: int | None = None
    error: str = ""
    #: Delay in seconds that the receiver requested before the next attempt.
    wait_seconds: float = 0.0
    seconds: float = 0.0

    @property
    def is_delivered(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    @property
    def gone(self) -> bool:
        """Return True if the receiver responded that it is permanently gone (HTTP status 410)."""
        return self.status == 410

    def text(self) -> str:
        """Describe the result in a few words."""
        return self.error or f"the receiver responded with HTTP status {self.status}"


async def look_up(host: str, port: int) -> list[str]:
    """Return the addresses of a host without duplicates."""
    import socket

    try:
        found = await asyncio.get_running_loop().run_in_executor(
            _RESOLVERS, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )
    except socket.gaierror as error:
        raise OSError(f"cannot resolve the name {host}: {error.strerror}") from None
    return list(dict.fromkeys(str(one[4][0]) for one in found))


async def post(
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    guard: Guard,
    *,
    resolve: Resolve = look_up,
    connect_seconds: float = CONNECT_SECONDS,
    total_seconds: float = TOTAL_SECONDS,
) -> Outcome:
    """Send a webhook to a normalized URL, and return the result. Never raises.

    See `destinations.normalize_url`.
    """
    began = time.monotonic()
    request = _Request(urlsplit(url), headers, body, guard, resolve, connect_seconds)
    try:
        async with asyncio.timeout(total_seconds):
            await request.run()
    except TimeoutError as error:
        request.error = request.error or str(error) or f"no response within {total_seconds:g} s"
    except httpcore.ConnectTimeout:
        request.error = f"no connection to {request.host} within {connect_seconds:g} s"
    except (ForbiddenAddress, OSError, UnicodeError, *_BROKEN) as error:
        is_silent = isinstance(error, httpcore.ProtocolError) and request.budget.left in (0, MAX_ANSWER)
        request.error = "" if is_silent else _describe_error(error)
    # After the status has arrived, errors no longer change the result.
    said = "" if request.status else request.error or "the receiver closed the connection without a response"
    return Outcome(
        status=request.status, error=said[:500], wait_seconds=request.wait_seconds, seconds=time.monotonic() - began
    )


@dataclass
class _Budget:
    """Number of bytes that may still be read."""

    left: int = MAX_ANSWER


class _BoundedStream(httpcore.AsyncNetworkStream):
    """Stream that appears closed once the read budget is used up."""

    def __init__(self, stream: httpcore.AsyncNetworkStream, budget: _Budget) -> None:
        self._stream, self._budget = stream, budget

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if not self._budget.left:
            return b""
        data = await self._stream.read(min(max_bytes, self._budget.left), timeout)
        self._budget.left -= len(data)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        return _BoundedStream(await self._stream.start_tls(ssl_context, server_hostname, timeout), self._budget)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _PinnedBackend(httpcore.AsyncNetworkBackend):
    """Connects to the first reachable address of a fixed list, without another DNS lookup."""

    def __init__(self, addresses: Sequence[str], budget: _Budget) -> None:
        self._addresses, self._budget, self._backend = addresses, budget, httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        error: Exception = OSError(f"{host} has no address")
        until = time.monotonic() + (timeout or 0)
        for address in self._addresses:
            left = max(until - time.monotonic(), 0.001)
            try:
                stream = await self._backend.connect_tcp(address, port, left, local_address, socket_options)
                return _BoundedStream(stream, self._budget)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as refused:
                error = refused
        raise error


class _Request:
    """A webhook request in progress."""

    def __init__(
        self, url: SplitResult, headers: Mapping[str, str], body: bytes, guard: Guard, resolve: Resolve, patience: float
    ) -> None:
        self._url, self._headers, self._body = url, headers, body
        self._guard, self._resolve, self._patience = guard, resolve, patience
        self.host = url.hostname or ""
        self._port = url.port or (443 if url.scheme == "https" else 80)
        self.status: int | None = None
        self.wait_seconds = 0.0
        self.error = ""
        self.budget = _Budget()

    async def run(self) -> None:
        addresses = await self._resolve(self.host, self._port)
        self._check(addresses)
        encryption = encryption_context() if self._url.scheme == "https" else None
        backend = _PinnedBackend(addresses[:_TRIED], self.budget)
        async with httpcore.AsyncConnectionPool(encryption, network_backend=backend) as pool:
            await self._exchange(pool)

    def _check(self, addresses: Sequence[str]) -> None:
        """Raise ForbiddenAddress if an address is forbidden. The error does not reveal the address of a host name.

        The log contains the address. Users must not learn to which address a name resolves.
        """
        try:
            self._guard.check(addresses)
        except ForbiddenAddress as refused:
            if destinations.is_address(self.host):
                raise
            log.info("webhook not sent: %s", refused, extra={"host": self.host})
            raise ForbiddenAddress(
                f"{self.host} has an address that is not public; the coordinators' log names it, and an operator can "
                "allow its network with WEBHOOK_ALLOW"
            ) from None

    async def _exchange(self, pool: httpcore.AsyncConnectionPool) -> None:
        """Send the request and read the response, up to MAX_ANSWER bytes in total."""
        target = f"{self._url.path or '/'}{'?' + self._url.query if self._url.query else ''}"
        address = httpcore.URL(scheme=self._url.scheme, host=self.host, port=self._port, target=target)
        fields = {
            "Host": self._url.netloc,
            "User-Agent": f"threads-cluster/{VERSION}",
            "Connection": "close",
            "Content-Type": "application/json",
            "Content-Length": str(len(self._body)),
            **self._headers,
        }
        extensions = {"timeout": {"connect": self._patience}}
        async with pool.stream(
            "POST", address, headers=cast(Any, fields), content=self._body, extensions=extensions
        ) as answer:
            self.status, self.wait_seconds = answer.status, _parse_retry_after(answer)
            async for _ in answer.aiter_stream():
                pass


@cache
def encryption_context() -> ssl.SSLContext:
    return ssl.create_default_context()


def _parse_retry_after(answer: httpcore.Response) -> float:
    """Return the delay in seconds of the Retry-After header, which can also contain a date. Without it, return 0."""
    text = next((value for name, value in answer.headers if name.lower() == b"retry-after"), b"").decode(
        "ascii", "replace"
    )
    if text.isdigit() and len(text) < 10:
        return min(float(text), _LONGEST_WAIT)
    try:
        left = email.utils.parsedate_to_datetime(text).timestamp() - time.time()
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return min(max(left, 0.0), _LONGEST_WAIT)


def _describe_error(error: BaseException) -> str:
    if isinstance(error, httpcore.ProtocolError):
        return f"the response is not valid HTTP: {error}"
    cause = causes.system_error(error) if isinstance(error, _BROKEN) else None
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"the TLS certificate is not valid: {cause.verify_message}"
    if cause is not None and cause.errno and not isinstance(cause, ssl.SSLError):
        return os.strerror(cause.errno)  # the error's text may contain the host's private address
    return str(error) or type(error).__name__
