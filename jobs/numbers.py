"""Integers in JSON: exact, as a number or a decimal string, never a float, never a bool."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

#: Largest integer that every JSON reader keeps exactly.
JSON_SAFE = 2**53 - 1
#: Decimal digits read or written at most; Python's own limit of 4,300 would refuse long trajectories.
MAX_DIGITS = 100_000

sys.set_int_max_str_digits(MAX_DIGITS)


def exact(value: int) -> int | str:
    """Return the integer itself where JSON keeps it exactly, else its decimal string."""
    return value if -JSON_SAFE <= value <= JSON_SAFE else str(value)


def short(value: object, limit: int = 40) -> str:
    """Return the value for an error message, cut to about `limit` characters; what is cut off costs nothing."""
    text = ""
    for piece in _pieces(value, limit):
        text += piece
        if len(text) > limit:
            return f"{text[: limit - 12]}… ({_size(value, text)})"
    return text


def _pieces(value: object, limit: int) -> Iterator[str]:
    """Yield the value's repr in pieces; of a text only its beginning."""
    if isinstance(value, int) and value.bit_length() > 10_000:
        yield f"an integer of {value.bit_length()} bits"
    elif isinstance(value, str):
        yield repr(value[: limit + 1])
    elif isinstance(value, list | tuple | dict):
        opening, closing = ("{", "}") if isinstance(value, dict) else ("[", "]")
        yield opening
        for number, each in enumerate(value):
            yield ", " if number else ""
            yield from _pieces(each, limit)
            if isinstance(value, dict):
                yield ": "
                yield from _pieces(value[each], limit)
        yield closing
    else:
        yield repr(value)


def _size(value: object, text: str) -> str:
    if isinstance(value, list | tuple | dict):
        return f"{type(value).__name__} of {len(value)}"
    return f"{len(value if isinstance(value, str) else text)} characters"


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
