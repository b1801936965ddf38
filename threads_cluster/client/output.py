"""Output of a unit, written once and in order: first as it comes live, then the rest of what the cluster kept."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Stream: TypeAlias = Literal["stdout", "stderr"]

#: Bytes of the beginning that a log keeps of a program that wrote too much; a line that says how much follows them.
FIRST_BYTES = 1 << 20
#: Logs of fewer bytes are whole.
LEAST_CUT_BYTES = 8 << 20
#: Bytes from which on it is known whether a log is that of the program whose output was shown.
COMPARED_BYTES = 64 << 10
_DROPPED = re.compile(rb"\n\[([0-9]{1,18}) bytes were dropped here\]\n")
#: Bytes at FIRST_BYTES that may hold that line.
DROPPED_LINE_BYTES = 64


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Some output that was sent live."""

    #: The same for all that one start of the program wrote.
    run: str
    #: Place in all that it wrote on both streams.
    offset: int
    stream: Stream
    data: bytes


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Bytes in the middle that a log does not keep, and the length of the line that says so."""

    dropped: int
    line: int


class Shown:
    """Keeps how much of a unit's output was shown, so that nothing is shown twice or out of order.

    `skips`: output behind a gap is shown at once, else only when what is before it has been.
    """

    def __init__(self, write: Callable[[Stream, bytes], None], *, skips: bool = False) -> None:
        self._write, self._skips = write, skips
        #: Bytes of both streams that were shown, or skipped.
        self.place = 0
        #: The first of them, at most COMPARED_BYTES.
        self.head = b""
        self.run = ""
        #: Bytes that were skipped.
        self.skipped = 0
        #: Something came that was not shown, since what is before it had not come.
        self.waits = False

    def begins_again(self, piece: Piece) -> bool:
        """Tell whether a piece is of another run of the program than what was shown."""
        return bool(self.run) and piece.run != self.run

    def add(self, piece: Piece) -> None:
        """Show what is new of a piece; another run of the program is shown from its start.

        What a resumed connection sends again is left out.
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
        """Show the bytes that come next."""
        if data:
            if self.place == len(self.head) < COMPARED_BYTES:
                self.head = (self.head + data)[:COMPARED_BYTES]
            self.place += len(data)
            self._write(stream, data)

    def forget(self) -> None:
        """Begin again: another run of the program has other output."""
        self.place, self.head, self.waits, self.skipped = 0, b"", False, 0


def cut_of(line: bytes, size: int) -> Cut | None:
    """Return what a log of `size` bytes lacks, by its bytes at FIRST_BYTES; None for one that is whole."""
    match = _DROPPED.match(line) if size >= LEAST_CUT_BYTES else None
    return Cut(dropped=int(match[1]), line=match.end()) if match else None


def written(size: int, cut: Cut | None) -> int:
    """Return how many bytes the program wrote whose log has `size` bytes."""
    return size if cut is None else size - cut.line + cut.dropped


def ranges(place: int, size: int, cut: Cut | None) -> Iterator[tuple[int, int]]:
    """Yield the parts of a log, as (first, behind the last), that come after the first `place` bytes of the output."""
    if cut is None:
        yield place, size
        return
    if place < FIRST_BYTES:
        yield place, FIRST_BYTES
    begins = FIRST_BYTES + cut.line
    yield begins + max(0, place - FIRST_BYTES - cut.dropped), size


def lost(place: int, cut: Cut | None) -> int:
    """Return how many bytes that come after the first `place` ones no log has."""
    return 0 if cut is None else min(cut.dropped, max(0, FIRST_BYTES + cut.dropped - place))


def parted(first: int, data: bytes, errors: Sequence[tuple[int, int]]) -> Iterator[tuple[Stream, bytes]]:
    """Yield the bytes of a log from `first` on by their stream; `errors`: (first, length) of stderr, in order."""
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
