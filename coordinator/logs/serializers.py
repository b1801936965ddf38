"""Serialize live log lines."""

from __future__ import annotations

import base64
from typing import Literal

from jobs.store.work.live_output import Chunk, Lines
from threads_protocol.answers import logs as answers

#: Names of output streams, by their stored letter.
_STREAMS: dict[str, Literal["stdout", "stderr"]] = {"o": "stdout", "e": "stderr"}


def serialize_output(lines: Lines, chunk: Chunk) -> answers.Output:
    """Return the data of an `output` event."""
    return {
        "unit": lines.unit,
        "attempt": lines.attempt,
        "run": lines.run,
        "offset": chunk.offset,
        "stream": _STREAMS.get(chunk.stream, "stdout"),
        "text": chunk.data.decode(errors="replace"),
        "data": base64.b64encode(chunk.data).decode(),
    }
