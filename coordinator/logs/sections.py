"""Byte ranges of a log that belong to stdout or to stderr. No I/O."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator

#: Maximum size in bytes of the list of stderr ranges. With a longer list, the streams of a log cannot be separated.
MAX_LIST = 4 << 20
#: Maximum number of digits of a number in the list.
_MOST_DIGITS = 15
#: Maximum gap in bytes between two ranges that are read together.
#: Maximum number of bytes read for one response.
_GAP, MOST_READ = 64 << 10, 16 << 20


class Sections:
    """Ordered ranges of a log that form one stream. Stored in arrays, because a log can have half a million ranges."""

    def __init__(self) -> None:
        self._starts, self._ends = array("Q"), array("Q")
        #: Offset of each range within the stream.
        self._before = array("Q")
        self.bytes = 0

    def add(self, lo: int, hi: int) -> None:
        """Append a range. An empty range is ignored."""
        if lo < hi:
            self._starts.append(lo)
            self._ends.append(hi)
            self._before.append(self.bytes)
            self.bytes += hi - lo

    def __len__(self) -> int:
        return len(self._starts)

    def has(self, offset: int) -> bool:
        """Return True if the byte at an offset of the log belongs to the stream."""
        number = bisect_right(self._starts, offset) - 1
        return number >= 0 and offset < self._ends[number]

    def within(self, start: int, limit: int) -> Iterator[tuple[int, int]]:
        """Yield the log's ranges for up to `limit` bytes of the stream, starting at offset `start`."""
        number = max(0, bisect_right(self._before, start) - 1)
        while limit > 0 and number < len(self):
            lo = self._starts[number] + max(0, start - self._before[number])
            hi = min(self._ends[number], lo + limit)
            if lo < hi:
                yield lo, hi
                limit -= hi - lo
            number += 1


def whole_log(size: int) -> Sections:
    """Return the single range of a whole log."""
    made = Sections()
    made.add(0, size)
    return made


def split(text: bytes, size: int) -> tuple[Sections, Sections]:
    """Split a log into the ranges of stdout and stderr. Raise ValueError if its list of stderr ranges is invalid."""
    stdout, stderr, at = Sections(), Sections(), 0
    for offset, length in _rows(text):
        if offset < at or length < 1 or offset + length > size:
            raise ValueError(f"[{offset}, {length}] is out of order or outside the log")
        stdout.add(at, offset)
        at = offset + length
        stderr.add(offset, at)
    stdout.add(at, size)
    return stdout, stderr


def _rows(text: bytes) -> Iterator[tuple[int, int]]:
    """Yield the pairs of a JSON list. A JSON parser would need about 100 bytes of memory per byte of text."""
    packed = text.translate(None, b" \t\r\n")
    if packed == b"[]":
        return
    if packed[:2] != b"[[" or packed[-2:] != b"]]":
        raise ValueError("the text is not a list of [offset, length]")
    for row in packed[2:-2].split(b"],["):
        offset, _, length = row.partition(b",")
        if not (offset.isdigit() and length.isdigit()) or len(row) > 2 * _MOST_DIGITS:
            raise ValueError("an item of the list is not [offset, length]")
        yield int(offset), int(length)


def group_ranges(ranges: Iterator[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Yield groups of nearby ranges that are read together.

    Except for the first range, they have at most MOST_READ bytes.
    """
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
