"""Metadata of a GGUF file, from its first bytes. Where they are broken or cut off, what was read till there counts."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

#: Bytes of a file that are read for it. What describes a model's shape stands before the words that it knows.
MOST_BYTES = 1 << 20
#: Entries of a list that are kept; longer ones are passed over.
MOST_ITEMS = 4096
_MOST_ENTRIES, _MOST_TEXT = 4096, 1 << 16
_HEAD = struct.Struct("<4sIQQ")
_VERSIONS = (2, 3)
_TEXT, _LIST = 8, 9
_NUMBERS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}


class _Incomplete(Exception):
    """There are no more bytes, or they are no GGUF."""


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def number(self, sort: int) -> Any:
        """Return the next number of a sort."""
        shape = _NUMBERS.get(sort)
        if shape is None:
            raise _Incomplete
        size = struct.calcsize(shape)
        return struct.unpack(shape, self._take(size))[0]

    def text(self) -> str:
        """Return the next text; of a longer one than names have, nothing."""
        size = self.number(10)
        taken = self._take(size)
        return taken.decode(errors="replace") if size <= _MOST_TEXT else ""

    def value(self, sort: int) -> Any:
        """Return the next value of a sort; None for a list of lists, or one that is too long."""
        if sort == _TEXT:
            return self.text()
        if sort != _LIST:
            return self.number(sort)
        inner, count = self.number(4), self.number(10)
        if inner == _LIST:
            raise _Incomplete
        each: Callable[[], Any] = self.text if inner == _TEXT else lambda: self.number(inner)
        if count <= MOST_ITEMS:
            return [each() for _ in range(count)]
        self._skip(inner, count)
        return None

    def _skip(self, inner: int, count: int) -> None:
        if inner == _TEXT:
            for _ in range(count):
                self._take(self.number(10))
        elif inner in _NUMBERS:
            self._take(struct.calcsize(_NUMBERS[inner]) * count)
        else:
            raise _Incomplete

    def _take(self, size: int) -> bytes:
        if size > len(self._data) - self._at:
            raise _Incomplete
        self._at += size
        return self._data[self._at - size : self._at]

    def read_header(self) -> int:
        """Return how many entries there are."""
        magic, version, _, entries = _HEAD.unpack(self._take(_HEAD.size))
        if magic != b"GGUF" or version not in _VERSIONS:
            raise _Incomplete
        return int(min(entries, _MOST_ENTRIES))


def parse_metadata(data: bytes) -> dict[str, Any]:
    """Return entries by name, as far as the first bytes of a file hold them."""
    reader, found = _Reader(data), dict[str, Any]()
    try:
        for _ in range(reader.read_header()):
            name = reader.text()
            found[name] = reader.value(reader.number(4))
    except _Incomplete:
        pass
    return found
