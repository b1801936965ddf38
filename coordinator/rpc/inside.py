"""Requests to the application of this process, without a network: answers as a whole or as they come."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Scope

#: Pieces of a streamed answer that wait for whoever reads them; the application waits beyond.
_WAITING = 8


@dataclass(frozen=True, kw_only=True)
class Request:
    """Request as HTTP would bring it."""

    method: str
    #: Not quoted.
    path: str
    query: bytes = b""
    headers: Sequence[tuple[bytes, bytes]] = ()
    body: bytes = b""
    #: Address of who asks.
    caller: tuple[str, int] = ("", 0)


class Answer:
    """Answer to one request, once its status is known."""

    def __init__(self) -> None:
        self.status = 500
        self.headers: dict[bytes, bytes] = {}
        #: Pieces of the body; None: it has ended.
        self.incoming: asyncio.Queue[bytes | None] = asyncio.Queue(_WAITING)

    async def pieces(self) -> AsyncIterator[bytes]:
        """Give the body as it comes."""
        while (piece := await self.incoming.get()) is not None:
            yield piece

    async def body(self) -> bytes:
        """Return the body as a whole."""
        return b"".join([piece async for piece in self.pieces()])


@asynccontextmanager
async def send_request(app: ASGIApp, request: Request) -> AsyncIterator[Answer]:
    """Send a request and give its answer as soon as it begins. Leaving the context ends the request."""
    answer, exchange = Answer(), _Exchange(request)
    task = asyncio.create_task(exchange.run(app, answer))
    try:
        await exchange.begun.wait()
        yield answer
    finally:
        exchange.gone.set()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


class _Exchange:
    def __init__(self, request: Request) -> None:
        self._request = request
        self._sent = False
        self.begun, self.gone = asyncio.Event(), asyncio.Event()

    async def run(self, app: ASGIApp, answer: Answer) -> None:
        self._answer = answer
        try:
            await app(self._scope(), self._receive, self._send)
        finally:
            self.begun.set()  # an application that fails before it answers has answered 500
            if not self.gone.is_set():
                await answer.incoming.put(None)

    def _scope(self) -> Scope:
        send_request = self._request
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": send_request.method,
            "scheme": "http",
            "path": send_request.path,
            "raw_path": send_request.path.encode(),
            "query_string": send_request.query,
            "root_path": "",
            "headers": list(send_request.headers),
            "client": send_request.caller,
            "server": ("127.0.0.1", 0),
            "state": {},
        }

    async def _receive(self) -> Message:
        if not self._sent:
            self._sent = True
            return {"type": "http.request", "body": self._request.body, "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._answer.status = message["status"]
            self._answer.headers = dict(message.get("headers", ()))
            self.begun.set()
        elif piece := message.get("body", b""):
            await self._answer.incoming.put(piece)
