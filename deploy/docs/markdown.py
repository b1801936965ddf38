"""Functions that format Markdown for generated pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def table(headings: Sequence[str], records: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown, or "" if there are no records."""
    rows = [*records]
    if not rows:
        return ""
    lines = [headings, ["---"] * len(headings), *(map(cell, row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip()


def prose(text: str) -> str:
    """Escape characters that Markdown would read as HTML or emphasis. Text in `code` stays unchanged."""
    parts = text.split("`")
    return "`".join(part if index % 2 else re.sub(r"([<>*])", r"\\\1", part) for index, part in enumerate(parts))


def code(text: str) -> str:
    return f"`{text}`" if text else ""
