"""uvicorn's HTTP protocol with limits on the size of a request's head and on the time to receive a request.

nginx enforces the same limits, but a coordinator can run without nginx. uvicorn limits the head only with h11, which is
slower.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Any

from httptools import HttpParserError
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

#: Maximum size in bytes of the first line and the headers of a request.
MAX_HEAD = 64 << 10

_TOO_LARGE = b"the first line and the headers have over 64 KiB; send the data in a body\n"


class Stage(Enum):
    """Part of a request that the server is waiting for."""

    NOTHING = 0
    HEAD = 1
    BODY = 2


#: Timeout in seconds of each stage. The time of a body includes the wait for free memory.
SECONDS = {Stage.HEAD: 15.0, Stage.BODY: 150.0}
#: Timeout in seconds for a client to read about 48 KiB of the response. Without it, a route could wait forever.
SEND_SECONDS = 120.0


class HeadTooLarge(HttpParserError):
    """Stops the parsing of a request whose head is too large."""


class BoundedProtocol(HttpToolsProtocol):
    """HTTP protocol that closes connections whose requests are too large or too slow."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._stage = Stage.NOTHING
        #: Number of bytes of the head that the parser has reported.
        #: Number of bytes passed to the parser before the head is complete.
        self._head = self._fed = 0
        self._timer: asyncio.TimerHandle | None = None
        self._send_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect(Stage.HEAD)

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect(Stage.NOTHING)
        self._cancel_send_timer()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._cancel_send_timer()
        self._send_timer = self.loop.call_later(SEND_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        self._cancel_send_timer()
        super().resume_writing()

    def _cancel_send_timer(self) -> None:
        if self._send_timer is not None:
            self._send_timer.cancel()
            self._send_timer = None

    def data_received(self, data: bytes) -> None:
        before = self._stage
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self.transport.get_protocol() is not self:  # the connection was upgraded to a WebSocket
            self._expect(Stage.NOTHING)
            self._cancel_send_timer()
            return
        if self._stage is Stage.NOTHING and (self.cycle is None or self.cycle.response_complete):
            self._stage = Stage.HEAD  # the data are empty lines before a request
        if self._stage is not before:
            self._expect(self._stage)
        elif self._stage is Stage.HEAD:
            self._fed += len(data)
            if self._fed > MAX_HEAD:
                self.send_400_response("")

    def _expect(self, stage: Stage) -> None:
        self._stage = stage
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if stage is not Stage.NOTHING:
            self._timer = self.loop.call_later(SECONDS[stage], self.transport.close)

    # Callbacks of the parser.

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._stage = Stage.HEAD
        self._head = self._fed = 0

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + len(b": \r\n"))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._stage = Stage.BODY
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._stage = Stage.NOTHING
        super().on_message_complete()

    def _count(self, size: int) -> None:
        self._head += size
        if self._head > MAX_HEAD:
            raise HeadTooLarge

    def send_400_response(self, msg: str) -> None:
        """Send status 431 if the head is too large, otherwise 400, and close the connection."""
        if max(self._head, self._fed) <= MAX_HEAD:
            super().send_400_response(msg)
            return
        head = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain\r\nconnection: close\r\n"
        self.transport.write(head + b"content-length: %d\r\n\r\n%s" % (len(_TOO_LARGE), _TOO_LARGE))
        self.transport.close()
