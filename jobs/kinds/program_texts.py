"""Validation of texts that are passed to programs: they contain neither a NUL nor a lone surrogate."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from pydantic_core import PydanticCustomError

from threads_protocol.numbers import short

_JSON = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def validation_error(sentence: str) -> PydanticCustomError:
    """Return a validation error with this message about a parameter."""
    return PydanticCustomError("refused", "{sentence}", {"sentence": sentence})


def problem(value: Any) -> str:
    """Return why a value cannot be passed to a program as a text, or an empty string."""
    if not isinstance(value, str):
        return "must be a text"
    if "\0" in value:
        return "contains a NUL, which cannot be passed to a program"
    return "" if is_unicode(value) else "contains a lone surrogate, which UTF-8 cannot encode"


def shorten(value: Any) -> str:
    """Shorten a value for an error message, using only characters that every encoding supports."""
    return short(value) if not isinstance(value, str) or is_unicode(value) else short(ascii(value[:1000]))


def is_unicode(text: str) -> bool:
    """Return True unless the text contains a lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_text(value: Any, what: str, most: int) -> str:
    """Return a text of 1 to `most` bytes in UTF-8. Raises PydanticCustomError, whose message starts with `what`."""
    if complaint := problem(value):
        raise validation_error(f"{what} {complaint}; got {shorten(value)}")
    if not 1 <= len(value.encode()) <= most:
        raise validation_error(f"{what} must have 1 to {most} bytes; got {short(value)}")
    return str(value)


def check_total_size(texts: Iterable[str], what: str, most: int) -> None:
    """Raise PydanticCustomError if the texts have more than `most` bytes of UTF-8 in total."""
    total = sum(len(text.encode()) for text in texts)
    if total > most:
        raise validation_error(f"{what} must have at most {most} bytes in total; got {total} bytes")


def check_unique(names: Iterable[str], what: str) -> None:
    """Raise PydanticCustomError if a name occurs twice."""
    seen = set()
    for name in names:
        if name in seen:
            raise validation_error(f"{what} must be unique; got {short(name)} twice")
        seen.add(name)


def as_json(value: Any) -> str:
    """Encode a value as compact ASCII JSON, the form in which it is stored."""
    return _JSON.encode(value)
