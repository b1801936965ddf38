"""Kind `collatz`: studies the 3n+1 map for a range of numbers or for a single number. See README.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)
from pydantic_core import PydanticCustomError

from jobs.encoding.json_reader import JsonReader
from jobs.encoding.numbers import ExactInt
from jobs.kinds.collatz import frontier_plan, partials, statistics_binaries, titles
from jobs.kinds.collatz import records_published as published
from jobs.kinds.collatz.frontier_rules import LEAST_BITS, MOST_BITS
from jobs.kinds.collatz.result_schema import RESULT
from jobs.kinds.collatz.statistics_columns import layout
from jobs.kinds.collatz.trajectory_curve import FRACTION_BITS
from jobs.kinds.contract import Kind
from jobs.models import MAX_UNITS, Device, Mark, MarkKind, Partial, Plan, Spec
from threads_protocol.numbers import exact, short

#: Exclusive upper bound of the numbers in a range: start_number + number_count is at most END.
END = 2**96
#: Leases start at multiples of this number, by mode; only the two ends of a job are not aligned.
GRAINS = {"statistics": 2**24, "verify": 2**32, "records": 2**28}
#: Maximum number of units of a job, chosen so that the number of any aligned unit stays below 2^53.
MAX_COUNT = MAX_UNITS - 2 * max(GRAINS.values())
#: Maximum number of columns for plots, and maximum number of columns if each column has a histogram.
MAX_COLUMNS, MAX_DENSE_COLUMNS = 4096, 1024
#: Maximum number of decimal digits of a number whose trajectory is computed.
MAX_DIGITS = 20_000
#: Maximum number of shortcut steps, n/2 or (3n+1)/2, of a trajectory.
STEP_LIMIT = 20_000_000
#: Maximum duration in seconds of the computation of a trajectory, which is a single unit.
TRAJECTORY_SECONDS = 900.0

MODES = ("statistics", "verify", "records", "trajectory", "frontier")
RANGES = ("statistics", "verify", "records")
#: For each field, the modes that accept the field, and whether the field is required in these modes.
FIELDS = {
    "start_number": (RANGES, True),
    "number_count": (RANGES, True),
    "batch_size": (RANGES, False),
    "columns": (("statistics",), False),
    "density": (("statistics",), False),
    "known": (("records",), False),
    "n": (("trajectory",), True),
    "max_points": (("trajectory",), False),
    "bits": (("frontier",), True),
}


def _join_words(words: Sequence[str]) -> str:
    """Join words as in "a, b or c"."""
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


def _parse_huge(value: Any) -> int:
    """Parse a positive integer of up to MAX_DIGITS digits from a number or a decimal string."""
    digits = value.removeprefix("-") if isinstance(value, str) and len(value) <= MAX_DIGITS else ""
    number = int(value) if digits.isascii() and digits.isdigit() else value
    if isinstance(number, int) and not isinstance(number, bool) and 1 <= number < 10**MAX_DIGITS:
        return number
    words = {"digits": MAX_DIGITS, "got": short(value)}
    raise PydanticCustomError("bounds", "must be an integer >= 1 of at most {digits} digits; got {got}", words)


Start: TypeAlias = Annotated[int, ExactInt(1, END - 1)]
Count: TypeAlias = Annotated[int, ExactInt(1, MAX_COUNT)]
Batch: TypeAlias = Annotated[int, ExactInt(1, MAX_UNITS)]
Columns: TypeAlias = Annotated[int, ExactInt(0, MAX_COLUMNS)]
Delay: TypeAlias = Annotated[int, ExactInt(0, 8000)]
Path: TypeAlias = Annotated[int, ExactInt(0, 2**400)]
Huge: TypeAlias = Annotated[
    int,
    BeforeValidator(_parse_huge),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": "^[0-9]{1,20000}$"}]}),
]
Points: TypeAlias = Annotated[int, ExactInt(2, 100_000)]
Bits: TypeAlias = Annotated[int, ExactInt(LEAST_BITS, MOST_BITS)]


class Known(BaseModel):
    """Maximum delay (number of steps) and maximum value known for all numbers below the start of a job."""

    model_config = ConfigDict(extra="forbid")

    delay: Delay = Field(description="Maximum delay of these numbers.")
    path: Path = Field(description="Maximum value in the trajectories of these numbers.")


class Parameters(BaseModel):
    """Parameters that a user submits. A null field has the same meaning as an omitted field."""

    model_config = ConfigDict(extra="forbid", validate_default=True)

    mode: Literal["statistics", "verify", "records", "trajectory", "frontier"] = Field(
        "statistics", description="Mode of computation."
    )
    start_number: Start | None = Field(None, description="statistics, verify, records: the first number.")
    number_count: Count | None = Field(None, description="statistics, verify, records: the number of numbers.")
    batch_size: Batch | None = Field(None, description="Maximum numbers per kernel launch; null: chosen by the device.")
    columns: Columns | None = Field(None, description="statistics: maximum number of columns for plots; null: none.")
    density: StrictBool | None = Field(None, description="statistics: whether each column has a histogram of delays.")
    known: Known | None = Field(
        None, description="records: maximum delay and path of all numbers below start_number; null: published."
    )
    n: Huge | None = Field(None, description="trajectory: the number, with up to 20,000 digits.")
    max_points: Points | None = Field(None, description="trajectory: maximum points of the curve; null: 4000.")

    bits: Bits | None = Field(None, description="frontier: verifies all numbers below 2^bits.")

    @field_validator("mode", mode="before")
    @classmethod
    def _known_mode(cls, value: Any) -> Any:
        if value in MODES:
            return value
        ready = _join_words(MODES)
        raise PydanticCustomError("mode", "must be {ready}; got {got}", {"ready": ready, "got": short(value)})

    @field_validator(*FIELDS)
    @classmethod
    def _belongs_to_the_mode(cls, value: Any, info: ValidationInfo) -> Any:
        mode, field = info.data.get("mode"), info.field_name or ""
        owners, needed = FIELDS[field]
        if mode in owners and needed and value is None:
            raise PydanticCustomError("missing", "{field} is required in mode {mode}", {"field": field, "mode": mode})
        if mode is not None and mode not in owners and value is not None:
            words = {"field": field, "owners": _join_words(owners), "mode": mode}
            raise PydanticCustomError("mode", "{field} belongs to mode {owners}, not to mode {mode}", words)
        return value

    @field_validator("number_count")
    @classmethod
    def _ends_in_reach(cls, count: int | None, info: ValidationInfo) -> int | None:
        start = info.data.get("start_number")
        if start and count and start + count > END:
            words = {"end": str(END), "most": str(END - start)}
            raise PydanticCustomError(
                "bounds", "start_number + number_count must be at most {end}; number_count can be at most {most}", words
            )
        return count

    @field_validator("known")
    @classmethod
    def _at_least_what_is_published(cls, known: Known | None, info: ValidationInfo) -> Known | None:
        start = info.data.get("start_number") or 1
        delay, path = published.maximum_below(published.DELAYS, start), published.maximum_below(published.PATHS, start)
        if known and (known.delay < delay or known.path < path):
            words = {"start": str(start), "delay": delay, "path": str(path)}
            raise PydanticCustomError(
                "bounds", "must be at least the published delay {delay} and path {path} below {start}", words
            )
        return known

    @field_validator("density")
    @classmethod
    def _has_columns(cls, density: bool | None, info: ValidationInfo) -> bool | None:
        columns = info.data.get("columns") or 0
        if density and not 1 <= columns <= MAX_DENSE_COLUMNS:
            raise PydanticCustomError("bounds", "density requires columns in 1..{most}", {"most": MAX_DENSE_COLUMNS})
        return density


def _plan_range(parameters: Parameters) -> Plan:
    mode, batch = parameters.mode, parameters.batch_size
    start, count = parameters.start_number, parameters.number_count
    assert start is not None and count is not None  # guaranteed by the validators of `Parameters`
    more: dict[str, Any] = {}
    shown: dict[str, Any] = {}
    if parameters.columns:
        more = shown = {"columns": parameters.columns, "density": bool(parameters.density)}
    elif mode == "records":
        more, shown = _known_facts(start, parameters.known)
    return Plan(
        total=count,
        grain=GRAINS[mode],
        offset=start % GRAINS[mode],
        spec={"mode": mode, "start": str(start), "count": count, "batch_size": batch} | more,
        parameters={"mode": mode, "start_number": exact(start), "number_count": count, "batch_size": batch} | shown,
        devices=(Device.CPU,) if mode == "records" or parameters.columns else (Device.GPU, Device.CPU),
        cpu_seconds=SECONDS[mode](start, count, batch, parameters.columns or 1),
        mode=mode,
    )


def _known_facts(start: int, known: Known | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the maxima that are known below the start of a range, for the job's spec and for its parameters."""
    if known:
        given = {"delay": known.delay, "path": exact(known.path)}
        return {"known": given | {"path": str(known.path), "source": "given", "complete": None}}, {"known": given}
    delay, path = published.maximum_below(published.DELAYS, start), published.maximum_below(published.PATHS, start)
    reach = min(published.DELAYS[-1][0], published.PATHS[-1][0])
    complete, source = None, "published" if start > 1 else "nothing, because no number is smaller"
    if start > reach + 1:
        complete, source = reach, f"published, complete up to {reach} only"
    return {"known": {"delay": delay, "path": str(path), "source": source, "complete": complete}}, {"known": None}


def _statistics_seconds(start: int, count: int, batch_size: int | None, columns: int = 1) -> float:
    """Estimate how many seconds the statistics of a range take on one CPU core.

    Each column is a separate range; numbers below 2^18 have no blocks.
    """
    columns = min(columns, count)
    lowest = min(count, max(0, 2**18 - start)) * 2.5e-7
    return 5e-4 + lowest + columns * _range_seconds(start + count, -(-count // columns), batch_size)


def _range_seconds(end: int, count: int, batch_size: int | None) -> float:
    """Estimate how many seconds the statistics of one column take on one CPU core.

    The terms are launches, single numbers, small blocks at both ends, and large blocks.
    """
    bits = end.bit_length()
    single = count if batch_size and batch_size < 2**10 else min(count, 2**11)
    rate = 5e8 if bits <= 44 else 2.5e8 * 50 / max(bits, 50)
    ends = min(count, 2**17) * bits * 1e-9 + min(count, 2**25) / 4e8
    return 6e-5 + 4e-6 * count / (batch_size or count) + single * bits / 1.6e8 + ends + count / rate


def _verify_seconds(start: int, count: int, batch_size: int | None, _columns: int) -> float:
    """Estimate how many seconds the verification of a range takes on one CPU core.

    The terms are whole blocks, slower cells at both ends, and launches.
    """
    wide = start + count >= 2**90
    rate = 1e10 if wide else 6e10 if start + count < 2**42 else 4e10
    return count / rate + min(count, 2**25) / (3e8 if wide else 4e9) + 5e-4 + 4e-5 * (2 + count / (batch_size or 2**32))


def _records_seconds(start: int, count: int, batch_size: int | None, _columns: int) -> float:
    """Estimate how many seconds a search for records takes: half as long as statistics, unless numbers are large."""
    blocks = count > 2**28 and 2**32 < start + count < 2**64
    return _statistics_seconds(start, count, batch_size) / (2 if blocks else 1)


SECONDS: dict[str, Callable[[int, int, int | None, int], float]] = {
    "statistics": _statistics_seconds,
    "verify": _verify_seconds,
    "records": _records_seconds,
}


def _plan_trajectory(parameters: Parameters) -> Plan:
    n, max_points = parameters.n, parameters.max_points or 4000
    assert n is not None  # guaranteed by the validators of `Parameters`
    bits = n.bit_length()
    return Plan(
        total=1,
        spec={"mode": "trajectory", "n": str(n), "max_points": max_points, "step_limit": STEP_LIMIT},
        parameters={"mode": "trajectory", "n": exact(n), "max_points": max_points},
        # A step takes longer for longer numbers; a point of the curve takes a constant time.
        # Most numbers take 5 shortcut steps per bit, and the worst numbers take 15.
        cpu_seconds=8 * bits * (5e-7 + 2.5e-11 * bits) + 6e-6 * min(8 * bits, max_points),
        mode="trajectory",
        max_lease_seconds=TRAJECTORY_SECONDS,
    )


def _plan_frontier(parameters: Parameters) -> Plan:
    bits = parameters.bits
    assert bits is not None  # guaranteed by the validators of `Parameters`
    return Plan(
        total=frontier_plan.division(bits).units,
        spec={"mode": "frontier", "bits": bits},
        parameters={"mode": "frontier", "bits": bits},
        cpu_only="The mode frontier has no GPU kernel.",
        cpu_seconds=0.1 + 2**bits / 2e11,
        mode="frontier",
    )


def _statistics_result(spec: Spec, partial: Partial) -> dict[str, Any]:
    shown = partials.result(partial)
    if "columns" in partial:
        start = int(spec["start"])
        shown["columns"] = partials.columns_result(
            layout(start, spec["count"], spec["columns"]), start, partial["columns"]
        )
    if "density" in partial:
        shown["columns"]["density"] = [histogram for _, histogram in partial["density"]]
    return shown


def _verify_result(spec: Spec, partial: Partial) -> dict[str, Any]:
    unresolved, whole = partial["unresolved"], partial["count"] == spec["count"]
    return {
        "count": exact(partial["count"]),
        "verified": whole and not unresolved,
        "statement": _statement(int(spec["start"]), partial["count"], whole, unresolved),
        "checksum": str(partial["checksum"]),
        "candidates": exact(partial["candidates"]),
        "block_steps": exact(partial["blocks"]),
        "largest_bits": partial["bits"],
        "unresolved": [exact(n) for n in unresolved],
    }


def _statement(start: int, count: int, whole: bool, unresolved: list[int]) -> str:
    if unresolved:
        named = ", ".join(map(str, unresolved[:3]))
        named += " …" * (len(unresolved) > 3)
        return f"Nothing is claimed. These numbers reached no smaller number within 1.6 million steps: {named}"
    if not whole:
        return f"Verification is not finished; {count} numbers have been checked so far."
    if start == 1:
        return f"Every number from 1 to {count} reaches 1."
    return (
        f"Every number from {start} to {start + count - 1} reaches a smaller number, or a number that a "
        f"smaller number reaches. So if all numbers below {start} reach 1, all below {start + count} do."
    )


def _trajectory_result(spec: Spec, partial: Partial) -> dict[str, Any]:
    peak = int(partial["peak"])
    return {
        "n": exact(int(spec["n"])),
        "ended": partial["ended"],
        "delay": partial["delay"],
        "odd_steps": partial["odd_steps"],
        "peak": {
            "value": partial["peak"],
            "digits": len(partial["peak"]),
            "bits": peak.bit_length(),
            "step": partial["peak_step"],
        },
        "parity": {"shortcut_steps": partial["shortcut_steps"], "hex": partial["parity"]},
        "curve": [[step, logarithm / 2**FRACTION_BITS] for step, logarithm in partial["curve"]],
    }


class Collatz(Kind):
    """Kind that studies the 3n+1 map of the Collatz conjecture."""

    model_version = 1
    summary = "Exact statistics, records or verification of a range for the 3n+1 map, or the trajectory of one number."
    example: ClassVar[dict[str, Any]] = {"mode": "statistics", "start_number": 1, "number_count": 1000}
    parameters = Parameters
    result_schema = RESULT
    mark_kinds: ClassVar[Mapping[str, MarkKind]] = {
        "verified": MarkKind(summary="Numbers that reach 1 if all numbers below their range do.", origin=1)
    }
    binaries = statistics_binaries.BINARIES

    def plan(self, parameters: Parameters) -> Plan:
        """Plan one unit per number, a single unit for a trajectory, or one unit per class of numbers for a frontier."""
        plans = {"trajectory": _plan_trajectory, "frontier": _plan_frontier}
        return plans.get(parameters.mode, _plan_range)(parameters)

    def merge(self, left: Partial, right: Partial) -> Partial:
        """Merge two partial results of the same mode exactly. An empty partial result changes nothing."""
        if not left or not right:
            return left or right
        if "parity" in left or "parity" in right:
            raise ValueError("a trajectory is a single unit, so it cannot be merged")
        if "histogram" in left:
            return partials.merge(left, right)
        if "blocks" in left and "units" in left:
            return frontier_plan.merge(left, right)
        return partials.merge_verified(left, right) if "checksum" in left else partials.merge_records(left, right)

    def result(self, spec: Spec, partial: Partial) -> dict[str, Any]:
        """Return the result that users read; README.md describes its fields."""
        if spec["mode"] == "trajectory":
            return _trajectory_result(spec, partial)
        if spec["mode"] == "records":
            return partials.records_result(spec, partial)
        if spec["mode"] == "frontier":
            return frontier_plan.result(spec, partial)
        return _verify_result(spec, partial) if spec["mode"] == "verify" else _statistics_result(spec, partial)

    def marks(self, spec: Spec, result: dict[str, Any]) -> list[Mark]:
        """Return the mark `verified`, which records that all numbers of the job's range were verified."""
        if spec["mode"] not in ("statistics", "verify", "frontier") or not result.get("verified", True):
            return []
        if spec["mode"] == "frontier":
            return [Mark(name="verified", lo=1, hi=2 ** spec["bits"])]
        start = int(spec["start"])
        return [Mark(name="verified", lo=start, hi=start + spec["count"])]

    def title(self, parameters: Mapping[str, Any]) -> str:
        return titles.title(parameters)

    def binary(self, name: str, answer: JsonReader) -> Callable[[Mapping[str, str]], bytes]:
        return statistics_binaries.binary(name, answer)


KIND = Collatz()
