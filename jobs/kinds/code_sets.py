"""Sets of compiled code. A set holds a kind's compiled functions and tables for one device, all made by one process.

A process compiles into a folder of its own. It renames the folder once everything is compiled, so others see a whole
set or none. A published set never changes: code that is compiled later, for other types of arguments, is not kept.

numba names the symbols of compiled functions by a counter that starts at 1 in each process. Two processes can therefore
give one name to different functions. The JIT linker takes the first body that it loads for both, and results are wrong.
Here each compiled function has a random number instead, so code of several processes can be loaded into one, in any
order.
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

#: Prefix of the names of folders in which a process compiles, or did before it was killed.
_UNFINISHED = "unfinished-"


@dataclass
class CodeSet:
    """A set of compiled code that this process reads or writes."""

    #: Its folder. If there is no such folder, the set is empty.
    path: Path
    #: Locked file while this process compiles the set; None: the process adds nothing to it.
    lock: IO[str] | None = None
    #: Why code that this process compiled is not kept; empty if it is.
    unkept: str = ""

    @property
    def identity(self) -> str:
        """The random part of the folder's name, which stays when the folder is renamed."""
        return self.path.name.rpartition("-")[2]

    @contextmanager
    def writing(self) -> Iterator[bool]:
        """Yield whether this process may add a file. An OSError abandons the set, since it would lack the file."""
        try:
            yield self.lock is not None
        except OSError as error:
            self.abandon(str(error))

    def publish(self) -> None:
        """Show other processes the set that this one has compiled."""
        with self.writing() as may_write:
            if may_write:
                self.path = self.path.rename(self.path.with_name(self.path.name.removeprefix(_UNFINISHED)))
        self._unlock()

    def abandon(self, why: str) -> None:
        """Remove the set if it is not published. Other processes no longer wait for it."""
        if self.lock is not None:
            self.unkept = why
            shutil.rmtree(self.path, ignore_errors=True)
            self._unlock()

    def _unlock(self) -> None:
        if self.lock is not None:
            self.lock.close()
            self.lock = None


#: Sets that this process uses, by kind.
_used: dict[str, CodeSet] = {}


def code_set(kind: str) -> CodeSet:
    """Return the set of a kind that this process uses.

    That is a published set of a CPU, or an empty one, unless the process has called `compile_once` for the kind.
    """
    if kind not in _used:
        _used[kind] = _published(kind, Device.CPU) or _empty()
    return _used[kind]


def unkept() -> Mapping[str, str]:
    """Return why compiled code is not kept, by kind, for the kinds that this process compiled in vain."""
    return {kind: used.unkept for kind, used in _used.items() if used.unkept}


@contextmanager
def compile_once(kind: str, device: Device = Device.CPU, *, wait: bool = True, anew: bool = False) -> Iterator[bool]:
    """Yield True when this process may load the kind's kernel for the device, or compile it.

    One process compiles and publishes the set; others wait and then load it. Without `wait`, yield False while another
    process compiles. If `anew`, drop published sets first. The kernel must not be imported before.
    """
    configure_numba()
    used = None if anew else _load(kind, device)
    used = used or _begin(kind, device, wait=wait, anew=anew)
    if used is None:
        yield False
        return
    try:
        yield True
    except BaseException as error:
        used.abandon(f"{type(error).__name__}: {error}")
        raise
    if not compiled_code.is_unchanged(kind):
        used.abandon("its sources have changed since this process began")
    used.publish()


def _load(kind: str, device: Device) -> CodeSet | None:
    """Use the published set of a kind, if there is one."""
    found = _published(kind, device)
    if found is not None:
        _used[kind] = found
    return found


def _published(kind: str, device: Device) -> CodeSet | None:
    """Return the published set of a kind, if there is one. It is kept while this process lives."""
    folder = compiled_code.folder(kind)
    compiled_code.use(folder)
    return next((CodeSet(path) for path in sorted(folder.glob(f"{device}-*"))), None)


def _begin(kind: str, device: Device, *, wait: bool, anew: bool) -> CodeSet | None:
    """Use a new set, or one that another process has just published. Return None while another process compiles."""
    if kind in _used:  # for functions that were imported before, numba has already asked where they are kept
        return _used[kind]
    folder = compiled_code.folder(kind)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            lock = stack.enter_context((folder / f"lock-{device}").open("a"))
            if not _is_locked(lock, wait=wait):
                return None
            if not anew and (found := _load(kind, device)):
                return found
            _used[kind] = CodeSet(_create(folder, device), lock)
            stack.pop_all()
    except OSError as error:
        _used[kind] = _empty(unkept=str(error))
    return _used[kind]


def _is_locked(lock: IO[str], *, wait: bool) -> bool:
    """Lock a file. Without `wait`, return False if another process has locked it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _create(folder: Path, device: Device) -> Path:
    """Create the folder of a new set. Remove published sets, and those of processes that were killed."""
    for published in folder.glob(f"{device}-*"):
        published.rename(published.with_name(_UNFINISHED + published.name))
    for unfinished in folder.glob(f"{_UNFINISHED}{device}-*"):
        shutil.rmtree(unfinished, ignore_errors=True)
    path = folder / f"{_UNFINISHED}{device}-{secrets.token_hex(8)}"
    path.mkdir()
    return path


def _empty(unkept: str = "") -> CodeSet:
    """Return a set whose folder does not exist. Not one in the cache: reading there may fail in other ways."""
    return CodeSet(compiled_code.SHARED / "none", unkept=unkept)


# -- numba ------------------------------------------------------------------------------------------------------------


@lru_cache
def configure_numba() -> None:
    """Have numba keep compiled code in sets, under names that differ from those of other processes. Must come before
    the first decorated function.
    """
    importlib.import_module("numba").config.CACHE_LOCATOR_CLASSES = f"{Locator.__module__}.{Locator.__qualname__}"
    cache = importlib.import_module("numba.core.caching").FunctionCache
    cache.save_overload = _save_into_sets(cache.save_overload)
    # Not a counter that starts at random: processes that fork would go on with the same numbers.
    identity = importlib.import_module("numba.core.bytecode").FunctionIdentity
    identity._unique_ids = map(secrets.randbits, itertools.repeat(64))


def _save_into_sets(save: Callable[..., None]) -> Callable[..., None]:
    """Return numba's function that saves a compiled function, limited to sets which this process compiles."""

    def save_overload(cache: Any, signature: Any, compiled: Any) -> None:
        for used in list(_used.values()):
            with used.writing() as may_write:
                if may_write and str(used.path) == cache.cache_path:
                    save(cache, signature, compiled)

    return save_overload


class Locator:
    """numba's cache locator, by the protocol of NUMBA_CACHE_LOCATOR_CLASSES.

    Equal sources share sets wherever the checkout lies. What kinds share is part of the code of each, so it is not kept
    by itself.
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
        return cls(_empty(), line)

    def get_cache_path(self) -> str:
        return self._path

    def ensure_cache_path(self) -> None:
        """Do nothing: a folder that is missing must not be created again without the files that it had."""

    def get_source_stamp(self) -> str:
        """Return what the index of a function must hold. That of another set is not read."""
        return self._identity

    def get_disambiguator(self) -> str:
        return self._disambiguator
