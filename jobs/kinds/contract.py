"""Protocols of the modules in a kind's folder. Kinds import this and never the registry.

`docs/adding-a-kind.md` walks through one kind; `tests/contract/test_every_kind.py` holds every kind to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from pydantic import BaseModel

from jobs.json_reader import JsonReader
from jobs.kinds.gpu import Source
from jobs.models import Binary, Mark, MarkKind, Partial, Plan, Spec

#: Called between chunks with the number of the first unit not yet computed; False asks the kernel to stop there.
Tick: TypeAlias = Callable[[int], bool]


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


class Describing(Definition, Protocol):
    """A definition that says what its results hold, for pages that show any kind."""

    #: JSON Schema of `result`, without references. A page takes each `title` as a heading, and draws what has the
    #: format "histogram": a list of [whole number, count], or counts with their edges or with start and step.
    RESULT: Mapping[str, Any]


class Naming(Definition, Protocol):
    """A definition that names its jobs for people; others are named by their first parameters."""

    @staticmethod
    def title(parameters: Mapping[str, Any]) -> str:
        """Return a job's name by its recorded parameters, such as "Threads: 8 cores, work stealing": one short line."""
        ...


class Packing(Definition, Protocol):
    """A definition that gives numbers about a job as bytes, for drawing."""

    #: By name: GET /api/jobs/{id}/NAME.bin.
    BINARIES: Mapping[str, Binary]

    @staticmethod
    def binary(name: str, answer: JsonReader) -> Callable[[Mapping[str, str]], bytes]:
        """A function from a request's query to bytes, made once of the job's result or of the answer to a question, and
        kept for later requests. It raises InvalidRequest naming what is wrong in the query.

        `answer.value()` is the whole result. One of several MB is read part by part: to parse it at once stops all
        other requests meanwhile. Raises NotFound when the job has no such numbers.
        """
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishedUnit:
    """Unit of a program that ended with exit code 0."""

    unit: int
    #: Of its last attempt.
    seconds: float
    #: Attempts, the last one too.
    attempts: int
    worker: str
    #: JSON value that it gave, or None.
    value: Any


class Running(Definition, Protocol):
    """A definition whose units are programs. Runners execute them: it has neither kernels nor a reference."""

    @staticmethod
    def artifacts(parameters: Any) -> Mapping[str, str]:
        """Artifacts that the parameters name, each by its id or name: by the parameter that names it."""
        ...

    @staticmethod
    def secrets(parameters: Any) -> Sequence[str]:
        """Names of the secrets that its programs are given."""
        ...

    @staticmethod
    def complaint(partial: Partial, lo: int, hi: int, worker: str) -> str:
        """Return why a partial is not that of the units lo..hi-1, all run by this worker; empty when it is."""
        ...

    @staticmethod
    def finished_ranges(partial: Partial) -> Iterable[tuple[int, int]]:
        """Ranges lo, hi of the units lo..hi-1 that the partial covers, in their order."""
        ...

    @staticmethod
    def finished_units(partial: Partial, lo: int, hi: int) -> Iterable[FinishedUnit]:
        """Those of the units lo..hi-1 that the partial covers, in their order."""
        ...


class Reference(Protocol):
    """`reference.py`: the slow obvious version, the truth."""

    @staticmethod
    def run(spec: Spec, lo: int, hi: int) -> Partial: ...


class Kernel(Protocol):
    """`cpu_kernel.py`, `gpu_kernel.py`: numbers in, numbers out."""

    @staticmethod
    def warm() -> None:
        """Compile everything: a worker reports ready after it."""

    @staticmethod
    def run(spec: Spec, lo: int, hi: int, tick: Tick) -> tuple[int, Partial]:
        """(upto, partial of units lo..upto-1); upto is hi unless `tick` answered False.

        Equals the reference's partial of the same units, bit for bit.
        """
        ...


class GpuKernel(Kernel, Protocol):
    """`gpu_kernel.py`: launches what it compiles from `.cu` files."""

    #: All of them, so that they are compiled and tested without a GPU.
    SOURCES: Sequence[Source]
