"""WebSockets of services' pages: opened to the replica that leads, and passed on message by message."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.typing import Subprotocol

from coordinator.services.gateway.tunnels import Tunnels
from jobs.network import tunnel
from jobs.network.tunnel import Stream, first_of

#: Bytes of a replica's message, and seconds in which it opens a WebSocket.
MAX_MESSAGE, OPEN_SECONDS = 20 << 20, 10.0
#: What a replica may do wrong.
BROKEN = (OSError, ConnectionClosed, InvalidHandshake, TimeoutError)


class _Straight(connect):
    """Connection that no redirect leads elsewhere."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


@asynccontextmanager
async def opened(
    tunnels: Tunnels, host: str, port: int, path: str, headers: Mapping[str, str], protocols: Sequence[str]
) -> AsyncIterator[ClientConnection]:
    """Open a WebSocket to a port of a replica's host, or of a tunnel's name. One of BROKEN where none opens."""
    through = tunnels.at(host)
    async with contextlib.AsyncExitStack() as held:
        ends: dict[str, Any] = {}
        if through is not None:
            ends["sock"] = await held.enter_async_context(_through(await through.open(port)))
        yield await held.enter_async_context(
            _Straight(
                f"ws://{host}:{port}{path}",
                additional_headers=headers,
                compression=None,
                max_size=MAX_MESSAGE,
                subprotocols=[Subprotocol(one) for one in protocols] or None,
                proxy=None,
                open_timeout=OPEN_SECONDS,
                close_timeout=1,
                user_agent_header=None,
                **ends,
            )
        )


@asynccontextmanager
async def _through(stream: Stream) -> AsyncIterator[socket.socket]:
    """Yield a socket of this process whose other end is a stream of a tunnel."""
    near, far = socket.socketpair()
    near.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=far)
    passing = asyncio.create_task(_joined(stream, reader, writer))
    try:
        yield near
    finally:
        passing.cancel()
        await asyncio.gather(passing, return_exceptions=True)
        near.close()


async def _joined(stream: Stream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        await tunnel.passed_on(stream, reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await stream.close()


async def passed_on(browser: WebSocket, replica: ClientConnection) -> None:
    """Pass messages on both ways until either end closes."""

    async def out() -> None:
        while (message := await browser.receive())["type"] == "websocket.receive":
            text = message.get("text")
            await replica.send(text if text is not None else message["bytes"])

    async def back() -> None:
        async for message in replica:
            await (browser.send_text(message) if isinstance(message, str) else browser.send_bytes(message))

    with contextlib.suppress(*BROKEN, WebSocketDisconnect):
        await first_of(out(), back())
