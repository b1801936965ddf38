"""Base class of kinds, and protocols of the other modules in a kind's folder. Kinds import this, never the registry.

`docs/adding-a-kind.md` walks through one kind; `tests/contract/test_every_kind.py` holds every kind to it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias

from pydantic import BaseModel

from jobs.encoding.json_reader import JsonReader
from jobs.kinds.gpu import Source
from jobs.models import Binary, Mark, MarkKind, Partial, Plan, Spec

#: Called between chunks with the number of the first unit not yet computed; False asks the kernel to stop there.
Tick: TypeAlias = Callable[[int], bool]


class Kind(ABC):
    """The work of a kind. Its `definition.py` has one as KIND, and imports neither numpy nor a kernel.

    A kind overrides the hooks that it needs. A subclass of `ProgramKind` has its units run by runners.
    """

    #: Must change when partials of the old and the new code must not be merged.
    model_version: ClassVar[int]
    #: One sentence for people.
    summary: ClassVar[str]
    #: A valid set of parameters that takes milliseconds; used by self-tests and documentation.
    example: ClassVar[dict[str, Any]]
    #: Model of the parameters that users submit.
    parameters: ClassVar[type[BaseModel]]
    #: JSON Schema of `result`, without references. A page takes each `title` as a heading, and draws what has the
    #: format "histogram": a list of [whole number, count], or counts with their edges or with start and step.
    #: None: pages show results as they are.
    result_schema: ClassVar[Mapping[str, Any] | None] = None
    #: Facts about ranges that finished jobs leave, by name; ranges are joined where they touch.
    mark_kinds: ClassVar[Mapping[str, MarkKind]] = {}
    #: Questions about a job that a small job of the same kind answers: one sentence for people, by name.
    questions: ClassVar[Mapping[str, str]] = {}
    #: Numbers about a job as bytes, for drawing, by name: GET /api/jobs/{id}/NAME.bin.
    binaries: ClassVar[Mapping[str, Binary]] = {}
    #: Only the leading coordinator submits jobs of the kind.
    is_for_leader: ClassVar[bool] = False
    #: Its programs run until a user ends them, and take no slot of their runner.
    is_endless: ClassVar[bool] = False

    @abstractmethod
    def plan(self, parameters: Any) -> Plan:
        """Lay out the units of a job. Raise InvalidRequest naming the parameter."""

    @abstractmethod
    def merge(self, left: Partial, right: Partial) -> Partial:
        """Return both partials as one: exact, associative and commutative."""

    @abstractmethod
    def result(self, spec: Spec, partial: Partial) -> dict[str, Any]:
        """Return the result that users read: a function of the spec and of the merged partial alone."""

    def title(self, parameters: Mapping[str, Any]) -> str:
        """Return a job's name by its recorded parameters, such as "Threads: 8 cores, work stealing": one short line.

        Empty: the job is named by its first parameters.
        """
        return ""

    def marks(self, spec: Spec, result: dict[str, Any]) -> list[Mark]:
        """Return the marks that a finished job leaves, each of one of `mark_kinds`."""
        return []

    def question(self, name: str, parameters: Mapping[str, Any], choice: Mapping[str, str]) -> dict[str, Any]:
        """Return the parameters of the job that answers one of `questions`.

        `parameters` are those of the job that is asked about, `choice` is the query of the request. Raise
        InvalidRequest naming what is wrong in `choice`.
        """
        raise NotImplementedError(name)

    def binary(self, name: str, answer: JsonReader) -> Callable[[Mapping[str, str]], bytes]:
        """Return a function from a request's query to the bytes of one of `binaries`.

        It is made once of the job's result, or of the answer to a question, and kept for later requests. It raises
        InvalidRequest naming what is wrong in the query. `answer.value()` is the whole result. One of several MB is
        read part by part: to parse it at once stops all other requests meanwhile. Raise NotFound when the job has no
        such numbers.
        """
        raise NotImplementedError(name)


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
