"""Parameters of the kind `thread`. Rules between two fields are here or in `definition.py`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Any, Literal, TypeAlias

from annotated_types import GroupedMetadata
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, WithJsonSchema, field_validator
from pydantic_core import PydanticCustomError

from jobs.encoding.numbers import ExactInt
from threads_protocol.numbers import JSON_SAFE, short

SCHEDULERS = ("fifo", "lifo", "round_robin", "work_stealing")
MAX_CORES = 64
MAX_CELLS = 32
MAX_THREADS = 4_194_304
DEFAULT_QUANTUM_US = 1000.0
#: Maximum work in us of a pareto law, and of the slower hyperexponential branch, so that products fit in 63 bits.
_MAX_PARETO_US = 1e8
_MAX_BRANCH_US = 1.2e7


class Number(GroupedMetadata):
    """Pydantic field type for a finite number in [low, high]; rejects booleans."""

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = low, high

    def _read(self, value: Any) -> float:
        if isinstance(value, int | float) and not isinstance(value, bool) and self.low <= value <= self.high:
            return float(value)
        bounds = {"low": f"{self.low:.10g}", "high": f"{self.high:.10g}", "got": short(value)}
        raise PydanticCustomError("bounds", "must be a number in {low}..{high}; got {got}", bounds)

    def __iter__(self) -> Iterator[Any]:
        yield BeforeValidator(self._read)
        yield WithJsonSchema({"type": "number", "minimum": self.low, "maximum": self.high})


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


Children: TypeAlias = Annotated[int, ExactInt(0, 64)]
MeanChildren: TypeAlias = Annotated[float, Number(0, 16)]
Microseconds: TypeAlias = Annotated[float, Number(0.001, 1e6)]
CostMicroseconds: TypeAlias = Annotated[float, Number(0, 1e4)]
Shape: TypeAlias = Literal["constant", "linear"]
_SHAPE = "constant, or linear: the mean times 1 - depth/max_depth"


class FixedSpawn(Strict):
    distribution: Literal["fixed"]
    children: Children = Field(description="number of children of every thread above max_depth")


class BinomialSpawn(Strict):
    distribution: Literal["binomial"]
    children: Children = Field(description="number of children of a thread that has children")
    probability: Annotated[float, Number(0, 1)] = Field(description="probability that a thread has children")
    shape: Shape = Field(default="constant", description=_SHAPE)


class GeometricSpawn(Strict):
    distribution: Literal["geometric"]
    mean: MeanChildren = Field(description="mean number of children, before the limit of 64")
    shape: Shape = Field(default="constant", description=_SHAPE)


class PoissonSpawn(Strict):
    distribution: Literal["poisson"]
    mean: MeanChildren = Field(description="mean number of children, before the limit of 64")
    shape: Shape = Field(default="constant", description=_SHAPE)


class PmfSpawn(Strict):
    distribution: Literal["pmf"]
    probabilities: list[Annotated[float, Number(0, 1)]] = Field(
        min_length=1, max_length=65, description="probabilities of 0, 1, 2, ... children, which sum to 1"
    )

    @field_validator("probabilities")
    @classmethod
    def _sums_to_one(cls, value: list[float]) -> list[float]:
        if abs(sum(value) - 1) > 1e-9:
            raise PydanticCustomError(
                "sum", "must sum to 1 within 1e-9; got a sum of {sum}", {"sum": f"{sum(value):.12g}"}
            )
        return value


class FixedWork(Strict):
    distribution: Literal["fixed"]
    mean_us: Microseconds = Field(description="work of every thread, microseconds")


class UniformWork(Strict):
    distribution: Literal["uniform"]
    min_us: Microseconds = Field(description="minimum work, microseconds")
    max_us: Microseconds = Field(description="maximum work, microseconds")

    @field_validator("max_us")
    @classmethod
    def _ordered(cls, value: float, info: ValidationInfo) -> float:
        low = info.data.get("min_us", value)
        if value < low:
            raise PydanticCustomError("order", "must be at least min_us ({low}); got {got}", {"low": low, "got": value})
        return value


class ExponentialWork(Strict):
    distribution: Literal["exponential"]
    mean_us: Microseconds = Field(description="mean work, microseconds")


class HyperexponentialWork(Strict):
    distribution: Literal["hyperexponential"]
    mean_us: Microseconds = Field(description="mean work, microseconds")
    scv: Annotated[float, Number(1, 100)] = Field(description="squared coefficient of variation: variance / mean^2")

    @field_validator("scv")
    @classmethod
    def _slow_branch_fits(cls, value: float, info: ValidationInfo) -> float:
        slow = info.data.get("mean_us", 0.0) / (1 - ((value - 1) / (value + 1)) ** 0.5)
        if slow > _MAX_BRANCH_US:
            values = {"slow": f"{slow:.3g}", "most": f"{_MAX_BRANCH_US:.3g}"}
            raise PydanticCustomError(
                "overflow", "makes the slower branch {slow} us long; the maximum is {most}", values
            )
        return value


class ParetoWork(Strict):
    distribution: Literal["pareto"]
    mean_us: Microseconds = Field(description="mean work, microseconds")
    alpha: Annotated[float, Number(1.05, 10)] = Field(description="tail exponent")
    max_ratio: Annotated[float, Number(1, 1e4)] = Field(description="ratio of longest to mean work")

    @field_validator("max_ratio")
    @classmethod
    def _longest_fits(cls, value: float, info: ValidationInfo) -> float:
        longest = info.data.get("mean_us", 0.0) * value
        if longest > _MAX_PARETO_US:
            values = {"longest": f"{longest:.3g}", "most": f"{_MAX_PARETO_US:.3g}"}
            raise PydanticCustomError("overflow", "makes the longest work {longest} us; the maximum is {most}", values)
        return value


class EmpiricalWork(Strict):
    distribution: Literal["empirical"]
    quantiles_us: list[Microseconds] = Field(
        min_length=2, max_length=1024, description="equidistant quantiles from 0 to 1 in ascending order, microseconds"
    )

    @field_validator("quantiles_us")
    @classmethod
    def _nondecreasing(cls, value: list[float]) -> list[float]:
        for index, (low, high) in enumerate(pairwise(value), 1):
            if high < low:
                values = {"index": index, "high": high, "low": low}
                raise PydanticCustomError("order", "must not decrease; got {high} at {index} after {low}", values)
        return value


class BatchArrival(Strict):
    process: Literal["batch"]


class PoissonArrival(Strict):
    process: Literal["poisson"]
    rate_per_ms: Annotated[float, Number(1e-4, 1e6)] = Field(description="roots per millisecond")
    warmup_roots: Annotated[int, ExactInt(0, 999_999)] = Field(
        default=0, description="first roots to ignore in latency"
    )


class Trace(Strict):
    replica: Annotated[int, ExactInt(0, 16_777_215)] = Field(default=0, description="replica to trace")
    max_events: Annotated[int, ExactInt(1, 250_000)] = Field(default=100_000, description="maximum events in the trace")
    cell: Annotated[int, ExactInt(0, MAX_CELLS - 1)] = Field(default=0, description="cell to trace")


Spawn: TypeAlias = FixedSpawn | BinomialSpawn | GeometricSpawn | PoissonSpawn | PmfSpawn
Work: TypeAlias = FixedWork | UniformWork | ExponentialWork | HyperexponentialWork | ParetoWork | EmpiricalWork
Arrival: TypeAlias = BatchArrival | PoissonArrival


def _sweep(value: Any, allowed: tuple[Any, ...], most: int, what: str) -> Any:
    """Validate a parameter that is one of the `allowed` values, or a list of 1..most different allowed values.

    Integers can be written as 8 or "8" in JSON.
    """
    entries = value if isinstance(value, list) else [value]
    known = {str(each): each for each in allowed}
    members = [known.get(each if isinstance(each, str) else short(each)) for each in entries]
    if None in members or not 1 <= len(members) <= most or len(set(members)) < len(members):
        values = {"what": what, "most": most, "got": short(value)}
        raise PydanticCustomError(
            "sweep", "must be {what}, or a list of 1 to {most} different values; got {got}", values
        )
    return members if isinstance(value, list) else members[0]


def _cores(value: Any) -> Any:
    return _sweep(value, tuple(range(1, MAX_CORES + 1)), 16, f"an integer in 1..{MAX_CORES}")


def _schedulers(value: Any) -> Any:
    return _sweep(value, SCHEDULERS, 4, f"one of {', '.join(SCHEDULERS)}")


def _sweep_schema(one: dict[str, Any], most: int) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [one, {"type": "array", "items": one, "minItems": 1, "maxItems": most}]})


Cores: TypeAlias = Annotated[
    int | list[int],
    BeforeValidator(_cores),
    _sweep_schema({"type": "integer", "minimum": 1, "maximum": MAX_CORES}, 16),
]
Schedulers: TypeAlias = Annotated[
    str | list[str], BeforeValidator(_schedulers), _sweep_schema({"type": "string", "enum": list(SCHEDULERS)}, 4)
]


class Parameters(Strict):
    """Parameters of a Monte-Carlo simulation of recursively spawned threads on a finite machine."""

    thread_count: Annotated[int, ExactInt(1, 1_000_000)] = Field(default=1000, description="root threads per replica")
    max_depth: Annotated[int, ExactInt(0, 64)] = Field(
        default=10, description="maximum depth of a thread; roots have depth 0"
    )
    batch_size: Annotated[int, ExactInt(1, 65_536)] | None = Field(
        default=None,
        description="maximum replicas per kernel launch; null: chosen by the device; never changes a result",
    )
    replicas: Annotated[int, ExactInt(1, 16_777_216)] = Field(default=1024, description="independent replicas per cell")
    seed: Annotated[int, ExactInt(0, JSON_SAFE)] | None = Field(
        default=None, description="master seed; null: a random seed, which is recorded"
    )
    cores: Cores = Field(default=8, description="number of cores; a list creates one cell per number")
    scheduler: Schedulers = Field(
        default="work_stealing", description="scheduling policy; a list creates one cell per policy"
    )
    join: Literal["none", "suspend", "block"] = Field(
        default="suspend",
        description="what a thread does after spawning: end, release its core and wait, or wait on its core",
    )
    spawn: Spawn = Field(
        default=BinomialSpawn(distribution="binomial", children=2, probability=0.4),
        discriminator="distribution",
        description="distribution of the number of children of a thread above max_depth",
    )
    work: Work = Field(
        default=ExponentialWork(distribution="exponential", mean_us=100.0),
        discriminator="distribution",
        description="distribution of a thread's compute time",
    )
    dispatch_cost_us: CostMicroseconds = Field(default=1.0, description="cost of each dispatch, microseconds")
    spawn_cost_us: CostMicroseconds = Field(default=0.1, description="cost per child for the parent, microseconds")
    join_cost_us: CostMicroseconds = Field(
        default=0.0,
        description="cost of continuing after the last child, microseconds; only with join suspend or block",
    )
    steal_cost_us: Annotated[float, Number(0.01, 1e4)] = Field(
        default=1.0, description="cost of a steal attempt, successful or not, microseconds; only with work_stealing"
    )
    quantum_us: Annotated[float, Number(1, 1e6)] | None = Field(
        default=None, description="time slice of round_robin, microseconds; null: 1000; only with round_robin"
    )
    arrival: Arrival = Field(
        default=BatchArrival(process="batch"), discriminator="process", description="when root threads become ready"
    )
    max_threads: Annotated[int, ExactInt(1, MAX_THREADS)] = Field(
        default=1_000_000, description="maximum threads created in a replica, at least thread_count; later spawns fail"
    )
    stack_kib: Annotated[float, Number(0, 1e6)] = Field(
        default=1024.0, description="stack size of a thread in KiB; affects only the reported peak memory"
    )
    confidence: Annotated[float, Number(0.5, 0.9999)] = Field(
        default=0.95, description="confidence level of the reported intervals"
    )
    trace: Trace | None = Field(
        default=None,
        description="replica to record as a Chrome trace, which is then the job's only result; null: no trace",
    )

    @property
    def cells(self) -> list[tuple[int, str]]:
        """Return the number of cores and the scheduler of every simulated machine (cell), in the order of units.

        All schedulers for the first number of cores come first.
        """
        return [(cores, scheduler) for cores in _as_list(self.cores) for scheduler in _as_list(self.scheduler)]

    @field_validator("scheduler")
    @classmethod
    def _few_cells(cls, value: Any, info: ValidationInfo) -> Any:
        cells = len(_as_list(value)) * len(_as_list(info.data.get("cores", 1)))
        if cells > MAX_CELLS:
            values = {"cells": cells, "most": MAX_CELLS}
            raise PydanticCustomError(
                "cells", "makes {cells} cells (cores x schedulers); the maximum is {most}", values
            )
        return value

    @field_validator("join")
    @classmethod
    def _block_needs_a_plain_queue(cls, value: str, info: ValidationInfo) -> str:
        others = sorted(set(_as_list(info.data.get("scheduler", "fifo"))) - {"fifo", "lifo"})
        if value == "block" and others:
            raise PydanticCustomError(
                "rule", "block requires scheduler fifo or lifo; got {others}", {"others": ", ".join(others)}
            )
        return value

    @field_validator("join_cost_us")
    @classmethod
    def _only_with_a_join(cls, value: float, info: ValidationInfo) -> float:
        if value and info.data.get("join") == "none":
            raise PydanticCustomError("rule", "must be 0 if join is none; got {got}", {"got": value})
        return value

    @field_validator("quantum_us")
    @classmethod
    def _only_with_round_robin(cls, value: float | None, info: ValidationInfo) -> float | None:
        if value is not None and "round_robin" not in _as_list(info.data.get("scheduler", "round_robin")):
            raise PydanticCustomError("rule", "is allowed only for scheduler round_robin", {})
        return value

    @field_validator("arrival")
    @classmethod
    def _measures_some_root(cls, value: Arrival, info: ValidationInfo) -> Arrival:
        roots = info.data.get("thread_count", 1_000_000)
        if isinstance(value, PoissonArrival) and value.warmup_roots >= roots:
            values = {"most": roots - 1, "got": value.warmup_roots}
            raise PydanticCustomError("rule", "warmup_roots must be in 0..{most} (thread_count - 1); got {got}", values)
        return value

    @field_validator("max_threads")
    @classmethod
    def _holds_the_roots(cls, value: int, info: ValidationInfo) -> int:
        roots = info.data.get("thread_count", 1)
        if value < roots:
            values = {"low": roots, "high": MAX_THREADS, "got": value}
            raise PydanticCustomError("bounds", "must be in {low}..{high} (thread_count or more); got {got}", values)
        return value

    @field_validator("trace")
    @classmethod
    def _traces_what_exists(cls, value: Trace | None, info: ValidationInfo) -> Trace | None:
        cells = len(_as_list(info.data.get("scheduler", "fifo"))) * len(_as_list(info.data.get("cores", 1)))
        if value is not None and (value.replica >= info.data.get("replicas", 2**24) or value.cell >= cells):
            values = {"replicas": info.data.get("replicas", 2**24), "cells": cells}
            raise PydanticCustomError("rule", "must name a replica below {replicas} and a cell below {cells}", values)
        return value


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
