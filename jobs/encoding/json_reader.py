"""A JSON text read in pieces. Parsing tens of megabytes at once would block all other threads.

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
#: Characters that end a value.
_AFTER = frozenset(" \t\n\r,]}:")
_ENDS_EARLY = "the JSON text ends early"


class JsonReader:
    """Values of a JSON text, in order. Raises ValueError for invalid JSON."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self._json = json.JSONDecoder()
        #: Text that was taken from the pieces, and the position up to which it was read.
        self._text = ""
        self._at = 0

    def value(self) -> Any:
        """Return the whole next value. The text of a long one is buffered until it is complete."""
        self._peek()
        while True:
            try:
                value, end = self._json.raw_decode(self._text, self._at)
            except json.JSONDecodeError:
                if not self._take_more():
                    raise
                continue
            # A number may continue in the next piece: -1 can become -1. or -1.5e3.
            if self._text[end : end + 1] in _AFTER or not self._take_more():
                self._at = end
                return value

    def members(self) -> Iterator[str]:
        """Yield the names of an object. Read the value of each with a method of this reader before the next."""
        self._expect("{")
        if self._peek() == "}":
            self._at += 1
            return
        while True:
            name = self.value()
            if not isinstance(name, str):
                raise ValueError("a name in a JSON object must be a text")
            self._expect(":")
            yield name
            if self._expect(",}") == "}":
                return

    def items(self) -> Iterator[Any]:
        """Yield the values of a list; each one is read whole."""
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
            raise ValueError(f"the JSON text has {found!r} in the place of one of {characters}")
        self._at += 1
        return found

    def _peek(self) -> str:
        """Skip white space; return the next character without reading it."""
        while True:
            if space := _SPACE.match(self._text, self._at):
                self._at = space.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._take_more():
                raise ValueError(_ENDS_EARLY)

    def _take_more(self) -> bool:
        """Read at least as much text as is unread, so that a long value is parsed few times. False at the end."""
        unread = self._text[self._at :]
        parts, size = [unread], 0
        while size <= len(unread) and (piece := next(self._pieces, None)) is not None:
            parts.append(self._utf8.decode(piece))
            size += len(parts[-1])
        self._text, self._at = "".join(parts), 0
        return size > 0
