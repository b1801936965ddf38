"""Replaces the data of Redis with restored data. If a restore is killed, either the old or the new data remain."""

from __future__ import annotations

import shutil
from pathlib import Path

from jobs.settings import LOCAL_FOLDER

DATA = LOCAL_FOLDER / "redis"
#: Folder in which a restore prepares the new data.
NEW = LOCAL_FOLDER / "redis.restore"
#: Folder that contains the old data during the swap.
OLD = LOCAL_FOLDER / "redis.before-restore"


def swap() -> None:
    """Replace the data with the prepared data. The Redis server must not be running."""
    _settle()
    if DATA.exists():
        DATA.rename(OLD)
    try:
        NEW.rename(DATA)
    finally:
        _settle()


def finish() -> None:
    """Complete or undo a swap that was interrupted, and delete prepared data. The Redis server must not be running."""
    _settle()
    _delete(NEW)


def _settle() -> None:
    """Delete the old data if new data has replaced it. Otherwise, move the old data back."""
    if OLD.exists() and not DATA.exists():
        OLD.rename(DATA)
    _delete(OLD)


def _delete(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
