"""Titles of Collatz jobs, such as "Collatz 1…10⁷, statistics"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_WORDS = {"statistics": "statistics", "verify": "verification", "records": "records"}
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
#: Maximum digits of a number in a title. For a longer number, the title contains only the number of digits.
_MOST_DIGITS = 40


def title(parameters: Mapping[str, Any]) -> str:
    """Return a short description of the job."""
    mode = parameters["mode"]
    if mode == "trajectory":
        return f"Collatz trajectory of {_number_name(str(parameters['n']))}"
    if mode == "frontier":
        return f"Collatz below 2{_superscript(parameters['bits'])}, frontier"
    return f"Collatz {_range(int(parameters['start_number']), int(parameters['number_count']))}, {_WORDS[mode]}"


def _number_name(digits: str) -> str:
    if len(digits) > _MOST_DIGITS:
        return f"a number of {len(digits):,} digits"
    return brief(int(digits)) or _group_digits(int(digits))


def _range(first: int, count: int) -> str:
    """Describe a range as first…last if both numbers have a short form, and otherwise by its size and start."""
    start, end = brief(first), brief(first + count - 1)
    if start and end:
        return f"{start}…{end}"
    return f"{brief(count) or _approximate(count)} numbers from {start or _approximate(first)}"


def brief(number: int) -> str:
    """Return a short exact form, such as 27, 1,024, 2⁴⁰, 2⁴⁰−1 or 2.5×10⁷, or an empty string if there is none."""
    if number < 10**6:
        return _group_digits(number)
    figures = str(number).rstrip("0")
    zeros = len(str(number)) - 1
    if len(figures) <= 3:
        return f"10{_superscript(zeros)}" if figures == "1" else f"{_decimal(figures)}×10{_superscript(zeros)}"
    for near, sign in ((number, ""), (number + 1, "−1"), (number - 1, "+1")):
        if near.bit_count() == 1:
            return f"2{_superscript(near.bit_length() - 1)}{sign}"
    return _group_digits(number) if number < 10**9 else ""


def _approximate(number: int) -> str:
    """Return the first three digits of a long number, marked as approximate."""
    digits = str(number)
    return f"≈{digits[0]}.{digits[1:3]}×10{_superscript(len(digits) - 1)}"


def _decimal(figures: str) -> str:
    return figures if len(figures) == 1 else f"{figures[0]}.{figures[1:]}"


def _superscript(power: int) -> str:
    return str(power).translate(_RAISED)


def _group_digits(number: int) -> str:
    return f"{number:,}"
