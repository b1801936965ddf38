"""Titles of jobs for people, built from their parameters. Functions here are pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from jobs.kinds import registry

#: Maximum length of a title in characters.
MAX_LENGTH = 80
#: Number of parameters in the title of a kind that defines no titles.
_NAMED = 4
_BLANKS = re.compile(r"[ \t\r\n\f\v]+")


def title(kind: str, parameters: Any) -> str:
    """Return a job's title: one printable line of 1 to MAX_LENGTH characters, for any parameters."""
    return sanitize(_title_of_kind(kind, parameters) or _title_of_parameters(kind, parameters))


def _title_of_kind(kind: str, parameters: Any) -> str:
    """Return the kind's title, or an empty string if it defines none or cannot read the parameters."""
    if kind not in registry.names():
        return ""
    try:
        return registry.definition(kind).title(parameters)
    except (LookupError, TypeError, ValueError, AttributeError):
        return ""


def _title_of_parameters(kind: str, parameters: Any) -> str:
    """Return a title from the kind's name and the first scalar parameters."""
    held = parameters if isinstance(parameters, Mapping) else {}
    plain = [f"{name} {value}" for name, value in held.items() if isinstance(value, str | int | float)]
    return f"{kind}: {', '.join(plain[:_NAMED])}" if plain else kind


def sanitize(text: str) -> str:
    """Return one line of at most MAX_LENGTH characters. Control and formatting characters are replaced."""
    line = _BLANKS.sub(" ", text[: 20 * MAX_LENGTH]).strip()
    shown = "".join(sign if sign.isprintable() else "\ufffd" for sign in line) or "?"
    return shown if len(shown) <= MAX_LENGTH else f"{shown[: MAX_LENGTH - 1].rstrip()}…"
