"""Exact integers for the API, durations, and short forms of values for messages.

An integer up to 2^53 - 1 is a JSON number; a larger one is a decimal string.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

#: Largest integer that all JSON parsers read exactly.
JSON_SAFE = 2**53 - 1
#: Maximum number of decimal digits of an integer. Python's default of 4,300 is too low for long trajectories.
MAX_DIGITS = 100_000

sys.set_int_max_str_digits(MAX_DIGITS)

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def exact(value: int) -> int | str:
    """Return an integer that all JSON parsers read exactly unchanged. Return a larger one as a decimal string."""
    return value if -JSON_SAFE <= value <= JSON_SAFE else str(value)


def parse_duration(text: str) -> int | None:
    """Convert a duration such as 90, 90s, 15m, 12h or 30d to seconds. Return None for any other text."""
    parts = re.fullmatch(r"([0-9]{1,9})([smhd]?)", text, re.ASCII)
    return int(parts[1]) * _UNITS[parts[2]] if parts else None


def short(value: object, limit: int = 40) -> str:
    """Format a value for an error message in about `limit` characters. Large values are not formatted completely."""
    text = ""
    for piece in _pieces(value, limit):
        text += piece
        if len(text) > limit:
            return f"{text[: limit - 12]}… ({_size(value, text)})"
    return text


def _pieces(value: object, limit: int) -> Iterator[str]:
    """Yield the text of a value in pieces. Of a long string, yield only the first characters."""
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
