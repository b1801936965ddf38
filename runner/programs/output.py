"""Output of a program. It is read at a limited rate, and its first and last megabytes are stored."""

from __future__ import annotations

import collections
import os
import time
from collections.abc import Callable, Iterable, Sequence

#: Number of bytes that are stored from the start and from the end of a program's output.
FIRST_BYTES, LAST_BYTES = 1 << 20, 8 << 20
#: Maximum read rate in bytes per second for one program. The limit slows down faster programs.
RATE_BYTES = 10 << 20
#: Maximum number of bytes per read.
_READ_BYTES = 1 << 16
#: Size in bytes up to which small writes are joined at the end of the stored output.
_PIECE = 1 << 12


class Log:
    """Buffer with the first and the last bytes of a stream. A line between them reports the number of dropped bytes."""

    def __init__(self, first: int = FIRST_BYTES, last: int = LAST_BYTES) -> None:
        self._room, self._last = first, last
        self._piece = min(_PIECE, last // 64)
        self._head = bytearray()
        #: Chunks of the last bytes. Small writes are joined to keep the number of chunks low.
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
        """Return the stored bytes, with a line that reports dropped bytes."""
        return b"".join([self._head, self._gap(), *self.tail])

    def _gap(self) -> bytes:
        return b"\n[%d bytes were dropped here]\n" % self.dropped_bytes if self.dropped_bytes else b""

    def kept_ranges(self) -> list[tuple[int, int, int]]:
        """Return (start, end, shift) for each stored range of the stream.

        `shift` is the difference between an offset in the stream and in `content`.
        """
        begin = self.total_bytes - self._tail_bytes
        head = begin - self.dropped_bytes
        return [(0, head, 0), (begin, self.total_bytes, len(self._gap()) - self.dropped_bytes)]

    def after(self, offset: int, most: int) -> tuple[int, bytes]:
        """Return up to `most` stored bytes from an offset in the stream, and the offset of the first returned byte."""
        (_, head, _), (begin, _, _) = self.kept_ranges()
        if offset < head:
            return offset, bytes(self._head[offset : offset + most])
        offset = max(offset, begin)
        return offset, b"".join(self.tail)[offset - begin : offset - begin + most]


class Drain:
    """Reader of several pipes. It reads in the caller's thread until all writers have closed the pipes.

    `sink` receives the index of a pipe and its data. `rate` is in bytes per second.
    """

    def __init__(self, pipes: Sequence[int], sink: Callable[[int, bytes], None], rate: int = RATE_BYTES) -> None:
        self._numbers = {pipe: number for number, pipe in enumerate(pipes)}
        self._sink, self._rate = sink, rate
        #: Monotonic time at which the rate limit allows the next read.
        self._free_at = 0.0

    @property
    def open(self) -> bool:
        """Return True if any pipe is still open for writing."""
        return bool(self._numbers)

    def pause(self) -> float:
        """Return the seconds until the rate limit allows the next read."""
        return max(0.0, self._free_at - time.monotonic())

    def pipes(self) -> Iterable[int]:
        """Return the pipes that can be read now. The list is empty while the rate limit forbids reads."""
        return () if self.pause() else tuple(self._numbers)

    def read(self, pipe: int) -> None:
        """Read up to 64 KiB from a pipe and pass the data to the sink. Close the pipe at end of file."""
        try:
            data = os.read(pipe, _READ_BYTES)
        except BlockingIOError:  # The program has read from its own pipe
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
        """Close the remaining pipes, which a process outside of the program can still have open."""
        for pipe in tuple(self._numbers):
            self._close(pipe)
