"""Where numba keeps compiled code: a folder for each kind, state of its sources, and target, so changing one kind
leaves the others compiled.

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
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from jobs import kinds

#: The folder when NUMBA_CACHE_DIR names none.
CACHE_FOLDER = Path(__file__).resolve().parents[2] / ".cluster" / "cache" / "numba"
#: What kinds share lies here, beside their folders.
SHARED = Path(__file__).resolve().parent
#: Seconds for which a folder is kept that no process uses.
KEPT_SECONDS = 30 * 86_400.0
#: Names of folders of compiled code, those of earlier versions without a target included.
_NAMED = re.compile(r".+-[0-9a-f]{16}(-[0-9a-f]{8})?")

#: Folders that this process uses, each with the descriptor that has it locked.
_used: dict[Path, int] = {}


def _state(source: Path) -> tuple[int, ...]:
    """Return what tells a file from its former state: no write leaves all of it as it was."""
    stat = source.stat()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


#: All sources of kinds as they were before this process loaded any.
_STATES = {source: _state(source) for folder in kinds.__path__ for source in Path(folder).resolve().rglob("*.py")}


def keep_apart() -> None:
    """Make numba keep compiled code where `Locator` says, and only what its sources say. Must come before the first
    decorated function.
    """
    importlib.import_module("numba").config.CACHE_LOCATOR_CLASSES = f"{Locator.__module__}.{Locator.__qualname__}"
    caching = importlib.import_module("numba.core.caching")
    caching.FunctionCache._impl_class = _if_unchanged(caching.CompileResultCacheImpl)


@lru_cache
def _if_unchanged(kept: Any) -> Any:
    """Class of numba's that keeps what `kept` does, unless sources changed since this process began."""

    class IfUnchanged(kept):
        def check_cachable(self, compiled: Any) -> bool:
            return self.locator.is_unchanged() and super().check_cachable(compiled)

    return IfUnchanged


@lru_cache
def target() -> str:
    """Digest of what compiled code depends on beside its sources: versions, and the processor that it is for."""
    versions = [importlib.import_module(name).__version__ for name in ("numba", "llvmlite")]
    processor = importlib.import_module("numba.core.registry").cpu_target.target_context.codegen().magic_tuple()
    return hashlib.sha256(repr((*versions, platform.python_version(), processor)).encode()).hexdigest()[:8]


def _sources(kind: str) -> list[tuple[str, Path]]:
    """A kind's Python sources at any depth, and the modules that kinds share, by name; "" has only these."""
    sources = sorted((path.name, path) for path in SHARED.glob("*.py"))
    if kind:
        own = _place(kind)
        sources += sorted((path.relative_to(own.parent).as_posix(), path) for path in own.rglob("*.py"))
    return sources


@lru_cache
def checksum(kind: str) -> str:
    """Digest of what `_sources` names."""
    digest = hashlib.sha256()
    for name, path in _sources(kind):
        digest.update(f"{name}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def is_unchanged(kind: str) -> bool:
    """Tell whether a kind's sources, and what kinds share, are as they were before this process loaded any."""
    own = _place(kind) if kind else SHARED / "none"
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
    """The folder of a kind's compiled code; "" is that of modules that kinds share."""
    return top() / f"{kind or 'shared'}-{checksum(kind)}-{target()}"


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
    if place not in _used:
        return False
    with contextlib.suppress(FileNotFoundError):
        if os.path.samestat(place.stat(), os.fstat(_used[place])):
            return True
    os.close(_used.pop(place))
    return False


def _lock_for_use(place: Path) -> None:
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    except OSError:
        os.close(descriptor)
        raise
    _used[place] = descriptor
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
    """Tell whether nothing was used or written there since. Workers of earlier versions touch a file in it."""
    try:
        return all(path.lstat().st_mtime < until for path in (place, *place.iterdir()))
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
        for mark in place.glob("compiled*"):  # first: what is left must not count as compiled
            mark.unlink()
        shutil.rmtree(place)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


class Locator:
    """numba's cache locator, by the protocol of NUMBA_CACHE_LOCATOR_CLASSES. Equal sources share a folder wherever the
    checkout lies.
    """

    def __init__(self, path: Path, stamp: str, line: int, kind: str | None = None) -> None:
        self.path, self.stamp, self.line, self.kind = path, stamp, line, kind

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> Locator:
        path, line = Path(file).resolve(), function.__code__.co_firstlineno
        for each in kinds.__path__:
            if path.is_relative_to(known := Path(each).resolve()):
                kind, *below = path.relative_to(known).parts[:-1] or ("",)
                use(folder(kind))
                return cls(folder(kind).joinpath(*below), checksum(kind), line, kind)
        stamp = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        other = top() / f"{path.stem}-{stamp}"
        use(other)
        return cls(other, stamp, line)

    def get_cache_path(self) -> str:
        return str(self.path)

    def ensure_cache_path(self) -> None:
        """Raise OSError when the folder cannot be written."""
        self.path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=self.path).close()

    def is_unchanged(self) -> bool:
        """Tell whether the sources of its kind are as this process may have loaded them."""
        return self.kind is None or is_unchanged(self.kind)

    def get_source_stamp(self) -> str:
        return self.stamp

    def get_disambiguator(self) -> str:
        return str(self.line)


def _mark(kind: str) -> Path:
    """The file that says that this kind is compiled."""
    keep_apart()
    return folder(kind) / "compiled"


def is_compiled(kind: str) -> bool:
    """True when a process has compiled the kind in its present state."""
    return _mark(kind).exists()


@contextmanager
def one_compiles(kind: str, *, wait: bool = True, anew: bool = False) -> Iterator[bool]:
    """Yield True when this process may compile the kind, or load it. While another compiles it, wait; without `wait`,
    yield False. Once a process has left this without an error, nobody waits.

    `anew` first drops what is kept of the kind.
    """
    mark = _mark(kind)
    use(mark.parent)
    mark.parent.mkdir(parents=True, exist_ok=True)
    with (mark.parent / "lock").open("a") as lock:
        if (anew or not mark.exists()) and not _locked(lock, wait):
            yield False
            return
        if anew:
            mark.unlink(missing_ok=True)
            _drop(kind)
        elif mark.exists():
            fcntl.flock(lock, fcntl.LOCK_UN)
        yield True
        mark.touch()


def _drop(kind: str) -> None:
    """Forget the kind's compiled code and tables, and the code that kinds share: callers were compiled with it.

    Only what names the rest goes, so that a process which is writing there loses nothing that it needs.
    """
    for place in (folder(kind), folder("")):
        for file in place.rglob("*"):
            if file.suffix in (".nbi", ".npz"):
                file.unlink(missing_ok=True)


def _locked(lock: IO[str], wait: bool) -> bool:
    """Lock a file; without `wait`, return False when another process holds it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
