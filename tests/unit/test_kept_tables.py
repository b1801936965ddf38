"""Tables on the disk are those that were made, and a file that is damaged costs time only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobs.kinds import compiled_code, kept_tables

TABLES: dict[str, Any] = {
    "odd": np.arange(1, 100_000, 2, dtype=np.uint64),
    "few": np.array([[1, 2], [3, 4]], np.uint32),
}


class Maker:
    """Counts how often the tables are made."""

    made = 0

    def __call__(self) -> kept_tables.Tables:
        self.made += 1
        return TABLES


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(compiled_code, "folder", lambda kind: tmp_path / kind)
    return tmp_path / "even"


def get(make: Maker) -> kept_tables.Tables:
    tables = kept_tables.kept("even", "tables", make)
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


def test_a_folder_that_cannot_be_made_keeps_nothing(folder: Path) -> None:
    folder.write_text("a file in its place")
    make = Maker()
    get(make)
    get(make)
    assert make.made == 2
