"""Parameters of the kind `collatz` that a user submits, and their bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeAlias

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

from jobs.encoding.numbers import ExactInt
from jobs.kinds.collatz import records_published as published
from jobs.kinds.collatz.frontier_rules import LEAST_BITS, MOST_BITS
from jobs.models import MAX_UNITS
from threads_protocol.numbers import short

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
