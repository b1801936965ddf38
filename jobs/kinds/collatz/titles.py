"""Names of Collatz jobs for people, such as "Collatz 1…10⁷, statistics". Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_WORDS = {"statistics": "statistics", "verify": "verification", "records": "records"}
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
#: Numbers of more digits are told by their length: a title names them, it does not spell them.
_MOST_DIGITS = 40
#: A thin space that ends no line, as the pages have it.
_THIN = "\u202f"


def title(parameters: Mapping[str, Any]) -> str:
    """Return what a job computes, in few words."""
    mode = parameters["mode"]
    if mode == "trajectory":
        return f"Collatz trajectory of {_named(str(parameters['n']))}"
    return f"Collatz {_range(int(parameters['start_number']), int(parameters['number_count']))}, {_WORDS[mode]}"


def _named(digits: str) -> str:
    if len(digits) > _MOST_DIGITS:
        return f"a number of {len(digits):,} digits".replace(",", _THIN)
    return brief(int(digits)) or _grouped(int(digits))


def _range(first: int, count: int) -> str:
    """Return first…last where both are told exactly in few signs, else how many numbers from where."""
    start, end = brief(first), brief(first + count - 1)
    if start and end:
        return f"{start}…{end}"
    return f"{brief(count) or _about(count)} numbers from {start or _about(first)}"


def brief(number: int) -> str:
    """Return a number exactly in few signs: 27, 1 024, 2⁴⁰, 2⁴⁰−1, 2.5×10⁷; empty where there are none such."""
    if number < 10**6:
        return _grouped(number)
    figures = str(number).rstrip("0")
    zeros = len(str(number)) - 1
    if len(figures) <= 3:
        return f"10{_raised(zeros)}" if figures == "1" else f"{_pointed(figures)}×10{_raised(zeros)}"
    for near, sign in ((number, ""), (number + 1, "−1"), (number - 1, "+1")):
        if near.bit_count() == 1:
            return f"2{_raised(near.bit_length() - 1)}{sign}"
    return _grouped(number) if number < 10**9 else ""


def _about(number: int) -> str:
    """Return the first three figures of a number that is too long, marked as not exact."""
    digits = str(number)
    return f"≈{digits[0]}.{digits[1:3]}×10{_raised(len(digits) - 1)}"


def _pointed(figures: str) -> str:
    return figures if len(figures) == 1 else f"{figures[0]}.{figures[1:]}"


def _raised(power: int) -> str:
    return str(power).translate(_RAISED)


def _grouped(number: int) -> str:
    return f"{number:,}".replace(",", _THIN)
