"""Disk folders of compiled code, one for each kind, version of the kind's sources, and processor.

Changing one kind therefore does not recompile the others. `code_sets.py` fills the folders. Folders that no process has
used for a month are removed. A process holds a lock on each folder that it uses, and updates the folder's modification
time when it starts to use it.

numba alone checks only the file of the decorated function. After a change in another file that the function calls,
numba would still run the old code. numba also assumes that the file on disk is the one that the process loaded. If the
file changed after the process started, numba would store the old code as the code of the new file.
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

#: Default cache folder, used if NUMBA_CACHE_DIR is not set.
CACHE_FOLDER = Path(__file__).resolve().parents[2] / ".cluster" / "cache" / "numba"
#: Folder that contains one folder per kind, and the modules that all kinds share.
SHARED = Path(__file__).resolve().parent
#: Seconds after which an unused folder of compiled code is removed.
KEPT_SECONDS = 30 * 86_400.0
#: Pattern of the names of folders with compiled code; the digest of the processor at the end is optional.
_NAMED = re.compile(r".+-[0-9a-f]{16}(-[0-9a-f]{8})?")

#: Folders that this process uses, mapped to the file descriptors that lock them.
used_folders: dict[Path, int] = {}


def _state(source: Path) -> tuple[int, ...]:
    """Return the identity of a source file: inode, size and timestamps. Every write changes at least one of them."""
    stat = source.stat()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


#: Inode, size and timestamps of each source file of the kinds before this process imported any of them.
_STATES = {source: _state(source) for folder in kinds.__path__ for source in Path(folder).resolve().rglob("*.py")}


@lru_cache
def target() -> str:
    """Return a digest of the processor and of the versions of Python, numba and llvmlite."""
    versions = [importlib.import_module(name).__version__ for name in ("numba", "llvmlite")]
    processor = importlib.import_module("numba.core.registry").cpu_target.target_context.codegen().magic_tuple()
    return hashlib.sha256(repr((*versions, platform.python_version(), processor)).encode()).hexdigest()[:8]


def _sources(kind: str) -> list[tuple[str, Path]]:
    """Return the names and paths of a kind's Python sources, and of the modules that kinds share."""
    own = _kind_folder(kind)
    sources = sorted((path.name, path) for path in SHARED.glob("*.py"))
    return sources + sorted((path.relative_to(own.parent).as_posix(), path) for path in own.rglob("*.py"))


@lru_cache
def checksum(kind: str) -> str:
    """Return a digest of all source files that a kind's compiled code depends on."""
    digest = hashlib.sha256()
    for name, path in _sources(kind):
        digest.update(f"{name}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def is_unchanged(kind: str) -> bool:
    """Return True if a kind's sources and the shared modules are unchanged since this process started."""
    own = _kind_folder(kind)
    then = {path: state for path, state in _STATES.items() if path.parent == SHARED or path.is_relative_to(own)}
    try:
        return then == {path: _state(path) for _, path in _sources(kind)}
    except OSError:  # a source file has just been deleted
        return False


def _kind_folder(kind: str) -> Path:
    """Return the folder from which Python imports a kind: the first match on the import path."""
    places = [Path(folder).resolve() / kind for folder in kinds.__path__]
    return next((place for place in places if place.is_dir()), places[-1])


def cache_root() -> Path:
    """Return the folder that contains all compiled code."""
    return Path(importlib.import_module("numba").config.CACHE_DIR or CACHE_FOLDER)


def folder(kind: str) -> Path:
    """Return the folder of a kind's compiled code."""
    return cache_root() / f"{kind}-{checksum(kind)}-{target()}"


def use_folder(place: Path) -> None:
    """Create a folder of compiled code if needed, and protect it from `remove_unused` until this process exits.

    If the cache is not writable, do nothing.
    """
    with contextlib.suppress(OSError):
        while not _is_used(place):
            place.mkdir(parents=True, exist_ok=True)
            _lock_for_use(place)


def _is_used(place: Path) -> bool:
    """Return True if this process has locked the folder and the folder has not been replaced since."""
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
    with contextlib.suppress(OSError):  # another user may own the folder
        os.utime(descriptor)


def remove_unused(kept_seconds: float = KEPT_SECONDS) -> list[str]:
    """Remove folders of compiled code that no process has used for `kept_seconds`; return their names.

    A folder that cannot be removed is skipped without an error.
    """
    until = time.time() - kept_seconds
    with contextlib.suppress(OSError):
        places = [place for place in sorted(cache_root().iterdir()) if _NAMED.fullmatch(place.name)]
        return [place.name for place in places if _is_older(place, until) and _remove(place, until)]
    return []


def _is_older(place: Path, until: float) -> bool:
    """Return True if no process has started to use the folder since the time `until`."""
    try:
        return place.lstat().st_mtime < until
    except OSError:  # another process has removed the folder, or it is not a folder
        return False


def _remove(place: Path, until: float) -> bool:
    """Remove a folder that no process uses. Return False if a process uses the folder or it cannot be locked."""
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _is_older(place, until):  # another process has used the folder meanwhile and exited
            return False
        # Rename the folder first, so that an interrupted removal leaves no partial folder under a valid name.
        shutil.rmtree(place.rename(place.with_name(f"removed-{place.name.removeprefix('removed-')}")))
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
