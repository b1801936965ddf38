"""Disk cache of compiled code. A code set holds the compiled functions and tables of one kind for one type of device.

One process compiles a set into a private folder. It renames the folder once everything is compiled, so other processes
see the whole set or nothing. A published set never changes: code compiled later, for other argument types, is not
stored.

numba names the symbols of compiled functions by a counter that starts at 1 in each process. Two processes can therefore
give one name to different functions. The JIT linker uses the first body that it loads for both, and results are wrong.
This module names each compiled function by a random number instead. One process can therefore load the code of several
processes, in any order.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import itertools
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from jobs import kinds
from jobs.kinds import compiled_code
from jobs.models import Device

#: Prefix of the name of a folder whose set is unfinished: a process is compiling it, or was killed while compiling it.
_UNFINISHED = "unfinished-"
#: Name of the file that lists all other files of a published set.
_FILES = "files"


@dataclass
class CodeSet:
    """Set of compiled code that this process reads or writes."""

    #: Folder of the set. If the folder does not exist, the set is empty.
    path: Path
    #: Lock file that this process holds while it compiles the set; None if this process does not add to the set.
    lock: IO[str] | None = None
    #: Reason why code compiled by this process is not stored; empty if it is stored.
    unkept: str = ""

    @property
    def identity(self) -> str:
        """Return the random part of the folder's name, which stays the same when the folder is renamed."""
        return self.path.name.rpartition("-")[2]

    @property
    def is_whole(self) -> bool:
        """Return True if this process can read the set's list of files and no listed file is missing."""
        try:
            return all((self.path / name).is_file() for name in (self.path / _FILES).read_text().splitlines())
        except (OSError, ValueError):
            return False

    @contextmanager
    def writing(self) -> Iterator[bool]:
        """Yield True if this process may add a file to the set. If writing fails with an OSError, abandon the set."""
        try:
            yield self.lock is not None
        except OSError as error:
            self.abandon(str(error))

    def publish(self) -> None:
        """Make the set that this process has compiled visible to other processes."""
        with self.writing() as may_write:
            if may_write:
                (self.path / _FILES).write_text("\n".join(file.name for file in self.path.iterdir()))
                self.path = self.path.rename(self.path.with_name(self.path.name.removeprefix(_UNFINISHED)))
        self._unlock()

    def abandon(self, why: str) -> None:
        """Remove an unpublished set, so that other processes stop waiting for it."""
        if self.lock is not None:
            self.unkept = why
            shutil.rmtree(self.path, ignore_errors=True)
            self._unlock()

    def _unlock(self) -> None:
        if self.lock is not None:
            self.lock.close()
            self.lock = None


#: Code sets loaded by this process, keyed by kind name.
used_sets: dict[str, CodeSet] = {}


def code_set(kind: str) -> CodeSet:
    """Return the code set that this process uses for a kind.

    This is a published set for CPUs, or an empty set, unless the process has called `compile_once` for the kind.
    """
    if kind not in used_sets:
        used_sets[kind] = _find_published(kind, Device.CPU) or _empty_set()
    return used_sets[kind]


def unsaved_kinds() -> Mapping[str, str]:
    """Return the kinds whose compiled code this process could not store, mapped to the reason."""
    return {kind: used.unkept for kind, used in used_sets.items() if used.unkept}


@contextmanager
def compile_once(
    kind: str, device: Device = Device.CPU, *, wait: bool = True, recompile: bool = False
) -> Iterator[bool]:
    """Ensure that only one process compiles a kind's kernel. Yield True if this process may load or compile the kernel.

    One process compiles and publishes the code set; others wait and then load it. If `wait` is False, yield False while
    another process is compiling. If `recompile` is True, delete published sets first. Do not import the kernel before
    this call.
    """
    configure_numba()
    used = None if recompile else _load(kind, device)
    used = used or _start_set(kind, device, wait=wait, recompile=recompile)
    if used is None:
        yield False
        return
    try:
        yield True
    except BaseException as error:
        used.abandon(f"{type(error).__name__}: {error}")
        raise
    if not compiled_code.is_unchanged(kind):
        used.abandon("its sources have changed since this process started")
    used.publish()


def is_published(kind: str, device: Device = Device.CPU) -> bool:
    """Return True if a process can load the kernel of a kind without compiling it. Use the found code set."""
    configure_numba()
    return _load(kind, device) is not None


def _load(kind: str, device: Device) -> CodeSet | None:
    """Use the published code set of a kind in this process, and return it, or None if there is no published set."""
    found = _find_published(kind, device)
    if found is not None:
        used_sets[kind] = found
    return found


def _find_published(kind: str, device: Device) -> CodeSet | None:
    """Return the published code set of a kind, or None. Prevent the removal of its folder until this process exits.

    A set with a missing file is ignored. Otherwise every process would compile the missing code and store nothing.
    """
    folder = compiled_code.folder(kind)
    compiled_code.use_folder(folder)
    try:
        sets = [CodeSet(path) for path in sorted(folder.glob(f"{device}-*"))]
    except OSError:  # the cache may belong to another user
        return None
    return next((found for found in sets if found.is_whole), None)


def _start_set(kind: str, device: Device, *, wait: bool, recompile: bool) -> CodeSet | None:
    """Create a code set to compile into, or use a published set. Return None while another process is compiling."""
    if kind in used_sets:  # numba has already read the cache folder of imported functions
        return used_sets[kind]
    folder = compiled_code.folder(kind)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            lock = stack.enter_context((folder / f"lock-{device}").open("a"))
            if not _is_locked(lock, wait=wait):
                return None
            if not recompile and (found := _load(kind, device)):
                return found
            used_sets[kind] = CodeSet(_create(folder, device), lock)
            stack.pop_all()
    except OSError as error:
        used_sets[kind] = _empty_set(unkept=str(error))
    return used_sets[kind]


def _is_locked(lock: IO[str], *, wait: bool) -> bool:
    """Lock a file. If `wait` is False, return False when another process holds the lock."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _create(folder: Path, device: Device) -> Path:
    """Create the folder of a new code set. Remove published sets, and unfinished sets of killed processes."""
    for published in folder.glob(f"{device}-*"):
        published.rename(published.with_name(_UNFINISHED + published.name))
    for unfinished in folder.glob(f"{_UNFINISHED}{device}-*"):
        shutil.rmtree(unfinished, ignore_errors=True)
    path = folder / f"{_UNFINISHED}{device}-{secrets.token_hex(8)}"
    path.mkdir()
    return path


def _empty_set(unkept: str = "") -> CodeSet:
    """Return an empty code set. Its path is outside the cache, because the cache can be unreadable."""
    return CodeSet(compiled_code.SHARED / "none", unkept=unkept)


# -- numba ------------------------------------------------------------------------------------------------------------


@lru_cache
def configure_numba() -> None:
    """Make numba store compiled code in code sets, under symbol names that are unique across processes.

    Call this before the first function is decorated.
    """
    importlib.import_module("numba").config.CACHE_LOCATOR_CLASSES = f"{Locator.__module__}.{Locator.__qualname__}"
    cache = importlib.import_module("numba.core.caching").FunctionCache
    cache.save_overload = _save_into_sets(cache.save_overload)
    # Symbol numbers are random, because a counter with a random start would repeat numbers in forked processes.
    identity = importlib.import_module("numba.core.bytecode").FunctionIdentity
    identity._unique_ids = map(secrets.randbits, itertools.repeat(64))


def _save_into_sets(save: Callable[..., None]) -> Callable[..., None]:
    """Wrap numba's function that saves compiled code, so that it saves only into sets that this process compiles."""

    def save_overload(cache: Any, signature: Any, compiled: Any) -> None:
        for used in list(used_sets.values()):
            with used.writing() as may_write:
                if may_write and str(used.path) == cache.cache_path:
                    save(cache, signature, compiled)

    return save_overload


class Locator:
    """Cache locator that makes numba store compiled functions in the code set of their kind.

    It follows the protocol of NUMBA_CACHE_LOCATOR_CLASSES. Equal sources share sets, even in different checkouts.
    Functions that kinds share are compiled into the code of each kind, so they are not stored separately.
    """

    def __init__(self, used: CodeSet, disambiguator: str) -> None:
        self._path, self._identity, self._disambiguator = str(used.path), used.identity, disambiguator

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> Locator:
        path, line = Path(file).resolve(), str(function.__code__.co_firstlineno)
        for each in kinds.__path__:
            if path.is_relative_to(known := Path(each).resolve()):
                kind, *below = path.relative_to(known).parts[:-1] or ("",)
                if kind:
                    return cls(code_set(kind), ".".join((*below, line)))
        return cls(_empty_set(), line)

    def get_cache_path(self) -> str:
        return self._path

    def ensure_cache_path(self) -> None:
        """Do nothing. Recreating a missing folder would publish a set without its other files."""

    def get_source_stamp(self) -> str:
        """Return the identity of the code set as a stamp; numba ignores cached code with a different stamp."""
        return self._identity

    def get_disambiguator(self) -> str:
        return self._disambiguator
