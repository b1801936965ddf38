"""WebSockets of services' pages: open them to the leading replica, and forward messages."""

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
from jobs.network.tunnel import Stream, run_until_first

#: Maximum size in bytes of a replica's message.
#: Timeout in seconds for opening a WebSocket.
MAX_MESSAGE, OPEN_SECONDS = 20 << 20, 10.0
#: Errors of a broken replica.
BROKEN = (OSError, ConnectionClosed, InvalidHandshake, TimeoutError)


class _Straight(connect):
    """WebSocket connection that follows no redirects."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


@asynccontextmanager
async def opened(
    tunnels: Tunnels, host: str, port: int, path: str, headers: Mapping[str, str], protocols: Sequence[str]
) -> AsyncIterator[ClientConnection]:
    """Open a WebSocket to a port on a replica's host or through a tunnel. Raises an error in BROKEN."""
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
    """Yield a local socket that is connected to a tunnel's stream."""
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
        await tunnel.relay_connection(stream, reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await stream.close()


async def passed_on(browser: WebSocket, replica: ClientConnection) -> None:
    """Forward messages in both directions until either side closes."""

    async def out() -> None:
        while (message := await browser.receive())["type"] == "websocket.receive":
            text = message.get("text")
            await replica.send(text if text is not None else message["bytes"])

    async def back() -> None:
        async for message in replica:
            await (browser.send_text(message) if isinstance(message, str) else browser.send_bytes(message))

    with contextlib.suppress(*BROKEN, WebSocketDisconnect):
        await run_until_first(out(), back())
