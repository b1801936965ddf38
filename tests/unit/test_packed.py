"""Tests that packed columns are decoded unchanged, in the format that pages expect."""

from __future__ import annotations

import json
import struct
import sys
from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.encoding import packed

BOUNDS = {"B": (0, 2**8 - 1), "H": (0, 2**16 - 1), "I": (0, 2**32 - 1), "i": (-(2**31), 2**31 - 1), "Q": (0, 2**64 - 1)}


@st.composite
def columns(draw: st.DrawFn) -> array[Any]:
    code = draw(st.sampled_from([*BOUNDS, "f", "d"]))
    if code in BOUNDS:
        return array(code, draw(st.lists(st.integers(*BOUNDS[code]), max_size=20)))
    return array(code, draw(st.lists(st.floats(width=32, allow_nan=False), max_size=20)))


@given(st.dictionaries(st.text(max_size=12), columns(), max_size=8), st.dictionaries(st.text(), st.integers()))
def test_what_is_packed_comes_out(given_columns: dict[str, array[Any]], facts: dict[str, Any]) -> None:
    data = packed.pack(facts, given_columns)
    assert packed.unpack(data) == (facts, given_columns)
    (length,) = struct.unpack_from("<I", data, 4)
    header = json.loads(data[8 : 8 + length])
    assert (8 + length) % 8 == 0 and len(data) % 8 == 0
    assert all(row["offset"] % 8 == 0 and row["offset"] >= 8 + length for row in header["columns"])


def test_numbers_lie_little_endian_where_the_header_says() -> None:
    data = packed.pack({"a": 1}, {"x": array("H", [1, 2, 3]), "y": array("d", [0.5])})
    (length,) = struct.unpack_from("<I", data, 4)
    x, y = json.loads(data[8 : 8 + length])["columns"]
    assert (x["type"], x["length"], y["type"], y["length"]) == ("u16", 3, "f64", 1)
    assert struct.unpack_from("<3H", data, x["offset"]) == (1, 2, 3)
    assert struct.unpack_from("<d", data, y["offset"]) == (0.5,)


def test_a_big_endian_machine_writes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    turned = array("I", [1, 2**31])
    turned.byteswap()
    expected = packed.pack({}, {"x": turned})
    monkeypatch.setattr(sys, "byteorder", "big")
    assert packed.pack({}, {"x": array("I", [1, 2**31])}) == expected


def test_items_have_the_sizes_that_the_types_say() -> None:
    for code, name in packed.TYPES.items():
        assert array(code).itemsize * 8 == int(name[1:])


def test_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match="does not contain packed"):
        packed.unpack(b"PNG!")


BROKEN = [
    ("{", "Expecting"),
    ("[]", "invalid"),
    ("{}", "invalid"),
    ('{"facts": {}, "columns": [{}]}', "invalid"),
    ('{"facts": {}, "columns": [{"name": "x", "type": "u7", "offset": 8, "length": 1}]}', "invalid"),
    ('{"facts": {}, "columns": [{"name": "x", "type": "u16", "offset": 8, "length": 1000}]}', "exceeds"),
    ('{"facts": {}, "columns": [{"name": "x", "type": "u16", "offset": -8, "length": 1}]}', "exceeds"),
    ('{"facts": {}, "columns": [{"name": "x", "type": "u16", "offset": "8", "length": 1}]}', "invalid"),
]


@pytest.mark.parametrize(("header", "words"), BROKEN)
def test_a_broken_header_is_refused(header: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        packed.unpack(packed.MAGIC + struct.pack("<I", len(header)) + header.encode())
