"""Rows of the events of a log that is followed; a test compares them with the schemas."""

from __future__ import annotations

import base64
from typing import TypedDict

from jobs.store.live_output import Chunk, Lines

#: Names of streams as they are stored.
_STREAMS = {"o": "stdout", "e": "stderr"}


class OutputRow(TypedDict):
    unit: int
    attempt: int
    run: str
    offset: int
    stream: str
    text: str
    data: str


class DroppedRow(TypedDict):
    bytes: int


class EndRow(TypedDict):
    state: str
    exit: int | None
    bytes: int


def output(lines: Lines, chunk: Chunk) -> OutputRow:
    """Return the row of what a unit wrote."""
    return {
        "unit": lines.unit, "attempt": lines.attempt, "run": lines.run, "offset": chunk.offset,
        "stream": _STREAMS.get(chunk.stream, "stdout"), "text": chunk.data.decode(errors="replace"),
        "data": base64.b64encode(chunk.data).decode(),
    }  # fmt: skip
