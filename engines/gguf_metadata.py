"""Parser of the metadata at the start of a GGUF file. If the data is truncated, earlier entries are returned."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

#: Number of bytes that are read from a file. They include the description of a model's shape.
MOST_BYTES = 1 << 20
#: Maximum number of items of a list that is stored. Longer lists are skipped.
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
    """The data is truncated or is not in GGUF format."""


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def number(self, sort: int) -> Any:
        """Return the next number in the data. `sort` is the number's type."""
        shape = _NUMBERS.get(sort)
        if shape is None:
            raise _Incomplete
        size = struct.calcsize(shape)
        return struct.unpack(shape, self._take(size))[0]

    def text(self) -> str:
        """Return the next string in the data, or an empty string if it is too long for a name."""
        size = self.number(10)
        taken = self._take(size)
        return taken.decode(errors="replace") if size <= _MOST_TEXT else ""

    def value(self, sort: int) -> Any:
        """Return the next value in the data, or None for a long list. Raises _Incomplete for nested lists."""
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
        """Return the number of metadata entries."""
        magic, version, _, entries = _HEAD.unpack(self._take(_HEAD.size))
        if magic != b"GGUF" or version not in _VERSIONS:
            raise _Incomplete
        return int(min(entries, _MOST_ENTRIES))


def parse_metadata(data: bytes) -> dict[str, Any]:
    """Return the metadata of a GGUF file from its first bytes, keyed by name. Entries that are cut off are omitted."""
    reader, found = _Reader(data), dict[str, Any]()
    try:
        for _ in range(reader.read_header()):
            name = reader.text()
            found[name] = reader.value(reader.number(4))
    except _Incomplete:
        pass
    return found
