"""Pack columns of numbers into bytes that a browser reads without copying.

The layout is `TCB1`, the header length as u32, the header (JSON, padded with spaces), and the columns. Each column
starts at a multiple of 8 bytes. All numbers are little-endian. See also docs/adding-a-kind.md.
"""

from __future__ import annotations

import json
import struct
import sys
from array import array
from collections.abc import Mapping
from typing import Any

MAGIC = b"TCB1"
#: Column types, keyed by the type code of Python's `array`. Their sizes are the same on all supported platforms.
TYPES = {"B": "u8", "H": "u16", "I": "u32", "i": "i32", "f": "f32", "d": "f64", "Q": "u64"}
_CODES = {name: code for code, name in TYPES.items()}


def pack(facts: Mapping[str, Any], columns: Mapping[str, array[Any]]) -> bytes:
    """Pack named facts and columns of numbers into bytes."""
    rows = [
        {"name": name, "type": TYPES[column.typecode], "offset": 0, "length": len(column)}
        for name, column in columns.items()
    ]
    start = _align(8 + len(_header(facts, rows)) + 16 * len(rows))  # Reserve space for the offsets' digits
    place = start
    for row, column in zip(rows, columns.values(), strict=True):
        row["offset"] = place
        place = _align(place + len(column) * column.itemsize)
    header = _header(facts, rows).ljust(start - 8)
    parts = [MAGIC, struct.pack("<I", len(header)), header]
    for column in columns.values():
        data = _to_little_endian(column).tobytes()
        parts += [data, bytes(_align(len(data)) - len(data))]
    return b"".join(parts)


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, array[Any]]]:
    """Return the facts and columns of packed bytes. Raises ValueError if the bytes have another format."""
    if data[:4] != MAGIC:
        raise ValueError("the data does not contain packed columns")
    try:
        (length,) = struct.unpack_from("<I", data, 4)
        header = json.loads(data[8 : 8 + length])
        return dict(header["facts"]), {row["name"]: _column(data, row) for row in header["columns"]}
    except (struct.error, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"the header of the packed columns is invalid: {error!r}") from error


def _column(data: bytes, row: Mapping[str, Any]) -> array[Any]:
    column = array(_CODES[row["type"]])
    low, length = row["offset"], row["length"]
    high = low + length * column.itemsize
    if not 0 <= low <= high <= len(data):
        raise ValueError(f"column {row['name']!r} exceeds the length of the data")
    column.frombytes(data[low:high])
    return _to_little_endian(column)


def _header(facts: Mapping[str, Any], rows: list[dict[str, Any]]) -> bytes:
    return json.dumps({"facts": facts, "columns": rows}, separators=(",", ":")).encode()


def _align(place: int) -> int:
    return -(-place // 8) * 8


def _to_little_endian(column: array[Any]) -> array[Any]:
    if sys.byteorder == "little":
        return column
    turned = array(column.typecode, column)
    turned.byteswap()
    return turned
