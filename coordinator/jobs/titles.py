"""Names of jobs for people, made from their parameters by their kinds. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from jobs.kinds import registry

#: Characters of a title at most.
MAX_LENGTH = 80
#: Parameters that are named for a kind that gives its jobs no titles.
_NAMED = 4
_BLANKS = re.compile(r"[ \t\r\n\f\v]+")
#: The space between groups of digits.
_THIN = "\u202f"


def title(kind: str, parameters: Any) -> str:
    """Return a job's name: one line of 1..MOST characters that can be printed, whatever its parameters hold."""
    return _sanitize(_title_of_kind(kind, parameters) or _title_of_parameters(kind, parameters))


def _title_of_kind(kind: str, parameters: Any) -> str:
    """Return the title that the kind gives; empty without one, and where the parameters are of another version."""
    if kind not in registry.names():
        return ""
    try:
        return registry.definition(kind).title(parameters)
    except (LookupError, TypeError, ValueError, AttributeError):
        return ""


def _title_of_parameters(kind: str, parameters: Any) -> str:
    """Return the kind with its first parameters of one value."""
    held = parameters if isinstance(parameters, Mapping) else {}
    plain = [f"{name} {value}" for name, value in held.items() if isinstance(value, str | int | float)]
    return f"{kind}: {', '.join(plain[:_NAMED])}" if plain else kind


def _sanitize(text: str) -> str:
    """Return one line of at most MOST characters; what turns, hides or moves text is replaced."""
    line = _BLANKS.sub(" ", text[: 20 * MAX_LENGTH]).strip()
    shown = "".join(sign if sign.isprintable() or sign == _THIN else "\ufffd" for sign in line) or "?"
    return shown if len(shown) <= MAX_LENGTH else f"{shown[: MAX_LENGTH - 1].rstrip()}…"
