"""Send requests to the ASGI application in this process without a network, and read whole or streamed responses."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Scope

#: Maximum number of queued pieces of a response. The application waits while the queue is full.
_WAITING = 8


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request to the application, with the fields of an HTTP request."""

    method: str
    #: Path after percent-decoding.
    path: str
    query: bytes = b""
    headers: Sequence[tuple[bytes, bytes]] = ()
    body: bytes = b""
    #: IP address and port of the caller.
    caller: tuple[str, int] = ("", 0)


class Answer:
    """Response with a known status and a streamed body."""

    def __init__(self) -> None:
        self.status = 500
        self.headers: dict[bytes, bytes] = {}
        #: Pieces of the body, followed by None.
        self.incoming: asyncio.Queue[bytes | None] = asyncio.Queue(_WAITING)

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the pieces of the body as they arrive."""
        while (piece := await self.incoming.get()) is not None:
            yield piece

    async def body(self) -> bytes:
        """Return the whole body."""
        return b"".join([piece async for piece in self.pieces()])


@asynccontextmanager
async def send_request(app: ASGIApp, request: Request) -> AsyncIterator[Answer]:
    """Send a request, and yield its response when the response starts. Leaving the context aborts the request."""
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
            self.begun.set()  # an application that fails before its response has status 500
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
