"""Where numba keeps compiled code: a folder for each kind and state of its sources, so changing one kind leaves the
others compiled.

numba by itself looks only at the file of the decorated function: after a change in a file that it calls, it would go on
running the old code.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import platform
import tempfile
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


def keep_apart() -> None:
    """Make numba keep compiled code where `Locator` says. Must come before the first decorated function."""
    importlib.import_module("numba").config.CACHE_LOCATOR_CLASSES = f"{Locator.__module__}.{Locator.__qualname__}"


@lru_cache
def checksum(kind: str) -> str:
    """Digest of a kind's Python sources at any depth, and of the modules that kinds share; "" has only these."""
    sources = sorted((path.name, path) for path in SHARED.glob("*.py"))
    if kind:
        own = _place(kind)
        sources += sorted((path.relative_to(own.parent).as_posix(), path) for path in own.rglob("*.py"))
    digest = hashlib.sha256()
    for name, path in sources:
        digest.update(f"{name}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _place(kind: str) -> Path:
    """The folder that a kind is imported from: the first of its name."""
    places = [Path(folder).resolve() / kind for folder in kinds.__path__]
    return next((place for place in places if place.is_dir()), places[-1])


def folder(kind: str) -> Path:
    """The folder of a kind's compiled code; "" is that of modules that kinds share."""
    kept = Path(importlib.import_module("numba").config.CACHE_DIR or CACHE_FOLDER)
    return kept / f"{kind or 'shared'}-{checksum(kind)}"


class Locator:
    """numba's cache locator, by the protocol of NUMBA_CACHE_LOCATOR_CLASSES. Equal sources share a folder wherever the
    checkout lies.
    """

    def __init__(self, path: Path, stamp: str, line: int) -> None:
        self.path, self.stamp, self.line = path, stamp, line

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> Locator:
        path, line = Path(file).resolve(), function.__code__.co_firstlineno
        for each in kinds.__path__:
            if path.is_relative_to(known := Path(each).resolve()):
                kind, *below = path.relative_to(known).parts[:-1] or ("",)
                return cls(folder(kind).joinpath(*below), checksum(kind), line)
        stamp = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        return cls(folder("").with_name(f"{path.stem}-{stamp}"), stamp, line)

    def get_cache_path(self) -> str:
        return str(self.path)

    def ensure_cache_path(self) -> None:
        """Raise OSError when the folder cannot be written."""
        self.path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=self.path).close()

    def get_source_stamp(self) -> str:
        return self.stamp

    def get_disambiguator(self) -> str:
        return str(self.line)


def _mark(kind: str) -> Path:
    """The file that says that this kind is compiled for this Python, numba and processor."""
    keep_apart()
    version = importlib.import_module("numba").__version__
    target = importlib.import_module("numba.core.registry").cpu_target.target_context.codegen().magic_tuple()
    known = hashlib.sha256(repr((version, platform.python_version(), target)).encode()).hexdigest()[:16]
    return folder(kind) / f"compiled-{known}"


def is_compiled(kind: str) -> bool:
    """True when a process has compiled the kind in its present state."""
    return _mark(kind).exists()


@contextmanager
def one_compiles(kind: str, *, wait: bool = True) -> Iterator[bool]:
    """Yield True when this process may compile the kind, or load it. While another compiles it, wait; without `wait`,
    yield False. Once a process has left this without an error, nobody waits.
    """
    mark = _mark(kind)
    mark.parent.mkdir(parents=True, exist_ok=True)
    with (mark.parent / "lock").open("a") as lock:
        if not mark.exists() and not _locked(lock, wait):
            yield False
            return
        if mark.exists():
            fcntl.flock(lock, fcntl.LOCK_UN)
        yield True
        mark.touch()


def _locked(lock: IO[str], wait: bool) -> bool:
    """Lock a file; without `wait`, return False when another process holds it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
