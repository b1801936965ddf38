"""Functions that write a unit's output in order and without duplicates, from the live stream and the stored log."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Stream: TypeAlias = Literal["stdout", "stderr"]

#: Number of bytes at the start of a truncated log. A line about dropped bytes follows.
FIRST_BYTES = 1 << 20
#: Minimum size in bytes of a truncated log. Smaller logs are complete.
LEAST_CUT_BYTES = 8 << 20
#: Number of bytes that are compared to detect whether a log belongs to the displayed run of a program.
COMPARED_BYTES = 64 << 10
_DROPPED = re.compile(rb"\n\[([0-9]{1,18}) bytes were dropped here\]\n")
#: Maximum length in bytes of the line about dropped bytes.
DROPPED_LINE_BYTES = 64


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Piece of the live output of a program."""

    #: ID of one run of the program.
    run: str
    #: Byte offset in the program's output, which counts stdout and stderr together.
    offset: int
    stream: Stream
    data: bytes


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Dropped part of a log: number of dropped bytes, and length of the line about them."""

    dropped: int
    line: int


class Shown:
    """Record of how much of a unit's output was displayed. It keeps the output in order and without duplicates.

    With `skips`, output after a gap is displayed at once. Otherwise it waits for the missing output.
    """

    def __init__(self, write: Callable[[Stream, bytes], None], *, skips: bool = False) -> None:
        self._write, self._skips = write, skips
        #: Number of bytes that were displayed or skipped.
        self.place = 0
        #: First displayed bytes, at most COMPARED_BYTES.
        self.head = b""
        self.run = ""
        #: Number of bytes that were skipped.
        self.skipped = 0
        #: True if output is held back because earlier output is missing.
        self.waits = False

    def begins_again(self, piece: Piece) -> bool:
        """Return True if a piece of output belongs to another run of the program than the displayed output."""
        return bool(self.run) and piece.run != self.run

    def add(self, piece: Piece) -> None:
        """Display the new part of a piece of output. If it belongs to another run of the program, display all of it.

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
        """Display the next bytes of the unit's output."""
        if data:
            if self.place == len(self.head) < COMPARED_BYTES:
                self.head = (self.head + data)[:COMPARED_BYTES]
            self.place += len(data)
            self._write(stream, data)

    def forget(self) -> None:
        """Forget the displayed output, because another run of the program has other output."""
        self.place, self.head, self.waits, self.skipped = 0, b"", False, 0


def cut_of(line: bytes, size: int) -> Cut | None:
    """Return the dropped part of a log of `size` bytes, or None if the log is complete.

    `line` contains the bytes from FIRST_BYTES on.
    """
    match = _DROPPED.match(line) if size >= LEAST_CUT_BYTES else None
    return Cut(dropped=int(match[1]), line=match.end()) if match else None


def written(size: int, cut: Cut | None) -> int:
    """Return the number of bytes that the program wrote, computed from the size of its log."""
    return size if cut is None else size - cut.line + cut.dropped


def ranges(place: int, size: int, cut: Cut | None) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a log, as (start, stop), that contain the output after the first `place` bytes."""
    if cut is None:
        yield place, size
        return
    if place < FIRST_BYTES:
        yield place, FIRST_BYTES
    begins = FIRST_BYTES + cut.line
    yield begins + max(0, place - FIRST_BYTES - cut.dropped), size


def lost(place: int, cut: Cut | None) -> int:
    """Return the number of bytes after the first `place` bytes that the log lacks."""
    return 0 if cut is None else min(cut.dropped, max(0, FIRST_BYTES + cut.dropped - place))


def parted(first: int, data: bytes, errors: Sequence[tuple[int, int]]) -> Iterator[tuple[Stream, bytes]]:
    """Split bytes of a log into stdout and stderr. The bytes start at the offset `first`.

    `errors` lists (first, length) of stderr, in order.
    """
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
