"""Server-sent events as messages: what /api/events streams, for callers of gRPC. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Frame(NamedTuple):
    """Event of a stream."""

    id: str
    type: str
    #: JSON.
    data: str


class Frames:
    """Puts events together from pieces of a stream."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, piece: bytes) -> Iterator[Frame]:
        """Yield the events that are whole with this piece; comments and what a browser needs are none."""
        *whole, self._rest = (self._rest + piece).split(b"\n\n")
        for text in whole:
            lines = (line.partition(":") for line in text.decode().split("\n"))
            fields = {name: value.removeprefix(" ") for name, _, value in lines if name}
            if "data" in fields:
                yield Frame(fields.get("id", ""), fields.get("event", "message"), fields["data"])
