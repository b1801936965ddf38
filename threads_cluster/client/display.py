"""Functions that write HTML for notebooks. Texts are escaped, and colors suit light and dark themes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

#: Maximum number of rows of a displayed table.
MAX_ROWS = 50
#: Maximum number of characters of a displayed text.
_CHARACTERS = 2000
#: Maximum number of characters of a displayed list.
_LIST_CHARACTERS = 300
#: Maximum depth to which a result's nested objects are displayed as tables.
_DEPTH = 3
#: Colors of states and bars. They are readable on white and on black.
_BLUE, _GREEN, _RED, _GRAY = "#3b82f6", "#16a34a", "#dc2626", "#808890"
_COLORS = {
    **dict.fromkeys(("done", "ready", "idle"), _GREEN),
    **dict.fromkeys(("running", "finishing", "busy", "starting"), _BLUE),
    **dict.fromkeys(("failed", "dead", "lost", "unhealthy"), _RED),
}
_CELL = "text-align:left;padding:1px 10px 1px 0;background:none;border:0;color:inherit;vertical-align:top"
_MUTED = "opacity:0.7"
_ROW = '<tr style="background:none">'
_NAME = f'<th style="{_CELL};font-weight:normal;{_MUTED}">'


class Html(str):
    """Text that is already HTML, so that `cell` does not escape it."""

    __slots__ = ()


def block(*parts: str) -> str:
    """Return the HTML of parts below each other. Empty parts are omitted."""
    return f'<div style="line-height:1.5">{"".join(part for part in parts if part)}</div>'


def heading(title: Any, named_state: str, kind: str) -> str:
    """Return the HTML of a title, a state and a description."""
    return f'<div><b>{text(title)}</b> {state(named_state)} <span style="{_MUTED}">{text(kind)}</span></div>'


def state(name: Any) -> Html:
    """Return the HTML of a state in its color."""
    return Html(f'<span style="color:{_COLORS.get(str(name), _GRAY)}">● {text(name)}</span>')


def note(*parts: str) -> str:
    """Return the HTML of a line of remarks. Empty remarks are omitted."""
    remarks = " · ".join(part for part in parts if part)
    return f'<div style="{_MUTED}">{text(remarks)}</div>' if remarks else ""


def problem(message: str | None) -> str:
    """Return the HTML of an error, or an empty text."""
    return f'<div style="color:{_RED}">{text(message)}</div>' if message else ""


def output(data: bytes) -> str:
    """Return the HTML of a program's output, or an empty text if it wrote none."""
    if not data:
        return ""
    return f'<pre style="margin:2px 0;background:none;color:inherit">{text(data.decode(errors="replace"))}</pre>'


def bar(ratio: float, named_state: str = "running", width: int = 320) -> str:
    """Return a progress bar as SVG. `ratio` is between 0 and 1."""
    filled = round(width * min(max(ratio, 0.0), 1.0))
    color = _COLORS.get(named_state, _GRAY)
    return (
        f'<svg width="{width}" height="8" role="img" aria-label="{ratio:.0%}" style="display:block;margin:3px 0">'
        f'<rect width="{width}" height="8" rx="4" fill="currentColor" opacity="0.15"/>'
        f'<rect width="{filled}" height="8" rx="4" fill="{color}"/></svg>'
    )


def sparkline(values: Sequence[float], width: int = 160, height: int = 24) -> str:
    """Return a line chart of values over time as SVG, or an empty text for fewer than two values."""
    if len(values) < 2:
        return ""
    top, step = max(*values, 1e-12), width / (len(values) - 1)
    heights = (height - 1 - (height - 2) * value / top for value in values)
    points = " ".join(f"{at * step:.1f},{high:.1f}" for at, high in enumerate(heights))
    return (
        f'<svg width="{width}" height="{height}" role="img" aria-label="{len(values)} values up to {top:.3g}">'
        f'<polyline points="{points}" fill="none" stroke="{_BLUE}" stroke-width="1.5"/></svg>'
    )


def fields(values: Mapping[str, Any], depth: int = 0) -> str:
    """Return the HTML of a table with a row for each field, or an empty text without fields."""
    rows = "".join(
        f'{_ROW}{_NAME}{text(name)}</th><td style="{_CELL}">{cell(value, depth + 1)}</td></tr>'
        for name, value in list(values.items())[:MAX_ROWS]
    )
    rest = note(f"{len(values) - MAX_ROWS:,} more fields") if len(values) > MAX_ROWS else ""
    return f'<table style="border:0;margin:0">{rows}</table>{rest}' if rows else ""


def table(names: Iterable[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return the HTML of a table, or an empty text without rows. Cells are escaped, unless they are `Html`."""
    lines = ("".join(f'<td style="{_CELL}">{cell(each)}</td>' for each in row) for row in rows)
    body = "".join(f"{_ROW}{line}</tr>" for line in lines)
    head = "".join(f"{_NAME}{text(name)}</th>" for name in names)
    return f'<table style="border:0;margin:4px 0">{_ROW}{head}</tr>{body}</table>' if body else ""


def cell(value: Any, depth: int = 0) -> str:
    """Return the HTML of a value. Objects become tables, down to a depth of _DEPTH."""
    if isinstance(value, Html):
        return value
    if isinstance(value, Mapping) and depth < _DEPTH:
        return fields(value, depth)
    if value is None or value == []:
        return ""
    if isinstance(value, list):
        return text(value, _LIST_CHARACTERS)
    if isinstance(value, float):
        return text(f"{value:.6g}")
    return text(f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value)


def text(value: Any, longest: int = _CHARACTERS) -> str:
    """Escape a value for HTML. Texts of more than `longest` characters are cut."""
    shown = str(value)
    return escape(shown if len(shown) <= longest else f"{shown[:longest]}... ({len(shown):,} characters)")
