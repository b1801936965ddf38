"""Tables that take a kind long to compute, kept on the disk beside its compiled code: a change of its sources makes
them anew.
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jobs.kinds import code_sets

Tables = Mapping[str, Any]


def kept(kind: str, name: str, make: Callable[[], Tables]) -> Tables:
    """Return the arrays that `make` returns: read them if the kind's set has them, else make and store them.

    Only the process that compiles the set stores them. The file holds a checksum of each array; a damaged file is
    replaced.
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
    """Others see the whole file or none."""
    with tempfile.TemporaryDirectory(dir=file.parent) as scratch:
        whole = Path(scratch) / file.name
        np.savez(whole, **tables)
        whole.replace(file)
