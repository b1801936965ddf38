"""Interface that every kind of job implements: the base class `Kind`, and protocols for its kernels and its reference.

Kinds import this module, never the registry. `docs/adding-a-kind.md` explains one kind step by step;
`tests/contract/test_every_kind.py` tests every kind against this contract.
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

#: Callback that a kernel calls regularly with the number of the next unit; if it returns False, the kernel stops.
Tick: TypeAlias = Callable[[int], bool]


class Kind(ABC):
    """Definition of a kind of job: its parameters, how to divide a job into units, and how to merge partial results.

    The kind's `definition.py` exports one instance as KIND and imports neither numpy nor a kernel. A kind overrides the
    hooks that it needs. Units of a `ProgramKind` subclass are executed by runners.
    """

    #: Version of the kind's computation. Increase it when old and new partial results must not be merged.
    model_version: ClassVar[int]
    #: One-sentence description of the kind for users.
    summary: ClassVar[str]
    #: Valid parameters that take only milliseconds to compute; used by self-tests and documentation.
    example: ClassVar[dict[str, Any]]
    #: Pydantic model of the parameters that users submit.
    parameters: ClassVar[type[BaseModel]]
    #: JSON Schema of a job's result, without $ref; if it is None, web pages display the raw result.
    #: Web pages use each `title` as a heading, and draw a histogram for values with the format "histogram".
    #: A histogram is a list of [integer, count] pairs, or counts with edges, or counts with a start and a step.
    result_schema: ClassVar[Mapping[str, Any] | None] = None
    #: Descriptions of the kind's marks, by name. A mark is a fact that finished jobs proved about a range of integers.
    mark_kinds: ClassVar[Mapping[str, MarkKind]] = {}
    #: Descriptions, by name, of the questions about a job that a second, small job of the same kind can answer.
    questions: ClassVar[Mapping[str, str]] = {}
    #: Binary data of a job that web pages plot, by name; served at GET /api/jobs/{id}/NAME.bin.
    binaries: ClassVar[Mapping[str, Binary]] = {}
    #: Whether only the leading coordinator can submit jobs of this kind.
    is_for_leader: ClassVar[bool] = False
    #: Whether programs of this kind run until they are stopped; such programs occupy no slot of their runner.
    is_endless: ClassVar[bool] = False

    @abstractmethod
    def plan(self, parameters: Any) -> Plan:
        """Divide a job into units. Raise InvalidRequest, naming the invalid parameter, if that is impossible."""

    @abstractmethod
    def merge(self, left: Partial, right: Partial) -> Partial:
        """Merge two partial results. Merging must be exact, associative and commutative."""

    @abstractmethod
    def result(self, spec: Spec, partial: Partial) -> dict[str, Any]:
        """Return the job's result for users, computed only from the job's spec and the merged partial result."""

    def title(self, parameters: Mapping[str, Any]) -> str:
        """Return a one-line title for a job with these parameters, such as "Threads: 8 cores, work stealing".

        If the title is empty, the job's first parameters are displayed instead.
        """
        return ""

    def marks(self, spec: Spec, result: dict[str, Any]) -> list[Mark]:
        """Return the facts about integer ranges (marks) that a finished job proved.

        Each mark's name is a key of `mark_kinds`.
        """
        return []

    def question(self, name: str, parameters: Mapping[str, Any], choice: Mapping[str, str]) -> dict[str, Any]:
        """Return the parameters of a small job that answers the named question about another job.

        `parameters` are the parameters of that other job, and `choice` is the query string of the request. Raise
        InvalidRequest, which names the wrong entry, if `choice` is invalid.
        """
        raise NotImplementedError(name)

    def binary(self, name: str, answer: JsonReader) -> Callable[[Mapping[str, str]], bytes]:
        """Return a function that encodes the named binary data of a job for the query string of a request.

        The function is created once from the job's result, or from the answer to a question, and reused for later
        requests. It raises InvalidRequest if the query is invalid. `answer.value()` is the whole result. Read a result
        of several MB part by part, because parsing it at once blocks all other requests. Raise NotFound if the job has
        no such data.
        """
        raise NotImplementedError(name)


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishedUnit:
    """Unit whose program exited with code 0."""

    unit: int
    #: Duration in seconds of the last attempt.
    seconds: float
    #: Number of attempts, including the last one.
    attempts: int
    worker: str
    #: JSON value returned by the unit, or None.
    value: Any


class Reference(Protocol):
    """Module `reference.py` of a kind: a slow, simple implementation that defines the correct results."""

    @staticmethod
    def run(spec: Spec, lo: int, hi: int) -> Partial: ...


class Kernel(Protocol):
    """Module `cpu_kernel.py` or `gpu_kernel.py` of a kind: the fast computation of its units, without I/O."""

    @staticmethod
    def warm() -> None:
        """Compile all functions of the kernel. Workers call it in the background, before they take jobs of the kind."""

    @staticmethod
    def run(spec: Spec, lo: int, hi: int, tick: Tick) -> tuple[int, Partial]:
        """Compute units lo..upto-1 and return (upto, partial result). `upto` is `hi` unless `tick` returned False.

        The partial result equals the reference's partial result of the same units, bit for bit.
        """
        ...


class GpuKernel(Kernel, Protocol):
    """Module `gpu_kernel.py` of a kind, which launches CUDA kernels compiled from `.cu` files."""

    #: All CUDA source files of the kind; tests compile and run them without a GPU.
    SOURCES: Sequence[Source]
