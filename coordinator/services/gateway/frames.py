"""Split a stream of server-sent events into frames."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from coordinator.services.gateway import openai
from coordinator.services.gateway.event_repairs import Repair

#: Maximum size in bytes of a frame that is parsed. Longer frames are forwarded in pieces.
MOST_BYTES = 1 << 20
#: Bytes stored from the start of a long frame (its event name) and from its end (its token counts).
_HEAD, _TAIL = 64, 8192
#: Start of the last frame of a stream: of completions, of responses, and of Anthropic messages.
_LAST = re.compile(rb"data: ?\[DONE\]|event: ?(?:response\.(?:completed|incomplete|failed)|message_stop)\r?\n")
#: Pattern of the last frame of a response without event names.
_LAST_TYPE = re.compile(rb'"type": ?"response\.(?:completed|incomplete|failed)"')
_END = re.compile(rb"\r?\n\r?\n")


class Frames:
    """Splits a byte stream into frames, and collects token counts in `usage`.

    `hide_usage` drops a frame that contains only token counts. `repair` completes each whole frame.
    """

    def __init__(self, *, hide_usage: bool, repair: Repair = lambda frame: frame) -> None:
        self._hide_usage, self._repair = hide_usage, repair
        self._rest = bytearray()
        #: Offset before which there is no frame end.
        self._seen = 0
        #: Start and end of a frame that is forwarded in pieces.
        self._long = b""
        self.usage: dict[str, int] = {}
        #: True after the last frame of the stream.
        self.done = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Add bytes, and yield the frames that are complete now, including their terminators."""
        self._rest += data
        while found := _END.search(self._rest, max(0, self._seen - 3)):
            frame = bytes(self._rest[: found.end()])
            del self._rest[: found.end()]
            self._seen = 0
            if self._passes(frame):
                yield self._repair(frame)
        self._seen = len(self._rest)
        if self._seen > MOST_BYTES:
            piece = self.take_rest()
            self._long = _ends(self._long + piece)
            yield piece

    def take_rest(self) -> bytes:
        """Return and remove the bytes after the last complete frame."""
        rest = bytes(self._rest)
        self._rest.clear()
        self._seen = 0
        return rest

    def _passes(self, frame: bytes) -> bool:
        """Record a frame's token counts, and whether it is the last.

        Return False if the client did not request the frame.
        """
        was_long, self._long = self._long, b""
        known = _ends(was_long + frame) if was_long else frame
        self.done = self.done or _LAST.match(known) is not None
        if b'"usage"' not in known:
            return True
        self.done = self.done or _LAST_TYPE.search(known) is not None
        counts = openai.counts(openai.usage(known))
        self.usage |= counts
        return not (counts and self._hide_usage and not was_long and _has_counts_alone(frame))


def _ends(frame: bytes) -> bytes:
    return frame if len(frame) <= _HEAD + _TAIL else frame[:_HEAD] + frame[-_TAIL:]


def _has_counts_alone(frame: bytes) -> bool:
    """Return True if a completion frame contains token counts and no text."""
    try:
        chunk = json.loads(frame.removeprefix(b"data:"))
    except (ValueError, RecursionError):
        return False
    return isinstance(chunk, dict) and chunk.get("choices") == []
