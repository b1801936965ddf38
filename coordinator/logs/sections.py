"""Sections of a log: the bytes that were stdout, or stderr, as ranges of the log. Pure."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator

#: Bytes of the list of what was stderr, beyond which the streams of a log are not told apart.
MAX_LIST = 4 << 20
#: Digits of a number in it: more than the bytes of any log.
_MOST_DIGITS = 15
#: Bytes between two ranges that are read rather than skipped, and bytes that one answer reads at most.
_GAP, MOST_READ = 64 << 10, 16 << 20


class Sections:
    """Ranges of a log, in order, that together are one stream. Arrays, since a log may have half a million of them."""

    def __init__(self) -> None:
        self._starts, self._ends = array("Q"), array("Q")
        #: Bytes of the stream before each range.
        self._before = array("Q")
        self.bytes = 0

    def add(self, lo: int, hi: int) -> None:
        """Add a range behind those that there are; an empty one is none."""
        if lo < hi:
            self._starts.append(lo)
            self._ends.append(hi)
            self._before.append(self.bytes)
            self.bytes += hi - lo

    def __len__(self) -> int:
        return len(self._starts)

    def within(self, start: int, limit: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges of the log that have the bytes of the stream from `start` on, at most `limit`."""
        number = max(0, bisect_right(self._before, start) - 1)
        while limit > 0 and number < len(self):
            lo = self._starts[number] + max(0, start - self._before[number])
            hi = min(self._ends[number], lo + limit)
            if lo < hi:
                yield lo, hi
                limit -= hi - lo
            number += 1


def whole(size: int) -> Sections:
    """Return all of a log."""
    made = Sections()
    made.add(0, size)
    return made


def split(text: bytes, size: int) -> tuple[Sections, Sections]:
    """Return stdout and stderr of a log of this size, by its list of what was stderr. ValueError for no such list."""
    stdout, stderr, at = Sections(), Sections(), 0
    for offset, length in _rows(text):
        if offset < at or length < 1 or offset + length > size:
            raise ValueError(f"[{offset}, {length}] is not in order, or not in the log")
        stdout.add(at, offset)
        at = offset + length
        stderr.add(offset, at)
    stdout.add(at, size)
    return stdout, stderr


def _rows(text: bytes) -> Iterator[tuple[int, int]]:
    """Yield the pairs of a JSON list of them. As JSON it would take a hundred bytes of memory for each of its own."""
    packed = text.translate(None, b" \t\r\n")
    if packed == b"[]":
        return
    if packed[:2] != b"[[" or packed[-2:] != b"]]":
        raise ValueError("it is no list of [offset, length]")
    for row in packed[2:-2].split(b"],["):
        offset, _, length = row.partition(b",")
        if not (offset.isdigit() and length.isdigit()) or len(row) > 2 * _MOST_DIGITS:
            raise ValueError("it has a row that is not [offset, length]")
        yield int(offset), int(length)


def joined(ranges: Iterator[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Yield groups of ranges that are read at once, together at most MOST_READ bytes beyond the first range."""
    group: list[tuple[int, int]] = []
    read = 0
    for lo, hi in ranges:
        if group and lo - group[-1][1] > _GAP:
            yield group
            read += group[-1][1] - group[0][0]
            group = []
        if read + hi - (group[0][0] if group else lo) > MOST_READ and (group or read):
            break
        group.append((lo, hi))
    if group:
        yield group
