"""Times on the command line, such as 2h ago or a date."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import typer

_AGE = re.compile(r"([0-9]{1,6})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_time(text: str, option: str, now: datetime | None = None) -> datetime:
    """Parse an age such as 30m, 12h or 7d, or a date or time in ISO 8601. A time without a zone is local.

    Raises BadParameter for other texts.
    """
    if age := _AGE.fullmatch(text.strip()):
        return (now or datetime.now(UTC)) - timedelta(**{_UNITS[age[2]]: int(age[1])})
    try:
        return datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError, OSError):
        detail = f"must be an age such as 30m, 12h or 7d, or a time such as 2026-01-31T12:00; got {text[:60]!r}"
        raise typer.BadParameter(detail, param_hint=f"'--{option}'") from None
