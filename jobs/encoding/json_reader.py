"""Incremental JSON reader. Parsing tens of megabytes at once would block all other threads.

reader = JsonReader(pieces)
for name in reader.members():
    if name == "rows":
        for row in reader.items(): ...
    else:
        facts[name] = reader.value()
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

_SPACE = re.compile(r"[ \t\n\r]*")
#: Characters that can follow a JSON value.
_AFTER = frozenset(" \t\n\r,]}:")
_ENDS_EARLY = "the JSON text is incomplete"


class JsonReader:
    """Reader of the values in a JSON text, in order. Raises ValueError for invalid JSON."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self._json = json.JSONDecoder()
        #: Text that was received but is not parsed completely.
        self._text = ""
        #: Position of the first unread character in the text.
        self._at = 0

    def value(self) -> Any:
        """Return the next complete value. A long value is buffered until all of it has arrived."""
        self._peek()
        while True:
            try:
                value, end = self._json.raw_decode(self._text, self._at)
            except json.JSONDecodeError:
                if not self._take_more():
                    raise
                continue
            # A number can continue in the next piece: -1 can become -1.5e3.
            if self._text[end : end + 1] in _AFTER or not self._take_more():
                self._at = end
                return value

    def members(self) -> Iterator[str]:
        """Yield the member names of an object. Read each value with a method of this reader before the next name."""
        self._expect("{")
        if self._peek() == "}":
            self._at += 1
            return
        while True:
            name = self.value()
            if not isinstance(name, str):
                raise ValueError("a member name in a JSON object must be a string")
            self._expect(":")
            yield name
            if self._expect(",}") == "}":
                return

    def items(self) -> Iterator[Any]:
        """Yield the complete values of an array."""
        self._expect("[")
        if self._peek() == "]":
            self._at += 1
            return
        while True:
            yield self.value()
            if self._expect(",]") == "]":
                return

    def _expect(self, characters: str) -> str:
        found = self._peek()
        if found not in characters:
            raise ValueError(f"the JSON text has {found!r} instead of one of {characters}")
        self._at += 1
        return found

    def _peek(self) -> str:
        """Skip white space and return the next character without consuming it."""
        while True:
            if space := _SPACE.match(self._text, self._at):
                self._at = space.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._take_more():
                raise ValueError(_ENDS_EARLY)

    def _take_more(self) -> bool:
        """Append more text to the buffer. Return False at the end of the input.

        Each read is at least as long as the unread text, so that a long value is parsed only a few times.
        """
        unread = self._text[self._at :]
        parts, size = [unread], 0
        while size <= len(unread) and (piece := next(self._pieces, None)) is not None:
            parts.append(self._utf8.decode(piece))
            size += len(parts[-1])
        self._text, self._at = "".join(parts), 0
        return size > 0
