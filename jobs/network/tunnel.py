"""Streams of bytes through one channel of messages, as a runner opens it to a coordinator. Both ends use this.

A message is one byte for what it is, four for the stream, and what belongs to it. Each direction of a stream has a
window, so that one that nobody reads holds up no other. Lives in one event loop.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from enum import IntEnum
from typing import Any

#: In a runner's word about a replica, the address of one that is reached through its tunnels alone.
ADDRESS = "0.0.0.0"
#: Where coordinators take tunnels in, below /api/worker/.
PATH = "tunnel"
#: Seconds between two words of the end that opened it, and after which the other end believes it gone.
BEAT_SECONDS, SILENT_SECONDS = 5.0, 20.0
_HEAD = struct.Struct(">BI")
_COUNT = struct.Struct(">I")
#: Bytes that are on their way to one stream at most, and bytes of one message.
WINDOW, PIECE = 256 << 10, 32 << 10
#: Bytes of a message at most.
MAX_MESSAGE = _HEAD.size + PIECE
#: Streams of one tunnel at once.
MOST_STREAMS = 1024


class Kind(IntEnum):
    """Sorts of messages."""

    #: It is alive.
    BEAT = 0
    #: A stream to the port that follows.
    OPEN = 1
    DATA = 2
    #: So many bytes were read: as many more may come.
    CREDIT = 3
    #: Nothing comes any more from this end.
    END = 4
    #: This end neither sends nor reads any more.
    CLOSE = 5


class Garbled(Exception):
    """Raised for what makes no sense from the other end: the tunnel is to be closed."""


#: Takes in a stream that the other end opened, to a port.
Accept = Callable[["Stream", int], None]


def _refused(stream: Stream, port: int) -> None:
    raise Garbled("the other end opened a stream, and streams are opened from here alone")


class Tunnel:
    """One end. `send` writes a message; `accept` takes in the streams that the other end opens."""

    def __init__(self, send: Callable[[bytes], Awaitable[None]], accept: Accept = _refused) -> None:
        self._write, self._accept = send, accept
        self._sending = asyncio.Lock()
        self._streams: dict[int, Stream] = {}
        self._last = 0
        self.closed = False

    async def open(self, port: int) -> Stream:
        """Open a stream to a port of the other end's host. ConnectionError where that cannot be."""
        if len(self._streams) >= MOST_STREAMS:
            raise ConnectionRefusedError(f"{MOST_STREAMS} streams are open")
        self._last += 1
        stream = self._streams[self._last] = Stream(self, self._last)
        await self.send(Kind.OPEN, stream.number, _COUNT.pack(port))
        return stream

    async def beat(self) -> None:
        """Say that this end is alive."""
        await self.send(Kind.BEAT, 0)

    async def keep_alive(self) -> None:
        """Say so again and again, until the tunnel is closed."""
        with suppress(Exception):  # that it broke is told to who reads from it
            while True:
                await self.beat()
                await asyncio.sleep(BEAT_SECONDS)

    async def send(self, kind: Kind, number: int, content: bytes = b"") -> None:
        """Send one message. ConnectionError where the tunnel is closed, as it is once nobody reads at its other end."""
        try:
            async with asyncio.timeout(SILENT_SECONDS), self._sending:
                if self.closed:
                    raise ConnectionResetError("the tunnel is closed")
                await self._write(_HEAD.pack(kind, number) + content)
        except TimeoutError:
            self.close()
            raise ConnectionResetError("the other end of the tunnel does not read") from None

    def hear(self, message: bytes) -> None:
        """Take in a message. Raises Garbled, also where the tunnel was closed meanwhile."""
        if self.closed:
            raise Garbled("the tunnel is closed")
        try:
            kind, number = _HEAD.unpack_from(message)
            self._hear(Kind(kind), number, message[_HEAD.size :])
        except (struct.error, ValueError) as error:
            raise Garbled(str(error)) from None

    def _hear(self, kind: Kind, number: int, content: bytes) -> None:
        if kind is Kind.OPEN:
            self._opened(number, _COUNT.unpack(content)[0])
        elif kind is not Kind.BEAT and (stream := self._streams.get(number)) is not None:
            stream.hear(kind, content)
            if kind is Kind.CLOSE:
                self.forget(stream)

    def _opened(self, number: int, port: int) -> None:
        if number in self._streams or len(self._streams) >= MOST_STREAMS:
            raise Garbled("a stream is opened twice, or too many are")
        stream = self._streams[number] = Stream(self, number)
        self._accept(stream, port)

    def forget(self, stream: Stream) -> None:
        """Let go of a stream that has ended."""
        self._streams.pop(stream.number, None)

    def close(self) -> None:
        """Break all streams off."""
        self.closed = True
        for stream in list(self._streams.values()):
            stream.break_off()
        self._streams.clear()


class Stream:
    """One stream. One task reads, one writes."""

    def __init__(self, tunnel: Tunnel, number: int) -> None:
        self._tunnel, self.number = tunnel, number
        self._come = bytearray()
        self._read = 0
        self._ended = self._broken = self._closed = False
        self._credit = WINDOW
        self._news, self._room = asyncio.Event(), asyncio.Event()

    @property
    def is_readable(self) -> bool:
        """Return True where a read would return at once."""
        return bool(self._come) or self._ended or self._broken

    async def read(self, most: int) -> bytes:
        """Return what has come, at least a byte; none at its end. ConnectionResetError where it broke off."""
        while not self.is_readable:
            self._news.clear()
            await self._news.wait()
        if not self._come and self._broken and not self._ended:
            raise ConnectionResetError("the tunnel broke off")
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
        """Send bytes, as far as the other end reads. ConnectionError where nobody does any more."""
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
        """Say that nothing comes any more from here."""
        if not (self._broken or self._closed):
            await self._tunnel.send(Kind.END, self.number)

    async def close(self) -> None:
        """Neither send nor read any more."""
        if self._closed:
            return
        self._closed = True
        self._room.set()
        self._tunnel.forget(self)
        if not (self._broken or self._tunnel.closed):
            await self._tunnel.send(Kind.CLOSE, self.number)

    def hear(self, kind: Kind, content: bytes) -> None:
        """Take in a message of this stream."""
        if kind is Kind.DATA:
            self._come += content
            if len(self._come) > WINDOW or self._ended:
                raise Garbled("a stream has more than its window, or goes on after its end")
        elif kind is Kind.CREDIT:
            self._credit += _COUNT.unpack(content)[0]
            if self._credit > WINDOW:
                raise Garbled("a stream has more credit than its window")
            self._room.set()
        else:
            self._ended = True
            self._broken = self._broken or kind is Kind.CLOSE
            self._room.set()
        self._news.set()

    def break_off(self) -> None:
        """Have whoever reads or writes know that the tunnel is closed."""
        self._broken = True
        self._news.set()
        self._room.set()


async def joined(one: Stream, other: Stream) -> None:
    """Pass bytes on both ways between two streams until one of them ends, and close both."""

    async def passed(source: Stream, to: Stream) -> None:
        while data := await source.read(PIECE):
            await to.write(data)
        await to.end()

    await first_of(passed(one, other), passed(other, one))
    for stream in (one, other):
        with suppress(ConnectionError):
            await stream.close()


async def passed_on(stream: Stream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass bytes on both ways between a stream and a connection until one of them ends, and all of that was sent."""

    async def out() -> None:
        while data := await reader.read(PIECE):
            await stream.write(data)
        await stream.end()

    async def back() -> None:
        while data := await stream.read(PIECE):
            writer.write(data)
            await writer.drain()

    await first_of(out(), back())


async def first_of(*several: Coroutine[Any, Any, None]) -> None:
    """Return when the first of several ends, well or not; the others are cancelled."""
    tasks = [asyncio.ensure_future(one) for one in several]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
