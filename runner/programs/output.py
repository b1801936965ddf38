"""Output of a program: read no faster than a limit, and of it kept the first megabyte and the last eight."""

from __future__ import annotations

import collections
import os
import time
from collections.abc import Callable, Iterable, Sequence

#: Bytes kept of the beginning and of the end of what a program writes.
FIRST_BYTES, LAST_BYTES = 1 << 20, 8 << 20
#: Bytes a second that are read of one program; a faster one waits.
RATE_BYTES = 10 << 20
#: Bytes of one read.
_READ_BYTES = 1 << 16
#: Bytes of a piece of the end that is kept; what is read at once may be more.
_PIECE = 1 << 12


class Log:
    """The first and the last bytes of all that was added, with a line between them that says what was dropped."""

    def __init__(self, first: int = FIRST_BYTES, last: int = LAST_BYTES) -> None:
        self._room, self._last = first, last
        self._piece = min(_PIECE, last // 64)
        self._head = bytearray()
        #: Of many bytes each, however few a program writes at once.
        self.tail: collections.deque[bytearray] = collections.deque()
        self._tail_bytes = 0
        self.total_bytes = 0
        self.dropped_bytes = 0

    def add(self, data: bytes) -> None:
        self.total_bytes += len(data)
        if self._room:
            self._head += data[: self._room]
            data, self._room = data[self._room :], max(0, self._room - len(data))
        if data:
            self._tail_bytes += len(data)
            if self.tail and len(self.tail[-1]) + len(data) <= self._piece:
                self.tail[-1] += data
            else:
                self.tail.append(bytearray(data))
            self._drop()

    def _drop(self) -> None:
        while self._tail_bytes - len(self.tail[0]) >= self._last:
            dropped = len(self.tail.popleft())
            self._tail_bytes -= dropped
            self.dropped_bytes += dropped

    def content(self) -> bytes:
        """Return what is kept."""
        return b"".join([self._head, self._gap(), *self.tail])

    def _gap(self) -> bytes:
        return b"\n[%d bytes were dropped here]\n" % self.dropped_bytes if self.dropped_bytes else b""

    def kept_ranges(self) -> list[tuple[int, int, int]]:
        """Return which bytes of all that was added are kept: from, to, and how far `content` has them later."""
        begin = self.total_bytes - self._tail_bytes
        head = begin - self.dropped_bytes
        return [(0, head, 0), (begin, self.total_bytes, len(self._gap()) - self.dropped_bytes)]

    def after(self, offset: int, most: int) -> tuple[int, bytes]:
        """Return what is kept from a byte on, at most `most` bytes: where it begins, and the bytes."""
        (_, head, _), (begin, _, _) = self.kept_ranges()
        if offset < head:
            return offset, bytes(self._head[offset : offset + most])
        offset = max(offset, begin)
        return offset, b"".join(self.tail)[offset - begin : offset - begin + most]


class Drain:
    """Reads pipes until each has no writer any more, on the thread that asks for it.

    `sink` is called with the number of the pipe and what came from it. `rate` is in bytes a second.
    """

    def __init__(self, pipes: Sequence[int], sink: Callable[[int, bytes], None], rate: int = RATE_BYTES) -> None:
        self._numbers = {pipe: number for number, pipe in enumerate(pipes)}
        self._sink, self._rate = sink, rate
        #: When it may read on, in monotonic seconds.
        self._free_at = 0.0

    @property
    def open(self) -> bool:
        """Tell whether a pipe has writers still."""
        return bool(self._numbers)

    def pause(self) -> float:
        """Return the seconds for which it must not read, having read faster than the rate."""
        return max(0.0, self._free_at - time.monotonic())

    def pipes(self) -> Iterable[int]:
        """Return the pipes that are worth waiting for; none during a pause."""
        return () if self.pause() else tuple(self._numbers)

    def read(self, pipe: int) -> None:
        """Pass on what one pipe holds, at most 64 KiB; close it where it has ended."""
        try:
            data = os.read(pipe, _READ_BYTES)
        except BlockingIOError:  # the program was faster: it reads what it wrote
            return
        if data:
            self._sink(self._numbers[pipe], data)
            self._free_at = max(self._free_at, time.monotonic()) + len(data) / self._rate
        else:
            self._close(pipe)

    def _close(self, pipe: int) -> None:
        del self._numbers[pipe]
        os.close(pipe)

    def close(self) -> None:
        """Close what is open still: somebody outside holds its other end."""
        for pipe in tuple(self._numbers):
            self._close(pipe)
