"""The Collatz kind: statistics of a range of numbers, or the trajectory of one. The README of this folder says more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, WithJsonSchema, field_validator
from pydantic_core import PydanticCustomError

from jobs.kinds.collatz import partials
from jobs.kinds.collatz.curve import FRACTION_BITS
from jobs.models import Partial, Plan, Spec
from jobs.numbers import ExactInt, exact, short

MODEL_VERSION = 1
SUMMARY = "Exact statistics of the 3n+1 map over a range of numbers, or the trajectory of one number of any size."
EXAMPLE: dict[str, Any] = {"mode": "statistics", "start_number": 1, "number_count": 1000}

#: Statistics end here at the latest: start_number + number_count <= END.
END = 2**53
#: Units plus offset plus a grain stay below 2^53.
MAX_COUNT = END - 2**25
#: Leases are cut at multiples of this many numbers, so that only a job's two ends are unaligned.
GRAIN = 2**22
#: Decimal digits of the largest n of a trajectory.
MAX_DIGITS = 20_000
#: Shortcut steps, n/2 or (3n+1)/2, after which a trajectory is given up.
STEP_LIMIT = 20_000_000
#: Longest that a trajectory, which is one unit, may take.
TRAJECTORY_SECONDS = 900.0

MODES = ("statistics", "trajectory")
LATER = ("verify", "records")
#: Which mode a field belongs to, and whether that mode needs it.
FIELDS = {
    "start_number": ("statistics", True),
    "number_count": ("statistics", True),
    "batch_size": ("statistics", False),
    "n": ("trajectory", True),
    "max_points": ("trajectory", False),
}


def _huge(value: Any) -> int:
    """As ExactInt reads it, but with bounds that a message and a schema can hold."""
    digits = value.removeprefix("-") if isinstance(value, str) and len(value) <= MAX_DIGITS else ""
    number = int(value) if digits.isascii() and digits.isdigit() else value
    if isinstance(number, int) and not isinstance(number, bool) and 1 <= number < 10**MAX_DIGITS:
        return number
    words = {"digits": MAX_DIGITS, "got": short(value)}
    raise PydanticCustomError("bounds", "must be an integer >= 1 of at most {digits} digits; got {got}", words)


if TYPE_CHECKING:
    Start: TypeAlias = int
    Count: TypeAlias = int
    Batch: TypeAlias = int
    Huge: TypeAlias = int
    Points: TypeAlias = int
else:
    Start = ExactInt(1, END - 1)
    Count = ExactInt(1, MAX_COUNT)
    Batch = ExactInt(1, END)
    Huge = Annotated[
        int,
        BeforeValidator(_huge),
        WithJsonSchema(
            {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": "^[0-9]{1,20000}$"}]}
        ),
    ]
    Points = ExactInt(2, 100_000)


class Parameters(BaseModel):
    """What a user submits. A null is as good as leaving the field out."""

    model_config = ConfigDict(extra="forbid", validate_default=True)

    mode: Literal["statistics", "trajectory"] = Field("statistics", description="What to compute.")
    start_number: Start | None = Field(None, description="statistics: the first number.")
    number_count: Count | None = Field(None, description="statistics: how many numbers; the range ends by 2^53.")
    batch_size: Batch | None = Field(None, description="statistics: most numbers a kernel launch takes; null: as fits.")
    n: Huge | None = Field(None, description="trajectory: the number, of up to 20,000 digits.")
    max_points: Points | None = Field(None, description="trajectory: most points of the curve; null: 4000.")

    @field_validator("mode", mode="before")
    @classmethod
    def _known_mode(cls, value: Any) -> Any:
        if value in MODES:
            return value
        ready = " or ".join(MODES)
        if value in LATER:
            words = {"got": value, "ready": ready}
            raise PydanticCustomError("mode", "mode {got} is not available yet; use {ready}", words)
        raise PydanticCustomError("mode", "must be {ready}; got {got}", {"ready": ready, "got": short(value)})

    @field_validator(*FIELDS)
    @classmethod
    def _belongs_to_the_mode(cls, value: int | None, info: ValidationInfo) -> int | None:
        mode, field = info.data.get("mode"), info.field_name or ""
        owner, needed = FIELDS[field]
        if mode == owner and needed and value is None:
            raise PydanticCustomError("missing", "{field} is required in mode {mode}", {"field": field, "mode": owner})
        if mode is not None and mode != owner and value is not None:
            words = {"field": field, "owner": owner, "mode": mode}
            raise PydanticCustomError("mode", "{field} belongs to mode {owner}, not to {mode}", words)
        return value

    @field_validator("number_count")
    @classmethod
    def _ends_in_reach(cls, count: int | None, info: ValidationInfo) -> int | None:
        start = info.data.get("start_number")
        if start and count and start + count > END:
            words = {"end": str(END), "most": str(END - start)}
            raise PydanticCustomError(
                "bounds", "start_number + number_count must be at most {end}; from there at most {most} numbers", words
            )
        return count


def plan(parameters: Parameters) -> Plan:
    """One unit per number, or one unit for a trajectory."""
    return _plan_trajectory(parameters) if parameters.mode == "trajectory" else _plan_statistics(parameters)


def _plan_statistics(parameters: Parameters) -> Plan:
    start, count = parameters.start_number, parameters.number_count
    assert start is not None and count is not None  # the model has seen to it
    shown = {"mode": "statistics", "start_number": start, "number_count": count, "batch_size": parameters.batch_size}
    return Plan(
        total=count,
        grain=GRAIN,
        offset=start % GRAIN,
        spec={"mode": "statistics", "start": str(start), "count": count, "batch_size": parameters.batch_size},
        parameters=shown,
        cpu_seconds=_statistics_seconds(start, count, parameters.batch_size),
        mode="statistics",
    )


def _statistics_seconds(start: int, count: int, batch_size: int | None) -> float:
    """Rough: single numbers at 4 million a second, blocks by the size of the numbers."""
    single = count if batch_size and batch_size < 2**16 else min(count, 2**16)
    rate = 4e8 if start + count < 2**32 else 2.5e8 if start + count < 2**43 else 1.5e8
    return single / 4e6 + (count - single) / rate


def _plan_trajectory(parameters: Parameters) -> Plan:
    n, max_points = parameters.n, parameters.max_points or 4000
    assert n is not None  # the model has seen to it
    bits = n.bit_length()
    return Plan(
        total=1,
        spec={"mode": "trajectory", "n": str(n), "max_points": max_points, "step_limit": STEP_LIMIT},
        parameters={"mode": "trajectory", "n": exact(n), "max_points": max_points},
        # a step costs the more the longer the number; most numbers take 5 shortcut steps a bit, the worst 15
        cpu_seconds=8 * bits * (5e-7 + 2.5e-11 * bits),
        mode="trajectory",
        max_lease_seconds=TRAJECTORY_SECONDS,
    )


def merge(left: Partial, right: Partial) -> Partial:
    """Both parts as one. Exact, associative and commutative; an empty partial changes nothing."""
    if not left or not right:
        return left or right
    if "parity" in left or "parity" in right:
        raise ValueError("a trajectory is one unit: it has no second part")
    return partials.merge(left, right)


def result(spec: Spec, partial: Partial) -> dict[str, Any]:
    """What the user reads; the README of this folder names every key."""
    return _trajectory_result(spec, partial) if spec["mode"] == "trajectory" else partials.result(partial)


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
