"""Lists the kinds and loads one kernel by (kind, device), lazily. The only module that loads kernels.

A kind is a folder of `jobs/kinds` with a `definition.py`. The modules it may hold and what they must offer are the
protocols below; `docs/adding-a-kind.md` walks through one.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import pkgutil
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, cast

from pydantic import BaseModel

from jobs import errors, kinds
from jobs.models import Binary, Device, Mark, MarkKind, Partial, Plan, Spec

#: Where compiled kernels are kept when NUMBA_CACHE_DIR does not say.
CACHE_FOLDER = Path(__file__).resolve().parents[2] / ".cluster" / "cache" / "numba"
#: Called between chunks with the number of the first unit not yet computed; False asks the kernel to stop there.
Tick = Callable[[int], bool]


class Definition(Protocol):
    """`definition.py`: what the work is. Imports neither numpy nor a kernel."""

    #: Must change when partials of the old and the new code must not be merged.
    MODEL_VERSION: int
    #: One sentence for people.
    SUMMARY: str
    #: A valid set of parameters that takes milliseconds; used by self-tests and documentation.
    EXAMPLE: dict[str, Any]
    Parameters: type[BaseModel]

    @staticmethod
    def plan(parameters: Any) -> Plan: ...

    @staticmethod
    def merge(left: Partial, right: Partial) -> Partial: ...

    @staticmethod
    def result(spec: Spec, partial: Partial) -> dict[str, Any]: ...


class Marking(Definition, Protocol):
    """A definition whose finished jobs leave marks: facts about ranges that outlive the jobs."""

    #: By name; their ranges are joined where they touch.
    MARKS: Mapping[str, MarkKind]

    @staticmethod
    def marks(spec: Spec, result: dict[str, Any]) -> list[Mark]: ...


class Asking(Definition, Protocol):
    """A definition that answers questions about a job by computing: each is a small job of the same kind."""

    #: One sentence for people, by name.
    QUESTIONS: Mapping[str, str]

    @staticmethod
    def question(name: str, parameters: Mapping[str, Any], choice: Mapping[str, str]) -> dict[str, Any]:
        """Parameters of the job that answers. `parameters` are the job's own, `choice` the query of the request.

        Raises InvalidRequest naming what is wrong in `choice`.
        """
        ...


class Packing(Definition, Protocol):
    """A definition that gives numbers about a job as bytes, for drawing."""

    #: By name: GET /api/jobs/{id}/NAME.bin.
    BINARIES: Mapping[str, Binary]

    @staticmethod
    def binary(name: str, found: Mapping[str, Any]) -> Callable[[Mapping[str, str]], bytes]:
        """What gives the bytes, made once of the stored result or answer and kept for later requests.

        It takes the query's `choices`, and raises InvalidRequest naming what is wrong in them. `binary` itself raises
        NotFound when the job has nothing of the kind.
        """
        ...


class Reference(Protocol):
    """`reference.py`: the slow obvious version, the truth."""

    @staticmethod
    def run(spec: Spec, lo: int, hi: int) -> Partial: ...


class Kernel(Protocol):
    """`cpu_kernel.py`, `gpu_kernel.py`: numbers in, numbers out."""

    @staticmethod
    def warm() -> None: ...

    @staticmethod
    def run(spec: Spec, lo: int, hi: int, tick: Tick) -> tuple[int, Partial]: ...


@lru_cache
def names() -> tuple[str, ...]:
    """Names of all kinds, sorted."""
    return tuple(sorted(entry.name for entry in pkgutil.iter_modules(kinds.__path__) if entry.ispkg))


@lru_cache
def definition(kind: str) -> Definition:
    """The kind's definition module; UnknownKind names the kinds there are."""
    if kind not in names():
        known = ", ".join(names())
        raise errors.UnknownKind(f"type must be one of {known}; got {kind!r}", field="type")
    return cast(Definition, importlib.import_module(f"jobs.kinds.{kind}.definition"))


@lru_cache
def versions() -> Mapping[str, int]:
    """The version of each kind's model: partials of two are never merged."""
    return {kind: definition(kind).MODEL_VERSION for kind in names()}


def marking(kind: str) -> Marking | None:
    """The kind's definition when its jobs leave marks."""
    found = definition(kind)
    return cast(Marking, found) if hasattr(found, "MARKS") else None


def asking(kind: str) -> Asking | None:
    """The kind's definition when it answers questions."""
    found = definition(kind)
    return cast(Asking, found) if hasattr(found, "QUESTIONS") else None


def packing(kind: str) -> Packing | None:
    """The kind's definition when it gives numbers as bytes."""
    found = definition(kind)
    return cast(Packing, found) if hasattr(found, "BINARIES") else None


@lru_cache
def reference(kind: str) -> Reference:
    definition(kind)
    return cast(Reference, importlib.import_module(f"jobs.kinds.{kind}.reference"))


@lru_cache
def keep_compiled_code_apart() -> None:
    """Names numba's cache after a checksum of every kind's sources.

    numba looks only at the file of the decorated function: after a change in a file that it calls, it would go on
    running the old code.
    """
    config = importlib.import_module("numba").config
    sources = sorted(path for folder in kinds.__path__ for path in Path(folder).glob("*/*.py"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    config.CACHE_DIR = str(Path(config.CACHE_DIR or CACHE_FOLDER) / digest)


@contextmanager
def one_compiles() -> Iterator[None]:
    """Waits while another process fills numba's cache. Once one has left this without an error, nobody waits."""
    keep_compiled_code_apart()
    numba = importlib.import_module("numba")
    target = importlib.import_module("numba.core.registry").cpu_target.target_context.codegen().magic_tuple()
    known = hashlib.sha256(repr((numba.__version__, platform.python_version(), target)).encode()).hexdigest()[:16]
    folder = Path(numba.config.CACHE_DIR)
    folder.mkdir(parents=True, exist_ok=True)
    mark = folder / f"compiled-{known}"
    with (folder / "lock").open("a") as lock:
        if not mark.exists():
            fcntl.flock(lock, fcntl.LOCK_EX)
        if mark.exists():
            fcntl.flock(lock, fcntl.LOCK_UN)
        yield
        mark.touch()


@lru_cache
def kernel(kind: str, device: Device) -> Kernel:
    """The kernel of a kind for a device. Importing it may import numba or cupy: workers' lanes only."""
    definition(kind)
    keep_compiled_code_apart()
    name = f"jobs.kinds.{kind}.{device}_kernel"
    try:
        return cast(Kernel, importlib.import_module(name))
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise errors.NoKernel(f"kind {kind} has no kernel for {device}") from error
