"""Tunnels from runners to this coordinator, and HTTP connections to replicas through the tunnels.

A runner that is unreachable, for example behind NAT, opens a tunnel to each coordinator (docs/services.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, cast

import httpcore
import httpx

from jobs.network.tunnel import Stream, Tunnel

#: Suffix of host names for connections through a tunnel. DNS never resolves a tunnel's name.
_SUFFIX = ".tunnel.invalid"


class Tunnels:
    """Tunnels of one coordinator by worker. A worker's newest tunnel is used. Use it from one event loop."""

    def __init__(self) -> None:
        #: ID with which runners distinguish the coordinators to which they have a tunnel.
        self.me = uuid.uuid4().hex
        #: Key that other coordinators must send to use a tunnel of this one. Stored in Redis.
        self.key = uuid.uuid4().hex
        self._names: dict[str, str] = {}
        self._tunnels: dict[str, Tunnel] = {}
        #: Host names for the tunnels that end at this coordinator.
        self._own: set[str] = set()

    def name(self, worker: str) -> str:
        """Return the host name for connections to a worker's host, or an empty string without a tunnel."""
        return self._names.get(worker, "")

    def at(self, name: str) -> Tunnel | None:
        """Return the tunnel with a name, or None."""
        return self._tunnels.get(name)

    def own(self, worker: str) -> Tunnel | None:
        """Return the tunnel from a worker to this coordinator, or None."""
        name = self.name(worker)
        return self.at(name) if name in self._own else None

    def add(self, worker: str, tunnel: Tunnel, *, own: bool = True) -> str:
        """Register a worker's tunnel, close its older tunnel, and return the new tunnel's name."""
        if (older := self.name(worker)) and (tunnel_before := self._tunnels.pop(older, None)):
            self._own.discard(older)
            tunnel_before.close()
        name = f"{uuid.uuid4().hex}{_SUFFIX}"
        self._names[worker], self._tunnels[name] = name, tunnel
        self._own |= {name} if own else set()
        return name

    def remove(self, worker: str, name: str) -> None:
        """Remove a tunnel, unless a newer one has replaced it."""
        if self._names.get(worker) == name:
            del self._names[worker], self._tunnels[name]
            self._own.discard(name)


class _Stream(httpcore.AsyncNetworkStream):
    """Adapter from a tunnel's stream to a network stream of httpcore."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        async with _within(timeout, httpcore.ReadTimeout, httpcore.ReadError):
            return await self._stream.read(max_bytes)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        async with _within(timeout, httpcore.WriteTimeout, httpcore.WriteError):
            await self._stream.write(buffer)

    async def aclose(self) -> None:
        with contextlib.suppress(ConnectionError):
            await self._stream.close()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.is_readable if info == "is_readable" else None


class _Backend(httpcore.AsyncNetworkBackend):
    """Connects to tunnel names through tunnels, and to other hosts directly."""

    def __init__(self, tunnels: Tunnels) -> None:
        self._tunnels, self._others = tunnels, httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        if not host.endswith(_SUFFIX):
            return await self._others.connect_tcp(host, port, timeout, local_address, socket_options)
        if (tunnel := self._tunnels.at(host)) is None:
            raise httpcore.ConnectError("the tunnel from the replica's runner was closed")
        async with _within(timeout, httpcore.ConnectTimeout, httpcore.ConnectError):
            return _Stream(await tunnel.open(port))

    async def sleep(self, seconds: float) -> None:
        await self._others.sleep(seconds)


@asynccontextmanager
async def _within(seconds: float | None, late: type[Exception], broken: type[Exception]) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise late(str(error)) from error
    except ConnectionError as error:
        raise broken(str(error)) from error


class _Transport(httpx.AsyncBaseTransport):
    """Sends httpx requests through an httpcore pool, because httpx's own transport accepts no network backend."""

    def __init__(self, pool: httpcore.AsyncConnectionPool) -> None:
        self._pool = pool

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, and return the response with an unread body."""
        url = httpcore.URL(
            scheme=request.url.raw_scheme, host=request.url.raw_host, port=request.url.port, target=request.url.raw_path
        )
        content = cast(Any, request.stream)
        asked = httpcore.Request(
            request.method, url, headers=request.headers.raw, content=content, extensions=request.extensions
        )
        with _errors_of_httpx():
            answer = await self._pool.handle_async_request(asked)
        return httpx.Response(answer.status, headers=answer.headers, stream=_Body(answer), extensions=answer.extensions)

    async def aclose(self) -> None:
        await self._pool.aclose()


class _Body(httpx.AsyncByteStream):
    """Streaming body of a response."""

    def __init__(self, answer: httpcore.Response) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _errors_of_httpx():
            async for piece in self._answer.aiter_stream():
                yield piece

    async def aclose(self) -> None:
        await self._answer.aclose()


@contextmanager
def _errors_of_httpx() -> Iterator[None]:
    """Convert httpcore errors to the httpx errors with the same names."""
    try:
        yield
    except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError) as error:
        raise getattr(httpx, type(error).__name__)(str(error)) from error


def through(tunnels: Tunnels) -> httpx.AsyncClient:
    """Return an HTTP client that reaches replicas directly or through tunnels.

    It ignores proxies in the environment and follows no redirects. Each request has its own connection. If a connection
    were reused, bytes that a replica sends after a response would become the response to the next client's request. An
    idle connection also blocks one of the few threads of llama.cpp's server for five seconds.
    """
    pool = httpcore.AsyncConnectionPool(
        max_connections=None, max_keepalive_connections=0, network_backend=_Backend(tunnels)
    )
    alone = {"Connection": "close"}
    return httpx.AsyncClient(transport=_Transport(pool), headers=alone, trust_env=False, follow_redirects=False)
