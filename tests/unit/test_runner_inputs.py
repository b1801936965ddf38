"""Tests a job's items from a file with any content."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest

from runner.files import inputs
from runner.files.inputs import Items, MissingItem


def items(path: Path, content: bytes) -> Items:
    path.write_bytes(content)
    return Items(path)


def test_each_line_is_an_item_with_or_without_an_end_of_the_last(tmp_path: Path) -> None:
    for content in (b'1\n"a"\n{"b": 2}\n', b'1\n"a"\n{"b": 2}'):
        found = items(tmp_path / "items", content)
        assert [found.line(unit) for unit in range(3)] == ["1", '"a"', '{"b": 2}']
        with pytest.raises(MissingItem, match="3 lines, so unit 3 has no item"):
            found.line(3)
        found.close()


def test_lines_that_cross_what_is_read_at_once_are_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "PIECE", 3)
    found = items(tmp_path / "items", b"1234\n5\n\n67890\n")
    assert [found.line(unit) for unit in range(4)] == ["1234", "5", "", "67890"]
    found.close()


def test_a_huge_line_and_too_many_lines_take_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "items"
    path.write_bytes(b"1\n")
    os.truncate(path, 64 << 20)  # one line of zeros behind the first
    tracemalloc.start()
    try:
        found = Items(path)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    assert found.line(0) == "1"
    with pytest.raises(MissingItem, match="the item of unit 1 has 67108862 bytes; the maximum is 131072"):
        found.line(1)
    found.close()
    monkeypatch.setattr(inputs, "MOST_ITEMS", 10)
    found = items(path, b"7\n" * 1000)
    assert found.line(9) == "7" and len(found.offsets) < 20
    found.close()
