"""Base class of kinds, and protocols for the other modules in a kind's folder.

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

#: Callback between chunks. Receives the first unit not yet computed; returning False makes the kernel stop there.
Tick: TypeAlias = Callable[[int], bool]


class Kind(ABC):
    """Definition of a kind. Its `definition.py` exports one instance as KIND and imports neither numpy nor a kernel.

    A kind overrides the hooks that it needs. Units of a `ProgramKind` subclass are executed by runners.
    """

    #: Version of the kind's model. Increase it when old and new partials must not be merged.
    model_version: ClassVar[int]
    #: One-sentence description of the kind for users.
    summary: ClassVar[str]
    #: Valid parameters that take only milliseconds to compute; used by self-tests and documentation.
    example: ClassVar[dict[str, Any]]
    #: Pydantic model of the parameters that users submit.
    parameters: ClassVar[type[BaseModel]]
    #: JSON Schema of the result, without $ref. If this is None, pages display the raw result. Pages use each `title` as
    #: a heading, and draw a histogram for the format "histogram". A histogram's value is a list of [integer, count]
    #: pairs, or counts with edges or with a start and a step.
    result_schema: ClassVar[Mapping[str, Any] | None] = None
    #: Kinds of marks (facts about integer ranges) that finished jobs prove, by name. Adjacent ranges are joined.
    mark_kinds: ClassVar[Mapping[str, MarkKind]] = {}
    #: Questions about a job that a small job of the same kind answers, as one-sentence descriptions by name.
    questions: ClassVar[Mapping[str, str]] = {}
    #: Binary data for plots of a job, by name: GET /api/jobs/{id}/NAME.bin.
    binaries: ClassVar[Mapping[str, Binary]] = {}
    #: Whether only the leading coordinator can submit jobs of this kind.
    is_for_leader: ClassVar[bool] = False
    #: Whether the kind's programs run until a user stops them. Endless programs occupy no slot of their runner.
    is_endless: ClassVar[bool] = False

    @abstractmethod
    def plan(self, parameters: Any) -> Plan:
        """Divide a job into units. Raise InvalidRequest, which names the parameter, if the job cannot be planned."""

    @abstractmethod
    def merge(self, left: Partial, right: Partial) -> Partial:
        """Merge two partials. Merging must be exact, associative and commutative."""

    @abstractmethod
    def result(self, spec: Spec, partial: Partial) -> dict[str, Any]:
        """Return the result that users read, computed only from the spec and the merged partial."""

    def title(self, parameters: Mapping[str, Any]) -> str:
        """Return a short one-line title for a job, such as "Threads: 8 cores, work stealing", from its stored
        parameters.

        If the title is empty, the job's first parameters are displayed instead.
        """
        return ""

    def marks(self, spec: Spec, result: dict[str, Any]) -> list[Mark]:
        """Return the marks that a finished job proved. Each mark's name is a key of `mark_kinds`."""
        return []

    def question(self, name: str, parameters: Mapping[str, Any], choice: Mapping[str, str]) -> dict[str, Any]:
        """Return the parameters of the job that answers a question from `questions`.

        `parameters` are the parameters of the job in question, and `choice` is the query string of the request. Raise
        InvalidRequest, which names the wrong entry, if `choice` is invalid.
        """
        raise NotImplementedError(name)

    def binary(self, name: str, answer: JsonReader) -> Callable[[Mapping[str, str]], bytes]:
        """Return a function from a request's query string to the bytes of an entry of `binaries`.

        The function is created once from the job's result, or from the answer to a question, and reused for later
        requests. It raises InvalidRequest if the query is invalid. `answer.value()` is the whole result. Read a result
        of several MB part by part, because parsing it at once blocks all other requests. Raise NotFound if the job has
        no such data.
        """
        raise NotImplementedError(name)


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishedUnit:
    """Unit of a program that exited with code 0."""

    unit: int
    #: Duration in seconds of the last attempt.
    seconds: float
    #: Number of attempts, including the last one.
    attempts: int
    worker: str
    #: JSON value returned by the unit, or None.
    value: Any


class Reference(Protocol):
    """Module `reference.py`: a slow, simple implementation that defines the correct results."""

    @staticmethod
    def run(spec: Spec, lo: int, hi: int) -> Partial: ...


class Kernel(Protocol):
    """Module `cpu_kernel.py` or `gpu_kernel.py`: pure computation without I/O."""

    @staticmethod
    def warm() -> None:
        """Compile all functions. A worker reports ready only afterwards."""

    @staticmethod
    def run(spec: Spec, lo: int, hi: int, tick: Tick) -> tuple[int, Partial]:
        """Compute units lo..upto-1 and return (upto, partial). `upto` is `hi` unless `tick` returned False.

        The partial equals the reference's partial of the same units, bit for bit.
        """
        ...


class GpuKernel(Kernel, Protocol):
    """Module `gpu_kernel.py`, which launches kernels compiled from `.cu` files."""

    #: All GPU sources of the kind, so that tests can compile and run them without a GPU.
    SOURCES: Sequence[Source]
