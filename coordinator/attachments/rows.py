"""Rows of attachments; a test compares them with the schemas."""

from __future__ import annotations

import base64
from typing import TypedDict

from jobs.store.attachments import Chunk, Read


class AttachmentRow(TypedDict):
    attachment_id: str
    job_id: str
    unit: int
    unit_state: str


class InputRow(TypedDict):
    state: str
    upto: int


class OutputRow(TypedDict):
    state: str
    exit: int | None
    reason: str
    worker: str
    unit_state: str
    upto: int
    chunks: list[list[str]]


def chunks(several: tuple[Chunk, ...]) -> list[list[str]]:
    """Return chunks as they travel: the stream of each and its bytes in base64."""
    return [[chunk.stream, base64.b64encode(chunk.data).decode()] for chunk in several]


def output(found: Read, unit_state: str) -> OutputRow:
    """Return the row of what a shell wrote."""
    return {
        "state": found.state, "exit": found.exit, "reason": found.reason, "worker": found.worker,
        "unit_state": unit_state, "upto": found.upto, "chunks": chunks(found.chunks),
    }  # fmt: skip
