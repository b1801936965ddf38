"""Folders of compiled code: one for each kind, version of its sources, and target. A change of one kind therefore
does not recompile the others. `code_sets.py` fills the folders.

Folders that no process has used for a month are removed. A process that uses one has it locked, and touched it when it
began to.

numba by itself looks only at the file of the decorated function: after a change in a file that it calls, it would go on
running the old code. And it takes the file for what the process has loaded: one that changed after this process
began would have the code of the former text kept under the new one.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib
import os
import platform
import re
import shutil
import time
from functools import lru_cache
from pathlib import Path

from jobs import kinds

#: The folder when NUMBA_CACHE_DIR names none.
CACHE_FOLDER = Path(__file__).resolve().parents[2] / ".cluster" / "cache" / "numba"
#: What kinds share lies here, beside their folders.
SHARED = Path(__file__).resolve().parent
#: Seconds for which a folder is kept that no process uses.
KEPT_SECONDS = 30 * 86_400.0
#: Names of folders of compiled code; those of functions outside kinds name no target.
_NAMED = re.compile(r".+-[0-9a-f]{16}(-[0-9a-f]{8})?")

#: Folders that this process uses, each with the descriptor that has it locked.
used_folders: dict[Path, int] = {}


def _state(source: Path) -> tuple[int, ...]:
    """Return what tells a file from its former state: no write leaves all of it as it was."""
    stat = source.stat()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


#: All sources of kinds as they were before this process loaded any.
_STATES = {source: _state(source) for folder in kinds.__path__ for source in Path(folder).resolve().rglob("*.py")}


@lru_cache
def target() -> str:
    """Digest of what compiled code depends on beside its sources: versions, and the processor that it is for."""
    versions = [importlib.import_module(name).__version__ for name in ("numba", "llvmlite")]
    processor = importlib.import_module("numba.core.registry").cpu_target.target_context.codegen().magic_tuple()
    return hashlib.sha256(repr((*versions, platform.python_version(), processor)).encode()).hexdigest()[:8]


def _sources(kind: str) -> list[tuple[str, Path]]:
    """Return a kind's Python sources at any depth, and the modules that kinds share, by name."""
    own = _place(kind)
    sources = sorted((path.name, path) for path in SHARED.glob("*.py"))
    return sources + sorted((path.relative_to(own.parent).as_posix(), path) for path in own.rglob("*.py"))


@lru_cache
def checksum(kind: str) -> str:
    """Digest of what `_sources` names."""
    digest = hashlib.sha256()
    for name, path in _sources(kind):
        digest.update(f"{name}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def is_unchanged(kind: str) -> bool:
    """Tell whether a kind's sources, and what kinds share, are as they were before this process loaded any."""
    own = _place(kind)
    then = {path: state for path, state in _STATES.items() if path.parent == SHARED or path.is_relative_to(own)}
    try:
        return then == {path: _state(path) for _, path in _sources(kind)}
    except OSError:  # one has just gone
        return False


def _place(kind: str) -> Path:
    """The folder that a kind is imported from: the first of its name."""
    places = [Path(folder).resolve() / kind for folder in kinds.__path__]
    return next((place for place in places if place.is_dir()), places[-1])


def top() -> Path:
    """The folder of all compiled code."""
    return Path(importlib.import_module("numba").config.CACHE_DIR or CACHE_FOLDER)


def folder(kind: str) -> Path:
    """Return the folder of a kind's compiled code."""
    return top() / f"{kind}-{checksum(kind)}-{target()}"


def use(place: Path) -> None:
    """Make a folder of compiled code where there is none, and keep it from `remove_unused` while this process lives.

    Where the cache cannot be written this does nothing.
    """
    with contextlib.suppress(OSError):
        while not _is_used(place):
            place.mkdir(parents=True, exist_ok=True)
            _lock_for_use(place)


def _is_used(place: Path) -> bool:
    """Tell whether this process has the folder locked, and not one that was removed since."""
    if place not in used_folders:
        return False
    with contextlib.suppress(FileNotFoundError):
        if os.path.samestat(place.stat(), os.fstat(used_folders[place])):
            return True
    os.close(used_folders.pop(place))
    return False


def _lock_for_use(place: Path) -> None:
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    except OSError:
        os.close(descriptor)
        raise
    used_folders[place] = descriptor
    with contextlib.suppress(OSError):  # it may be another user's
        os.utime(descriptor)


def remove_unused(kept_seconds: float = KEPT_SECONDS) -> list[str]:
    """Remove the folders that no process has used for so long; return their names.

    What cannot be removed stays, without an error.
    """
    until = time.time() - kept_seconds
    with contextlib.suppress(OSError):
        places = [place for place in sorted(top().iterdir()) if _NAMED.fullmatch(place.name)]
        return [place.name for place in places if _is_older(place, until) and _removed(place, until)]
    return []


def _is_older(place: Path, until: float) -> bool:
    """Tell whether no process has begun to use it since."""
    try:
        return place.lstat().st_mtime < until
    except OSError:  # another process removes it, or it is no folder
        return False


def _removed(place: Path, until: float) -> bool:
    """Remove a folder unless a process uses it; False where one does, or it cannot be locked."""
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _is_older(place, until):  # one has used it meanwhile, and ended
            return False
        # An interrupted removal must not leave part of the code under a name that processes look for.
        shutil.rmtree(place.rename(place.with_name(f"removed-{place.name.removeprefix('removed-')}")))
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
