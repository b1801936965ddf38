"""Conversion of Redis hashes to dataclasses, by the types of the fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, TypeVar, get_type_hints

Record = TypeVar("Record")


def texts(reply: Sequence[bytes]) -> dict[str, str]:
    """Return the fields of a hash as texts, from a reply to HGETALL."""
    words = [word.decode(errors="replace") for word in reply]
    return dict(zip(words[::2], words[1::2], strict=False))


def number(text: str) -> int:
    """Return the number in a stored text, or 0 if the text is not a number."""
    return int(text) if text.isdigit() else 0


def _integer(text: str) -> int:
    """Return a stored text as an integer, or 0 if the text is empty. Raises ValueError if it is not a number."""
    if text and not text.isdigit():
        raise ValueError(f"expected a number; got {text[:80]!r}")
    return int(text or 0)


def record(kind: Callable[..., Record], stored: Mapping[str, str], **given: Any) -> Record:
    """Create a dataclass from the fields of a Redis hash and from keyword arguments.

    Only fields of type str, int or bool are read from the hash. Missing fields have their default value, or "", 0 or
    False if the field has no default. Raises ValueError if a field of type int does not contain a number.
    """
    found = {name: read(stored[name]) for name, read in _readers(kind) if name in stored and name not in given}
    return kind(**_empty(kind) | found | given)


_READERS: dict[Any, Callable[[str], Any]] = {str: str, int: _integer, bool: "1".__eq__}


@cache
def _readers(kind: Any) -> list[tuple[str, Callable[[str], Any]]]:
    hints = get_type_hints(kind)
    return [(field.name, _READERS[hints[field.name]]) for field in fields(kind) if hints[field.name] in _READERS]


@cache
def _empty(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    required = (field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING)
    return {name: hints[name]() for name in required if hints[name] in _READERS}
