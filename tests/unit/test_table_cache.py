"""Tests that tables on disk equal the computed ones, and that a damaged file only costs time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobs.kinds import code_sets, table_cache

TABLES: dict[str, Any] = {
    "odd": np.arange(1, 100_000, 2, dtype=np.uint64),
    "few": np.array([[1, 2], [3, 4]], np.uint32),
}


class Maker:
    """Counts how often the tables are computed."""

    made = 0

    def __call__(self) -> table_cache.Tables:
        self.made += 1
        return TABLES


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the folder of a set that this process compiles."""
    folder = tmp_path / "even"
    folder.mkdir()
    with (tmp_path / "lock").open("a") as lock:
        monkeypatch.setattr(code_sets, "used_sets", {"even": code_sets.CodeSet(folder, lock)})
        yield folder


def get(make: Maker) -> table_cache.Tables:
    tables = table_cache.load_or_compute("even", "tables", make)
    for name, array in TABLES.items():
        assert tables[name].dtype == array.dtype and np.array_equal(tables[name], array)
    return tables


def test_they_are_made_once(folder: Path) -> None:
    make = Maker()
    for _ in range(3):
        assert get(make).keys() == TABLES.keys()
    assert make.made == 1
    assert [path.name for path in folder.iterdir()] == ["tables.npz"]


def cut_short(content: bytes) -> bytes:
    return content[: len(content) // 2]


def flip_a_bit(content: bytes) -> bytes:
    at = len(content) // 3
    return content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :]


def empty(content: bytes) -> bytes:
    return b""


@pytest.mark.parametrize("damage", [cut_short, flip_a_bit, empty])
def test_a_damaged_file_is_made_anew(folder: Path, damage: Callable[[bytes], bytes]) -> None:
    make = Maker()
    get(make)
    file = folder / "tables.npz"
    file.write_bytes(damage(file.read_bytes()))
    get(make)
    get(make)
    assert make.made == 2


def test_a_table_is_added_to_no_published_set_and_replaced_there_if_it_is_damaged(folder: Path) -> None:
    make = Maker()
    code_sets.used_sets["even"].publish()
    get(make)
    assert not list(folder.glob("*.npz"))
    (folder / "tables.npz").write_bytes(b"damaged")
    get(make)
    get(make)
    assert make.made == 2


def test_a_set_whose_table_cannot_be_kept_is_abandoned(folder: Path) -> None:
    make = Maker()
    folder.rmdir()
    get(make)
    get(make)
    assert make.made == 2
    assert code_sets.used_sets["even"].lock is None and "No such file" in code_sets.unsaved_kinds()["even"]
