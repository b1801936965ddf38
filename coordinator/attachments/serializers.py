"""Serialize attachments."""

from __future__ import annotations

import base64

from jobs.store.attachments import Chunk, Read
from threads_protocol.answers import attachments as answers


def serialize_chunks(several: tuple[Chunk, ...]) -> list[list[str]]:
    """Return the stream name and the base64 data of each chunk."""
    return [[chunk.stream, base64.b64encode(chunk.data).decode()] for chunk in several]


def serialize_output(found: Read, unit_state: str) -> answers.Output:
    """Return the response with a shell's output."""
    return {
        "state": found.state,
        "exit": found.exit,
        "reason": found.reason,
        "worker": found.worker,
        "unit_state": unit_state,
        "upto": found.upto,
        "chunks": serialize_chunks(found.chunks),
    }
