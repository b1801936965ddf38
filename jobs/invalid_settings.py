"""Messages about invalid settings: one line for each, with the variable, its value and what is allowed."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

#: Maximum number of characters of a value in a message.
_LONGEST = 60


class InvalidSettings(ValueError):
    """Settings are invalid. The message has one line for each of them."""


def describe(error: ValidationError, model: type[BaseModel]) -> str:
    """Return one line for each invalid setting."""
    each = error.errors(include_url=False, include_context=False)
    return "\n".join(_describe_one(one["loc"], one["input"], one["msg"], model) for one in each)


def _describe_one(place: tuple[int | str, ...], value: Any, message: str, model: type[BaseModel]) -> str:
    name = str(place[0]) if place else ""
    field = model.model_fields.get(name)
    if field is None:  # Settings that contradict each other, whose message names them
        return message.removeprefix("Value error, ")
    names = " or ".join(each.upper() for each in getattr(field.validation_alias, "choices", (name,)))
    return f"{names} is {_shorten(value)}, but must be {_allowed(field) or message}"


def _shorten(value: Any) -> str:
    text = str(value)
    return ascii(text) if len(text) <= _LONGEST else f"{text[:_LONGEST]!a}..."


def _allowed(field: FieldInfo) -> str:
    """Return the values that a setting accepts, or "" if its type does not determine them."""
    if choices := get_args(field.annotation):
        return f"one of {', '.join(filter(None, choices))}"
    if field.annotation in (int, float):
        return f"{'an integer' if field.annotation is int else 'a number'}{_bounds(field)}"
    pattern, longest = _bound(field, "pattern"), _bound(field, "max_length")
    length = f" of at most {longest} characters" if longest else ""
    return f"a text{length}{f' that matches {pattern}' if pattern else ''}" if pattern or longest else ""


def _bounds(field: FieldInfo) -> str:
    least, above, most = (_bound(field, name) for name in ("ge", "gt", "le"))
    if least is not None:
        return f" from {least} to {most}" if most is not None else f" of at least {least}"
    upper = f" and up to {most}" if most is not None else ""
    return f" above {above}{upper}" if above is not None else ""


def _bound(field: FieldInfo, name: str) -> Any:
    found = (getattr(each, name, None) for each in field.metadata)
    return next((each for each in found if each is not None), None)
