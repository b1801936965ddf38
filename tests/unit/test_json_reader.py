"""Tests that JSON read in pieces yields the same values as the whole text, with little memory."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.encoding.json_reader import JsonReader

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def cut(text: bytes, size: int) -> Iterator[bytes]:
    return (text[at : at + size] for at in range(0, len(text), size))


@given(VALUES, st.integers(1, 9), st.sampled_from([None, 1]), st.booleans())
def test_a_value_is_that_of_the_whole_text(value: Any, size: int, indent: int | None, escaped: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=escaped).encode("utf-8", "surrogatepass")
    assert JsonReader(cut(text, size)).value() == value


@given(st.dictionaries(st.text(max_size=3), st.lists(VALUES, max_size=4), max_size=4), st.integers(1, 9))
def test_members_and_items_are_those_of_the_whole_text(value: dict[str, Any], size: int) -> None:
    reader = JsonReader(cut(json.dumps(value, indent=1).encode(), size))
    assert {name: list(reader.items()) for name in reader.members()} == value
    again = JsonReader(cut(json.dumps(value).encode(), size))
    assert {name: again.value() for name in again.members()} == value


BROKEN = [b"", b" ", b"[", b"[1", b"[1,", b"[1 2]", b"{", b'{"a"', b'{"a":', b'{"a" 1}', b"{1:2}", b'["a]', b"\xff"]


@pytest.mark.parametrize("text", BROKEN)
@pytest.mark.parametrize("size", [1, 100])
def test_another_text_is_refused(text: bytes, size: int) -> None:
    def read() -> Any:
        reader = JsonReader(cut(text, size))
        return list(reader.items()) if text[:1] == b"[" else {name: reader.value() for name in reader.members()}

    with pytest.raises(ValueError, match=r"JSON|Expecting|Unterminated|Extra|utf-8|name"):
        read()


def test_a_long_list_takes_little_memory() -> None:
    rows = 100_000
    tracemalloc.start()
    try:
        numbers = sum(row["number"] for row in JsonReader(written(rows)).items())
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert numbers == rows * (rows - 1) // 2


def test_a_long_value_is_tried_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    tried, decode = list[int](), json.JSONDecoder.raw_decode

    def counted(self: json.JSONDecoder, text: str, at: int = 0) -> Any:
        tried.append(len(text))
        return decode(self, text, at)

    monkeypatch.setattr(json.JSONDecoder, "raw_decode", counted)
    assert len(JsonReader(written(100_000)).value()) == 100_000
    assert sum(tried) < 4 * tried[-1], "each attempt has twice the text of the one before"


def written(rows: int) -> Iterator[bytes]:
    yield b"["
    for at in range(0, rows, 1000):
        yield b",".join(b'{"number":%d}' % row for row in range(at, at + 1000)) + (b"]" if at + 1000 == rows else b",")
