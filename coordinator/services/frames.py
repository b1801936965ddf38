"""Frames of a stream of server-sent events: cut where they end, passed on as they are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

#: Bytes of a frame that is looked into; a longer one is passed on in pieces.
MOST_BYTES = 1 << 20
#: Ends a stream.
DONE = b"data: [DONE]"
_END = re.compile(rb"\r?\n\r?\n")


class Frames:
    """Cuts what comes into frames. `hide_usage`: the frame that has nothing but counts is not passed on.

    `usage`: the last counts that came.
    """

    def __init__(self, *, hide_usage: bool) -> None:
        self._hide_usage = hide_usage
        self._rest = bytearray()
        #: Place up to which no end of a frame was found.
        self._seen = 0
        self._is_long = False
        self.usage: Any = None
        #: The frame that ends a stream has come.
        self.done = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the frames that are whole now, each with its end."""
        self._rest += data
        while found := _END.search(self._rest, max(0, self._seen - 3)):
            frame = bytes(self._rest[: found.end()])
            del self._rest[: found.end()]
            self._seen = 0
            self.done = self.done or frame.startswith(DONE)
            if self._passes(frame):
                yield frame
        self._seen = len(self._rest)
        if self._seen > MOST_BYTES:
            self._is_long = True
            yield self.rest()

    def rest(self) -> bytes:
        """Return what has come since the last frame, and forget it."""
        rest = bytes(self._rest)
        self._rest.clear()
        self._seen = 0
        return rest

    def _passes(self, frame: bytes) -> bool:
        """Note counts; False for a frame that the client did not ask for."""
        was_long, self._is_long = self._is_long, False
        if was_long or b'"usage"' not in frame or not frame.startswith(b"data:"):
            return True
        try:
            chunk = json.loads(frame[5:])
        except (ValueError, RecursionError):
            return True
        if not isinstance(chunk, dict) or not isinstance(chunk.get("usage"), dict):
            return True
        self.usage = chunk["usage"]
        return not (self._hide_usage and chunk.get("choices") == [])
