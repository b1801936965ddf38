"""Recorder of one unit's output, which also serves users who follow the output."""

from __future__ import annotations

import json
import threading
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

from runner.programs.output import FIRST_BYTES, LAST_BYTES, Log

#: Maximum number of recorded stderr ranges. Further ranges are merged into the last one.
MOST_RANGES = 100_000
#: Number of bytes from the end of a program's stderr that its error report contains.
TAIL_BYTES = 1024


class Recorder:
    """Recorder of a program's output. Offsets count bytes of stdout and stderr together. Thread-safe."""

    def __init__(self, first: int = FIRST_BYTES, last: int = LAST_BYTES) -> None:
        self._log = Log(first, last)
        self._lock = threading.Lock()
        #: Start offsets of the stderr ranges in the output.
        self._starts: list[int] = []
        self._ends: list[int] = []

    def __call__(self, stream: int, data: bytes) -> None:
        """Record data of stdout (`stream` is 0) or stderr (`stream` is 1)."""
        with self._lock:
            if stream:
                self._mark(self._log.total_bytes, len(data))
            self._log.add(data)

    def _mark(self, start: int, size: int) -> None:
        if self._ends and (self._ends[-1] == start or len(self._ends) >= MOST_RANGES):
            self._ends[-1] = start + size
        else:
            self._starts.append(start)
            self._ends.append(start + size)

    @property
    def total_bytes(self) -> int:
        return self._log.total_bytes

    def tail(self) -> str:
        """Return the last bytes of stderr as text, or of stdout if nothing was written to stderr."""
        with self._lock:
            stored = [self._log.after(start, end - start) for start, end, _ in self._log.kept_ranges()]
            pieces = [piece for start, data in stored for piece in self._pieces(start, data)]
        errors = b"".join(data for stream, data in pieces if stream == "e")
        return (errors or b"".join(data for _, data in pieces))[-TAIL_BYTES:].decode(errors="replace")

    def since(self, offset: int, most: int) -> tuple[int, list[tuple[str, bytes]]]:
        """Return up to `most` bytes of stored output from an offset on, as an offset and chunks of stdout and
        stderr.
        """
        with self._lock:
            start, data = self._log.after(offset, most)
            return start, list(self._pieces(start, data))

    def _pieces(self, start: int, data: bytes) -> Iterator[tuple[str, bytes]]:
        at, end = start, start + len(data)
        number = max(0, bisect_right(self._starts, at) - 1)
        while at < end:
            while number < len(self._ends) and self._ends[number] <= at:
                number += 1
            is_error = number < len(self._starts) and self._starts[number] <= at
            if is_error:
                upto = min(end, self._ends[number])
            else:
                upto = min(end, self._starts[number]) if number < len(self._starts) else end
            yield ("e" if is_error else "o"), data[at - start : upto - start]
            at = upto

    def write(self, folder: Path, unit: int) -> None:
        """Write a unit's log and its stderr ranges to a folder. If there was no output, write nothing."""
        if not self.total_bytes:
            return
        folder.mkdir(parents=True, exist_ok=True)
        (folder / str(unit)).write_bytes(self._log.content())
        if ranges := self.stderr():
            (folder / f"{unit}.streams").write_text(json.dumps(ranges, separators=(",", ":")))

    def stderr(self) -> list[list[int]]:
        """Return [offset, length] for each range of stderr in the stored output."""
        ranges = []
        for low, high, shift in self._log.kept_ranges():
            for start, end in zip(self._starts, self._ends, strict=True):
                if max(start, low) < min(end, high):
                    ranges.append([max(start, low) + shift, min(end, high) - max(start, low)])
        return ranges
