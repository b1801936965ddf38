"""Integers as the API has them: exact, a JSON number up to 2^53 - 1 and a decimal string beyond. `jobs.numbers` is the
server's side of it; a test compares the two.
"""

from __future__ import annotations

import re
import sys

#: Largest integer that every JSON reader keeps exactly.
JSON_SAFE = 2**53 - 1
#: Decimal digits read or written at most; Python's own limit of 4,300 would refuse long trajectories.
MAX_DIGITS = 100_000

sys.set_int_max_str_digits(MAX_DIGITS)


def exact(value: int) -> int | str:
    """Return the integer itself where JSON keeps it exactly, else its decimal string."""
    return value if -JSON_SAFE <= value <= JSON_SAFE else str(value)


def short(text: str, limit: int = 40) -> str:
    """Return a text's repr for an error message, cut when it is long."""
    shown = repr(text[: limit + 1])
    return shown if len(shown) <= limit else f"{shown[: limit - 12]}… ({len(text)} characters)"


_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(text: str) -> int | None:
    """Return the seconds that 90, 90s, 15m, 12h or 30d means; None for any other text."""
    parts = re.fullmatch(r"([0-9]{1,9})([smhd]?)", text, re.ASCII)
    return int(parts[1]) * _UNITS[parts[2]] if parts else None
