"""Disk cache of precomputed tables. Changing a kind's source files invalidates the tables of that kind."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jobs.kinds import code_sets

Tables = Mapping[str, Any]


def load_or_compute(kind: str, name: str, make: Callable[[], Tables]) -> Tables:
    """Load a kind's precomputed arrays from disk, or compute them with `make` and store them.

    Only the process that compiles the kind's code set stores arrays. The file contains a checksum of each array, and a
    damaged file is replaced.
    """
    used = code_sets.code_set(kind)
    file = used.path / f"{name}.npz"
    tables = _read(file)
    if tables is None:
        tables = make()
        with used.writing() as may_write:
            if may_write or file.exists():
                _write(file, tables)
    return tables


def _read(file: Path) -> Tables | None:
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as opened:
            return {name: opened[name] for name in opened.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        return None


def _write(file: Path, tables: Tables) -> None:
    """Write the file atomically, so that other processes never see a partial file."""
    with tempfile.TemporaryDirectory(dir=file.parent) as scratch:
        whole = Path(scratch) / file.name
        np.savez(whole, **tables)
        whole.replace(file)
