"""Integers as they travel: exact, a JSON number or a decimal string, never a float, never a bool."""

from __future__ import annotations

import sys
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

#: Largest integer that every JSON reader keeps exactly.
JSON_SAFE = 2**53 - 1
#: Decimal digits read or written at most; Python's own limit of 4,300 would refuse long trajectories.
MAX_DIGITS = 100_000

sys.set_int_max_str_digits(MAX_DIGITS)


def exact(value: int) -> int | str:
    """The integer itself where JSON keeps it exactly, else its decimal string."""
    return value if -JSON_SAFE <= value <= JSON_SAFE else str(value)


def short(value: object, limit: int = 40) -> str:
    """The value for an error message, cut in the middle when it is long."""
    if isinstance(value, int) and value.bit_length() > 10_000:
        return f"an integer of {value.bit_length()} bits"
    try:
        text = repr(value)
    except RecursionError:
        text = f"a deeply nested {type(value).__name__}"
    return text if len(text) <= limit else f"{text[: limit - 12]}… ({len(text)} characters)"


def _read(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and value.isascii() and value.removeprefix("-").isdigit() and len(value) <= MAX_DIGITS:
        return int(value)
    raise PydanticCustomError("integer", "must be an integer or its decimal string; got {got}", {"got": short(value)})


def _bound(name: str, value: int) -> dict[str, Any]:
    """For a JSON schema; beyond what every reader keeps, a decimal string under a name that validators ignore."""
    if abs(value) <= JSON_SAFE:
        return {name: value}
    return {f"x-{name}": str(value)} if value.bit_length() <= 256 else {}


def ExactInt(low: int, high: int) -> Any:  # noqa: N802 - it makes a type
    """A pydantic field type: an integer in [low, high], given as a number or as a decimal string."""

    def bounded(value: Any) -> int:
        number = _read(value)
        if low <= number <= high:
            return number
        raise PydanticCustomError(
            "bounds",
            "must be in {low}..{high}; got {got}",
            {"low": str(low), "high": str(high), "got": short(number)},
        )

    schema = {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": "^-?[0-9]+$"}]}
    bounds = {**_bound("minimum", low), **_bound("maximum", high)}
    return Annotated[int, BeforeValidator(bounded), Field(json_schema_extra=bounds), WithJsonSchema(schema | bounds)]
