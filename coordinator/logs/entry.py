"""Live log lines, encoded once for all followers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from coordinator.events.event import Position, position
from coordinator.logs import serializers
from jobs.store.work.live_output import Chunk, Lines


def frame(name: str, row: Mapping[str, Any], place: str = "") -> bytes:
    """Return an encoded server-sent event."""
    head = f"id: {place}\n" if place else ""
    return f"{head}event: {name}\ndata: {json.dumps(row, separators=(',', ':'))}\n\n".encode()


class Entry:
    """Entry of a job's stream of live log lines."""

    def __init__(self, lines: Lines) -> None:
        self.lines = lines
        self.position: Position = position(lines.id)

    @cached_property
    def size(self) -> int:
        return sum(len(chunk.data) for chunk in self.lines.chunks)

    @cached_property
    def whole(self) -> bytes:
        """Return the frames of all chunks of this entry."""
        return b"".join(map(self._frame, self.lines.chunks))

    def beyond(self, seen: int) -> bytes:
        """Return frames with the bytes from offset `seen` on.

        Earlier bytes are skipped, because a runner can send bytes twice.
        """
        rest = []
        for chunk in self.lines.chunks:
            if (cut := max(0, seen - chunk.offset)) < len(chunk.data):
                rest.append(self._frame(Chunk(chunk.offset + cut, chunk.stream, chunk.data[cut:])))
        return b"".join(rest)

    def _frame(self, chunk: Chunk) -> bytes:
        return frame("output", serializers.serialize_output(self.lines, chunk), self.lines.id)
