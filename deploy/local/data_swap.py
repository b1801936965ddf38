"""Replacement of the data of Redis by restored data, so that a killed restore leaves either the old or the new data."""

from __future__ import annotations

import shutil
from pathlib import Path

from jobs.settings import LOCAL_FOLDER

DATA = LOCAL_FOLDER / "redis"
#: Folder in which a restore prepares the new data.
NEW = LOCAL_FOLDER / "redis.restore"
#: Folder that has the old data while the new data moves in.
OLD = LOCAL_FOLDER / "redis.before-restore"


def swap() -> None:
    """Replace the data by the prepared data. No server may be running."""
    _settle()
    if DATA.exists():
        DATA.rename(OLD)
    try:
        NEW.rename(DATA)
    finally:
        _settle()


def finish() -> None:
    """Complete or undo a swap that was interrupted, and delete prepared data. No server may be running."""
    _settle()
    _delete(NEW)


def _settle() -> None:
    """Delete the old data if other data has replaced it. Put it back if not."""
    if OLD.exists() and not DATA.exists():
        OLD.rename(DATA)
    _delete(OLD)


def _delete(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
