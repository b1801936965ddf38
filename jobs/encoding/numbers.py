"""Fields of requests that are integers: a number or a decimal string, never a float, never a bool."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from threads_protocol.numbers import JSON_SAFE, MAX_DIGITS, short


def _is_decimal(text: str) -> bool:
    return text.isascii() and text.removeprefix("-").isdigit()


def _read(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and len(value) <= MAX_DIGITS and _is_decimal(value):
        return int(value)
    raise PydanticCustomError("integer", "must be an integer or its decimal string; got {got}", {"got": short(value)})


def _bound(name: str, value: int) -> dict[str, Any]:
    """Return a bound for a JSON schema; beyond 2^53, as a decimal string under a name that validators ignore."""
    if abs(value) <= JSON_SAFE:
        return {name: value}
    return {f"x-{name}": str(value)} if value.bit_length() <= 256 else {}


def ExactInt(low: int, high: int) -> Any:  # noqa: N802 - it makes a type
    """Return a pydantic field type: an integer in [low, high], given as a number or as a decimal string."""

    most = max(len(str(low)), len(str(high)))

    def bounded(value: Any) -> int:
        # Reading digits takes the square of their number: what cannot be within the bounds is not read.
        far = isinstance(value, str) and most < len(value.lstrip("-0")) <= MAX_DIGITS and _is_decimal(value)
        number = high + 1 if far else _read(value)
        if low <= number <= high:
            return number
        raise PydanticCustomError(
            "bounds",
            "must be in {low}..{high}; got {got}",
            {"low": str(low), "high": str(high), "got": short(value if far else number)},
        )

    schema = {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": "^-?[0-9]+$"}]}
    bounds = {**_bound("minimum", low), **_bound("maximum", high)}
    return Annotated[int, BeforeValidator(bounded), Field(json_schema_extra=bounds), WithJsonSchema(schema | bounds)]
