"""Functions that format durations, rates, sizes and ages for people."""

from __future__ import annotations

from datetime import UTC, datetime

_SCALES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def format_si(value: float, unit: str = "") -> str:
    """Format a value with three digits and an SI prefix, such as 1.23 G/s."""
    for scale, prefix in _SCALES:
        if abs(value) >= scale * 0.9995:
            return f"{_three_digits(value / scale)} {prefix}{unit}"
    return f"{_three_digits(value)}{unit}"


def rate(units_per_second: float | None) -> str:
    return "" if not units_per_second else format_si(units_per_second, "/s")


def duration(seconds: float | None) -> str:
    """Format a duration with its two largest units, for example 4 min 5 s."""
    if seconds is None:
        return ""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return _two_units(whole, 60, "min", 1, "s")
    if whole < 86400:
        return _two_units(whole, 3600, "h", 60, "min")
    if whole < 366 * 86400:
        return _two_units(whole, 86400, "d", 3600, "h")
    return f"{format_si(seconds / (365.25 * 86400)).replace(' ', '')} years"


def age(moment: str | None) -> str:
    """Format the time that has passed since an ISO 8601 timestamp."""
    if not moment:
        return ""
    return format_age((datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds())


def format_age(seconds: float) -> str:
    whole = round(seconds)
    if whole < 2:
        return "now"
    return f"{whole} s ago" if whole < 60 else f"{duration(whole)} ago"


def percent(ratio: float | None) -> str:
    """Format a ratio as a percentage. Only the ratios 0 and 1 are formatted as 0 % and 100 %."""
    if ratio is None:
        return ""
    if 0 < ratio < 1:
        ratio = min(max(ratio, 0.001), 0.999)
    return f"{ratio * 100:.1f} %" if 0 < ratio < 1 else f"{ratio:.0%}".replace("%", " %")


def files(count: int) -> str:
    """Format a number of files, such as "1 file"."""
    return f"{count:,} {'file' if count == 1 else 'files'}"


def size(count: float | None) -> str:
    """Format a number of bytes with a binary unit, such as MiB."""
    if count is None:
        return ""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{_three_digits(count)} {unit}"
        count /= 1024
    return f"{_three_digits(count)} GiB"


def _three_digits(value: float) -> str:
    """Format a number with three significant digits and without padding zeros, such as 5, 1.23 or 789."""
    text = f"{value:.3g}"
    return text if "e" not in text else f"{value:.0f}"


def _two_units(seconds: int, large: int, large_name: str, small: int, small_name: str) -> str:
    head, rest = divmod(seconds, large)
    tail = rest // small
    return f"{head} {large_name} {tail} {small_name}" if tail else f"{head} {large_name}"
