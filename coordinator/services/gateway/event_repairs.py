"""Complete stream events that llama.cpp sends incomplete, because the official clients cannot read incomplete events.

Complete events, such as those of vLLM, are not changed. Chunks of completions are never changed.
"""

from __future__ import annotations

import json
import re
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeGuard

from engines import calls

#: Function that returns a completed frame, or an empty result to drop the frame.
Repair: TypeAlias = Callable[[bytes], bytes]
#: Pattern of a frame with an event name.
_NAMED = re.compile(rb"event: ?([\w.]+)\r?\n")
#: Pattern of a frame with a single line of data.
_DATA = re.compile(rb"(?:event: ?[\w.]+\r?\n)?data: ?(\{[^\r\n]*\})\r?\n\r?\n")
#: Events about a whole response. All other events are about one item of the response.
_WHOLE = tuple(f"response.{name}" for name in ("created", "queued", "in_progress", "completed", "incomplete", "failed"))
#: Events that start a response. llama.cpp repeats them if the first token is only part of a character.
_BEGINS = ("response.created", "response.in_progress")
#: Prefixes of events about one part of an item's content.
_PARTS = tuple(f"response.{name}." for name in ("content_part", "output_text", "refusal", "reasoning_text"))
#: Events that can precede the first event of a message.
_EARLY = (b"ping", b"error")
#: Maximum number of tracked items per response.
#: Maximum length of an item's name in characters.
MOST_ITEMS, _MOST_NAME = 1000, 256


def of(path: str, model: str) -> Repair:
    """Return the function that completes the frames of one stream."""
    if path == calls.RESPONSES:
        return _Response().repair
    return _Message(model).repair if path == calls.MESSAGES else lambda frame: frame


class _Response:
    """Adds the missing numbers of events, items and content parts to the events of a response."""

    def __init__(self) -> None:
        self._count = 0
        self.items: dict[str, int] = {}
        self._last = -1
        self._parts: Counter[int] = Counter()
        self._began: set[str] = set()

    def repair(self, frame: bytes) -> bytes:
        """Add the missing numbers to a frame."""
        found = None if b'"sequence_number"' in frame else _DATA.fullmatch(frame)
        try:
            event = json.loads(found[1]) if found else None
        except (ValueError, RecursionError):
            return frame
        if not isinstance(event, dict) or not str(event.get("type")).startswith("response."):
            return frame
        return self._number_event(event)

    def _number_event(self, event: dict[str, Any]) -> bytes:
        kind = str(event["type"])
        if kind in self._began:
            return b""
        self._began |= {kind} & {*_BEGINS}
        numbers = {"sequence_number": self._count}
        self._count += 1
        if kind not in _WHOLE:
            numbers["output_index"] = index = self._item(kind, event)
            self._parts[index] += kind == "response.content_part.added"
            if kind.startswith(_PARTS):
                numbers["content_index"] = max(0, self._parts[index] - 1)
        text = json.dumps(numbers | event, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
        return b"event: " + kind.encode(errors="replace") + b"\ndata: " + text + b"\n\n"

    def _item(self, kind: str, event: Mapping[str, Any]) -> int:
        """Return the number of the item that an event names, or of the last item."""
        item = event.get("item")
        known = item if isinstance(item, dict) else {}
        names = [name for name in (event.get("item_id"), known.get("id"), known.get("call_id")) if _is_name(name)]
        if kind == "response.output_item.added" and self._last < MOST_ITEMS:
            self._last += 1
            self.items |= dict.fromkeys(names, self._last)
        return next((self.items[name] for name in names if name in self.items), max(0, self._last))


def _is_name(name: Any) -> TypeGuard[str]:
    return isinstance(name, str) and 0 < len(name) <= _MOST_NAME


class _Message:
    """Adds the first event of a message, which llama.cpp omits if the first token is only part of a character."""

    def __init__(self, model: str) -> None:
        self._model, self._began = model, False

    def repair(self, frame: bytes) -> bytes:
        """Return a frame, with a first event before it if the stream lacks one."""
        found = None if self._began else _NAMED.match(frame)
        if found is None or found[1] in _EARLY:
            return frame
        self._began = True
        return frame if found[1] == b"message_start" else self._start() + frame

    def _start(self) -> bytes:
        message: dict[str, Any] = {
            "id": f"msg_{uuid.uuid4().hex}",
            "type": "message",
            "role": "assistant",
            "content": [],
            "model": self._model,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 0, "output_tokens": 0},
        }
        text = json.dumps({"type": "message_start", "message": message})
        return f"event: message_start\ndata: {text}\n\n".encode()
