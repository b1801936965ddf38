"""Output of a program: read no faster than a limit, and of it kept the first megabyte and the last eight."""

from __future__ import annotations

import collections
import os
import selectors
import threading
import time
from collections.abc import Callable

#: Bytes kept of the beginning and of the end of what a program writes.
FIRST_BYTES, LAST_BYTES = 1 << 20, 8 << 20
#: Bytes a second that are read of one program; a faster one waits.
RATE_BYTES = 10 << 20
#: Bytes of one read.
_READ_BYTES = 1 << 16


class Log:
    """The first and the last bytes of all that was added, with a line between them that says what was dropped."""

    def __init__(self, first: int = FIRST_BYTES, last: int = LAST_BYTES) -> None:
        self._room, self._last = first, last
        self._head: list[bytes] = []
        self._tail: collections.deque[bytes] = collections.deque()
        self._tail_bytes = 0
        self.total_bytes = 0
        self.dropped_bytes = 0

    def add(self, data: bytes) -> None:
        self.total_bytes += len(data)
        if self._room:
            self._head.append(data[: self._room])
            data = data[self._room :]
            self._room -= len(self._head[-1])
        if data:
            self._tail.append(data)
            self._tail_bytes += len(data)
            self._drop()

    def _drop(self) -> None:
        while self._tail_bytes - len(self._tail[0]) >= self._last:
            dropped = len(self._tail.popleft())
            self._tail_bytes -= dropped
            self.dropped_bytes += dropped

    def content(self) -> bytes:
        """Return what is kept."""
        gap = b"\n[%d bytes were dropped here]\n" % self.dropped_bytes if self.dropped_bytes else b""
        return b"".join([*self._head, gap, *self._tail])


class Drain(threading.Thread):
    """Reads pipes until each has no writer any more, or `finish` gives up on one that somebody outside holds open.

    `sink` is called with the number of the pipe and what came from it, on this thread.
    """

    def __init__(self, pipes: list[int], sink: Callable[[int, bytes], None], rate: int = RATE_BYTES) -> None:
        super().__init__(name="drain", daemon=True)
        self._pipes, self._sink, self._rate = pipes, sink, rate
        self._give_up = False
        self.start()

    def run(self) -> None:
        with selectors.DefaultSelector() as selector:
            for number, pipe in enumerate(self._pipes):
                selector.register(pipe, selectors.EVENT_READ, number)
            while selector.get_map() and not self._give_up:
                self._read(selector)
        for pipe in self._pipes:
            os.close(pipe)

    def _read(self, selector: selectors.BaseSelector) -> None:
        started, taken = time.monotonic(), 0
        for key, _ in selector.select(timeout=0.1):
            data = os.read(key.fd, _READ_BYTES)
            if data:
                self._sink(key.data, data)
                taken += len(data)
            else:
                selector.unregister(key.fd)
        time.sleep(max(0.0, taken / self._rate - (time.monotonic() - started)))

    def finish(self, seconds: float) -> None:
        """Wait for the end of the pipes, at most for some seconds."""
        self.join(seconds)
        self._give_up = True
        self.join()
