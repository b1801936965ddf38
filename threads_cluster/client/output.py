"""Write a unit's output in order and without duplicates: the live stream, then the rest from the stored log."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Stream: TypeAlias = Literal["stdout", "stderr"]

#: Size in bytes of the start of a truncated log. A line with the number of dropped bytes follows.
FIRST_BYTES = 1 << 20
#: Minimum size in bytes of a truncated log. Smaller logs are complete.
LEAST_CUT_BYTES = 8 << 20
#: Number of bytes to compare, to detect whether a log belongs to the same run as the displayed output.
COMPARED_BYTES = 64 << 10
_DROPPED = re.compile(rb"\n\[([0-9]{1,18}) bytes were dropped here\]\n")
#: Maximum length in bytes of the line with the number of dropped bytes.
DROPPED_LINE_BYTES = 64


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A piece of live output."""

    #: ID of one start of the program.
    run: str
    #: Byte offset in the program's output on both streams.
    offset: int
    stream: Stream
    data: bytes


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Number of bytes that a log lacks in its middle, and length of the line with that number."""

    dropped: int
    line: int


class Shown:
    """Tracks how much of a unit's output was displayed, so that output is in order and without duplicates.

    With `skips`, output after a gap is displayed at once. Otherwise it waits for the missing output.
    """

    def __init__(self, write: Callable[[Stream, bytes], None], *, skips: bool = False) -> None:
        self._write, self._skips = write, skips
        #: Number of displayed or skipped bytes of both streams.
        self.place = 0
        #: The first displayed bytes, up to COMPARED_BYTES.
        self.head = b""
        self.run = ""
        #: Number of skipped bytes.
        self.skipped = 0
        #: True if output was held back because earlier output is missing.
        self.waits = False

    def begins_again(self, piece: Piece) -> bool:
        """Return True if a piece belongs to another run of the program than the displayed output."""
        return bool(self.run) and piece.run != self.run

    def add(self, piece: Piece) -> None:
        """Display the new part of a piece, or the whole piece if it belongs to another run of the program.

        Bytes that a resumed connection repeats are omitted.
        """
        if self.begins_again(piece):
            self.forget()
        self.run = piece.run
        ahead = piece.offset - self.place
        if ahead > 0 and not self._skips:
            self.waits = True
            return
        if ahead > 0:
            self.skipped += ahead
            self.place = piece.offset
        self.show(piece.stream, piece.data[max(0, -ahead) :])

    def show(self, stream: Stream, data: bytes) -> None:
        """Display the next bytes of the output."""
        if data:
            if self.place == len(self.head) < COMPARED_BYTES:
                self.head = (self.head + data)[:COMPARED_BYTES]
            self.place += len(data)
            self._write(stream, data)

    def forget(self) -> None:
        """Reset, because another run of the program has other output."""
        self.place, self.head, self.waits, self.skipped = 0, b"", False, 0


def cut_of(line: bytes, size: int) -> Cut | None:
    """Return the dropped part of a log of `size` bytes, from the line at FIRST_BYTES, or None for a complete log."""
    match = _DROPPED.match(line) if size >= LEAST_CUT_BYTES else None
    return Cut(dropped=int(match[1]), line=match.end()) if match else None


def written(size: int, cut: Cut | None) -> int:
    """Return how many bytes the program wrote, from the size of its log."""
    return size if cut is None else size - cut.line + cut.dropped


def ranges(place: int, size: int, cut: Cut | None) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) ranges of a log that contain the output after the first `place` bytes."""
    if cut is None:
        yield place, size
        return
    if place < FIRST_BYTES:
        yield place, FIRST_BYTES
    begins = FIRST_BYTES + cut.line
    yield begins + max(0, place - FIRST_BYTES - cut.dropped), size


def lost(place: int, cut: Cut | None) -> int:
    """Return how many bytes after the first `place` bytes are missing from the log."""
    return 0 if cut is None else min(cut.dropped, max(0, FIRST_BYTES + cut.dropped - place))


def parted(first: int, data: bytes, errors: Sequence[tuple[int, int]]) -> Iterator[tuple[Stream, bytes]]:
    """Split bytes of a log that start at `first` by stream. `errors` lists (first, length) of stderr, in order."""
    at, end = first, first + len(data)
    for start, length in errors:
        if start >= end:
            break
        if start + length <= at:
            continue
        if start > at:
            yield "stdout", data[at - first : start - first]
            at = start
        until = min(start + length, end)
        yield "stderr", data[at - first : until - first]
        at = until
    if at < end:
        yield "stdout", data[at - first :]
