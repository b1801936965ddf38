"""Frames of a stream of server-sent events: cut where they end, and passed on one by one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from coordinator.services.gateway import openai
from coordinator.services.gateway.event_repairs import Repair

#: Bytes of a frame that is looked into; a longer one is passed on in pieces.
MOST_BYTES = 1 << 20
#: Bytes of a long frame that are read at its beginning, which has its name, and at its end, which has its counts.
_HEAD, _TAIL = 64, 8192
#: Beginning of the frame that ends a stream: of completions, of responses, and of Anthropic's messages.
_LAST = re.compile(rb"data: ?\[DONE\]|event: ?(?:response\.(?:completed|incomplete|failed)|message_stop)\r?\n")
#: The same of a response whose frames have no names.
_LAST_TYPE = re.compile(rb'"type": ?"response\.(?:completed|incomplete|failed)"')
_END = re.compile(rb"\r?\n\r?\n")


class Frames:
    """Cuts what comes into frames. `hide_usage`: the frame that has nothing but counts is not passed on.

    `repair` completes each frame that is passed on whole.

    `usage` has the last value of each count in the stream.
    """

    def __init__(self, *, hide_usage: bool, repair: Repair = lambda frame: frame) -> None:
        self._hide_usage, self._repair = hide_usage, repair
        self._rest = bytearray()
        #: Place up to which no end of a frame was found.
        self._seen = 0
        #: Beginning and end of a frame that is passed on in pieces.
        self._long = b""
        self.usage: dict[str, int] = {}
        #: The frame that ends a stream has come.
        self.done = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the frames that are whole now, each with its end."""
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
        """Return what has come since the last frame, and forget it."""
        rest = bytes(self._rest)
        self._rest.clear()
        self._seen = 0
        return rest

    def _passes(self, frame: bytes) -> bool:
        """Note a frame's counts and whether it is the last. Return False for one that the client did not request."""
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
    """Return True for the frame of a completion that has its counts and no text."""
    try:
        chunk = json.loads(frame.removeprefix(b"data:"))
    except (ValueError, RecursionError):
        return False
    return isinstance(chunk, dict) and chunk.get("choices") == []
