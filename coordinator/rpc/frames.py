"""Parse the server-sent events of /api/events for gRPC streams. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Frame(NamedTuple):
    """One event of a stream."""

    id: str
    type: str
    #: JSON text of the event.
    data: str


class Frames:
    """Assembles events from pieces of a stream."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, piece: bytes) -> Iterator[Frame]:
        """Yield the events that this piece completes. Comments and browser-specific fields are dropped."""
        *whole, self._rest = (self._rest + piece).split(b"\n\n")
        for text in whole:
            lines = (line.partition(":") for line in text.decode().split("\n"))
            fields = {name: value.removeprefix(" ") for name, _, value in lines if name}
            if "data" in fields:
                yield Frame(fields.get("id", ""), fields.get("event", "message"), fields["data"])
