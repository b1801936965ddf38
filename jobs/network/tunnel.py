"""Tunnel between a runner and a coordinator, which carries many byte streams over one connection.

Both ends use this module. A message is one byte for its type, four bytes for the stream number, and the content. Each
direction of a stream has a flow-control window, so a stream without a reader does not block the others. A tunnel
belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from enum import IntEnum
from typing import Any

#: Address that a runner reports for a replica if coordinators can reach the replica only through tunnels.
ADDRESS = "0.0.0.0"
#: Path below /api/worker/ at which coordinators accept tunnels from runners.
PATH = "tunnel"
#: Heartbeat interval in seconds of the end that opened the tunnel.
#: After `SILENT_SECONDS` without a message, the other end closes the tunnel.
HEARTBEAT_SECONDS, SILENT_SECONDS = 5.0, 20.0
_HEAD = struct.Struct(">BI")
_COUNT = struct.Struct(">I")
#: Flow-control window in bytes for each direction of a stream.
#: `PIECE` is the maximum content of a message in bytes.
WINDOW, PIECE = 256 << 10, 32 << 10
#: Maximum size of a message in bytes.
MAX_MESSAGE = _HEAD.size + PIECE
#: Maximum number of open streams in one tunnel.
MAX_STREAMS = 1024


class Kind(IntEnum):
    """Types of tunnel messages."""

    #: Heartbeat of the end that opened the tunnel.
    BEAT = 0
    #: Opens a stream to a port. The content of the message is the port number.
    OPEN = 1
    DATA = 2
    #: Reports the number of bytes that the receiver has read. The sender can then send as many more bytes.
    CREDIT = 3
    #: Announces that the sender sends no more data on the stream.
    END = 4
    #: Announces that the sender neither sends nor reads any more data on the stream.
    CLOSE = 5


class InvalidMessage(Exception):
    """The other end of a tunnel sent an invalid message, so the tunnel must be closed."""


#: Callback that accepts a stream which the other end of the tunnel opened to a port.
Accept = Callable[["Stream", int], None]


def _reject_stream(stream: Stream, port: int) -> None:
    raise InvalidMessage("the other end opened a stream, but only this end can open streams")


class Tunnel:
    """One end of a tunnel. `send` writes a message, and `accept` handles streams that the other end opens."""

    def __init__(self, send: Callable[[bytes], Awaitable[None]], accept: Accept = _reject_stream) -> None:
        self._write, self._accept = send, accept
        self._sending = asyncio.Lock()
        self._streams: dict[int, Stream] = {}
        self._last = 0
        self.closed = False

    async def open(self, port: int) -> Stream:
        """Open a stream to a port on the host at the other end of the tunnel. Raises ConnectionError on failure."""
        if len(self._streams) >= MAX_STREAMS:
            raise ConnectionRefusedError(f"{MAX_STREAMS} streams are already open")
        self._last += 1
        stream = self._streams[self._last] = Stream(self, self._last)
        await self.send(Kind.OPEN, stream.number, _COUNT.pack(port))
        return stream

    async def beat(self) -> None:
        """Send a heartbeat through the tunnel."""
        await self.send(Kind.BEAT, 0)

    async def keep_alive(self) -> None:
        """Send heartbeats until the tunnel is closed."""
        with suppress(Exception):  # The reader of the tunnel reports the failure
            while True:
                await self.beat()
                await asyncio.sleep(HEARTBEAT_SECONDS)

    async def send(self, kind: Kind, number: int, content: bytes = b"") -> None:
        """Send one message. Raises ConnectionError if the tunnel is closed or the other end does not read."""
        try:
            async with asyncio.timeout(SILENT_SECONDS), self._sending:
                if self.closed:
                    raise ConnectionResetError("the tunnel is closed")
                await self._write(_HEAD.pack(kind, number) + content)
        except TimeoutError:
            self.close()
            raise ConnectionResetError("the other end of the tunnel has stopped reading") from None

    def hear(self, message: bytes) -> None:
        """Process a message from the other end. Raises InvalidMessage if it is invalid or the tunnel is closed."""
        if self.closed:
            raise InvalidMessage("the tunnel is closed")
        try:
            kind, number = _HEAD.unpack_from(message)
            self._hear(Kind(kind), number, message[_HEAD.size :])
        except (struct.error, ValueError) as error:
            raise InvalidMessage(str(error)) from None

    def _hear(self, kind: Kind, number: int, content: bytes) -> None:
        if kind is Kind.OPEN:
            self._opened(number, _COUNT.unpack(content)[0])
        elif kind is not Kind.BEAT and (stream := self._streams.get(number)) is not None:
            stream.hear(kind, content)
            if kind is Kind.CLOSE:
                self.forget(stream)

    def _opened(self, number: int, port: int) -> None:
        if number in self._streams or len(self._streams) >= MAX_STREAMS:
            raise InvalidMessage("a stream was opened twice, or too many streams are open")
        stream = self._streams[number] = Stream(self, number)
        self._accept(stream, port)

    def forget(self, stream: Stream) -> None:
        """Remove a closed stream from the tunnel."""
        self._streams.pop(stream.number, None)

    def close(self) -> None:
        """Close the tunnel and abort all streams."""
        self.closed = True
        for stream in list(self._streams.values()):
            stream.break_off()
        self._streams.clear()


class Stream:
    """Byte stream in a tunnel. One task can read from it while another task writes to it."""

    def __init__(self, tunnel: Tunnel, number: int) -> None:
        self._tunnel, self.number = tunnel, number
        self._come = bytearray()
        self._read = 0
        self._ended = self._broken = self._closed = False
        self._credit = WINDOW
        self._news, self._room = asyncio.Event(), asyncio.Event()

    @property
    def is_readable(self) -> bool:
        """Return True if `read` would return without waiting."""
        return bool(self._come) or self._ended or self._broken

    async def read(self, most: int) -> bytes:
        """Wait for data and return it, or return b"" at the end. Raises ConnectionResetError if the stream was
        aborted.
        """
        while not self.is_readable:
            self._news.clear()
            await self._news.wait()
        if not self._come and self._broken and not self._ended:
            raise ConnectionResetError("the tunnel was closed")
        data = bytes(self._come[:most])
        del self._come[: len(data)]
        await self._grant(len(data))
        return data

    async def _grant(self, count: int) -> None:
        self._read += count
        if self._read >= WINDOW // 2 and not (self._closed or self._broken or self._ended):
            granted, self._read = self._read, 0
            await self._tunnel.send(Kind.CREDIT, self.number, _COUNT.pack(granted))

    async def write(self, data: bytes) -> None:
        """Send data as far as the flow-control window allows. Raises ConnectionError if the stream is closed."""
        rest = memoryview(data)
        while rest:
            while not self._credit and not (self._broken or self._closed):
                self._room.clear()
                await self._room.wait()
            if self._broken or self._closed:
                raise BrokenPipeError("the stream is closed")
            piece = rest[: min(PIECE, self._credit)]
            self._credit -= len(piece)
            rest = rest[len(piece) :]
            await self._tunnel.send(Kind.DATA, self.number, bytes(piece))

    async def end(self) -> None:
        """Announce to the other end that this end sends no more data on the stream."""
        if not (self._broken or self._closed):
            await self._tunnel.send(Kind.END, self.number)

    async def close(self) -> None:
        """Close the stream for reading and for writing."""
        if self._closed:
            return
        self._closed = True
        self._room.set()
        self._tunnel.forget(self)
        if not (self._broken or self._tunnel.closed):
            await self._tunnel.send(Kind.CLOSE, self.number)

    def hear(self, kind: Kind, content: bytes) -> None:
        """Process a received message that belongs to this stream."""
        if kind is Kind.DATA:
            self._come += content
            if len(self._come) > WINDOW or self._ended:
                raise InvalidMessage("a stream exceeds its window or continues after its end")
        elif kind is Kind.CREDIT:
            self._credit += _COUNT.unpack(content)[0]
            if self._credit > WINDOW:
                raise InvalidMessage("a stream was granted more credit than its window")
            self._room.set()
        else:
            self._ended = True
            self._broken = self._broken or kind is Kind.CLOSE
            self._room.set()
        self._news.set()

    def break_off(self) -> None:
        """Abort the stream, and wake the tasks that read from it or write to it."""
        self._broken = True
        self._news.set()
        self._room.set()


async def relay_streams(one: Stream, other: Stream) -> None:
    """Forward data between two streams in both directions. When one of them ends, close both."""

    async def passed(source: Stream, to: Stream) -> None:
        while data := await source.read(PIECE):
            await to.write(data)
        await to.end()

    await run_until_first(passed(one, other), passed(other, one))
    for stream in (one, other):
        with suppress(ConnectionError):
            await stream.close()


async def relay_connection(stream: Stream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Forward data between a stream and a network connection in both directions until one of them ends."""

    async def out() -> None:
        while data := await reader.read(PIECE):
            await stream.write(data)
        await stream.end()

    async def back() -> None:
        while data := await stream.read(PIECE):
            writer.write(data)
            await writer.drain()

    await run_until_first(out(), back())


async def run_until_first(*several: Coroutine[Any, Any, None]) -> None:
    """Wait until the first coroutine finishes or fails, then cancel the others."""
    tasks = [asyncio.ensure_future(one) for one in several]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
