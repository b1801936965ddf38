"""Texts that a program can be given: no NUL, which ends a text for the system, and nothing that UTF-8 lacks."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from pydantic_core import PydanticCustomError

from threads_protocol.numbers import short

_JSON = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def wrong(sentence: str) -> PydanticCustomError:
    """Return the error that says this of a parameter."""
    return PydanticCustomError("refused", "{sentence}", {"sentence": sentence})


def problem(value: Any) -> str:
    """Return what keeps a program from being given this text; empty: nothing does."""
    if not isinstance(value, str):
        return "must be a text"
    if "\0" in value:
        return "has a NUL, which no program can be given"
    return "" if is_unicode(value) else "has half of a surrogate pair, which is no text"


def shown(value: Any) -> str:
    """Return the value for an error message, in characters that every encoding has."""
    return short(value) if not isinstance(value, str) or is_unicode(value) else short(ascii(value[:1000]))


def is_unicode(text: str) -> bool:
    """Return True unless the text has half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def checked(value: Any, what: str, most: int) -> str:
    """Return a text of 1 to `most` bytes in UTF-8. Raises PydanticCustomError; `what` begins its sentence."""
    if complaint := problem(value):
        raise wrong(f"{what} {complaint}; got {shown(value)}")
    if not 1 <= len(value.encode()) <= most:
        raise wrong(f"{what} must have 1 to {most} bytes; got {short(value)}")
    return str(value)


def check_sum(texts: Iterable[str], what: str, most: int) -> None:
    """Raise PydanticCustomError where the texts have over `most` bytes in UTF-8 together."""
    total = sum(len(text.encode()) for text in texts)
    if total > most:
        raise wrong(f"{what} at most {most} bytes together; got {total} bytes")


def check_names(names: Iterable[str], what: str) -> None:
    """Raise PydanticCustomError where a name comes twice."""
    seen = set()
    for name in names:
        if name in seen:
            raise wrong(f"{what} come once each; got {short(name)} twice")
        seen.add(name)


def as_json(value: Any) -> str:
    """Return a value as the JSON that is stored, in ASCII."""
    return _JSON.encode(value)
