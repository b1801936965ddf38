"""Output of a program: reading at a limited rate, and storage of the first and the last megabytes."""

from __future__ import annotations

import collections
import os
import time
from collections.abc import Callable, Iterable, Sequence

#: Size in bytes of the stored start and of the stored end of a program's output.
FIRST_BYTES, LAST_BYTES = 1 << 20, 8 << 20
#: Maximum read rate per program in bytes per second. A faster program is slowed down.
RATE_BYTES = 10 << 20
#: Maximum size of one read in bytes.
_READ_BYTES = 1 << 16
#: Minimum size in bytes of a chunk in the stored end of the output.
_PIECE = 1 << 12


class Log:
    """Buffer of the first and the last bytes of a stream, with a line about dropped bytes between them."""

    def __init__(self, first: int = FIRST_BYTES, last: int = LAST_BYTES) -> None:
        self._room, self._last = first, last
        self._piece = min(_PIECE, last // 64)
        self._head = bytearray()
        #: Chunks of the stored end of the output. Small writes are joined, so that there are few chunks.
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
        """Return the stored bytes."""
        return b"".join([self._head, self._gap(), *self.tail])

    def _gap(self) -> bytes:
        return b"\n[%d bytes were dropped here]\n" % self.dropped_bytes if self.dropped_bytes else b""

    def kept_ranges(self) -> list[tuple[int, int, int]]:
        """Return (start, end, shift) of each stored range, where shift is the difference to its offset in `content`."""
        begin = self.total_bytes - self._tail_bytes
        head = begin - self.dropped_bytes
        return [(0, head, 0), (begin, self.total_bytes, len(self._gap()) - self.dropped_bytes)]

    def after(self, offset: int, most: int) -> tuple[int, bytes]:
        """Return stored bytes from an offset on, at most `most`, with the offset of the first one."""
        (_, head, _), (begin, _, _) = self.kept_ranges()
        if offset < head:
            return offset, bytes(self._head[offset : offset + most])
        offset = max(offset, begin)
        return offset, b"".join(self.tail)[offset - begin : offset - begin + most]


class Drain:
    """Reader of pipes, which reads in the caller's thread until all writers have closed them.

    `sink` receives the index of a pipe and its data. `rate` is in bytes per second.
    """

    def __init__(self, pipes: Sequence[int], sink: Callable[[int, bytes], None], rate: int = RATE_BYTES) -> None:
        self._numbers = {pipe: number for number, pipe in enumerate(pipes)}
        self._sink, self._rate = sink, rate
        #: Monotonic time at which the next read is allowed.
        self._free_at = 0.0

    @property
    def open(self) -> bool:
        """Return True if a pipe still has writers."""
        return bool(self._numbers)

    def pause(self) -> float:
        """Return the seconds until the next read is allowed by the rate limit."""
        return max(0.0, self._free_at - time.monotonic())

    def pipes(self) -> Iterable[int]:
        """Return the pipes to wait for, or none during a pause."""
        return () if self.pause() else tuple(self._numbers)

    def read(self, pipe: int) -> None:
        """Read up to 64 KiB from a pipe into the sink. Close the pipe at its end."""
        try:
            data = os.read(pipe, _READ_BYTES)
        except BlockingIOError:  # The program has read its own output
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
        """Close the remaining pipes. A process outside of the program can still hold their other ends."""
        for pipe in tuple(self._numbers):
            self._close(pipe)
