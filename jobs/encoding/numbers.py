"""Integer fields of requests. Each field accepts a number or a decimal string, but no float and no boolean."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from annotated_types import GroupedMetadata
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
    """Return a bound of an integer for a JSON schema.

    Bounds beyond 2^53 are decimal strings with an `x-` name, which validators ignore.
    """
    if abs(value) <= JSON_SAFE:
        return {name: value}
    return {f"x-{name}": str(value)} if value.bit_length() <= 256 else {}


class ExactInt(GroupedMetadata):
    """Integer in [low, high], as a number or a decimal string. Usage: `Annotated[int, ExactInt(low, high)]`."""

    def __init__(self, low: int, high: int) -> None:
        self._low, self._high = low, high
        self._digits = max(len(str(low)), len(str(high)))

    def _bounded(self, value: Any) -> int:
        # Parsing n digits takes O(n^2) time, so skip numbers that have too many digits for the bounds.
        far = isinstance(value, str) and self._digits < len(value.lstrip("-0")) <= MAX_DIGITS and _is_decimal(value)
        number = self._high + 1 if far else _read(value)
        if self._low <= number <= self._high:
            return number
        raise PydanticCustomError(
            "bounds",
            "must be in {low}..{high}; got {got}",
            {"low": str(self._low), "high": str(self._high), "got": short(value if far else number)},
        )

    def __iter__(self) -> Iterator[Any]:
        schema = {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": "^-?[0-9]+$"}]}
        bounds = {**_bound("minimum", self._low), **_bound("maximum", self._high)}
        yield BeforeValidator(self._bounded)
        yield Field(json_schema_extra=bounds)
        yield WithJsonSchema(schema | bounds)
