"""A file of YAML as values and the lines on which they stand. Scalars are texts, so that a host may be called `no`.

There are no anchors, aliases, tags or keys given twice: a file is never more than it shows.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import yaml

#: Bytes of a file, and levels of its lists and mappings.
MAX_BYTES, MAX_DEPTH = 256 << 10, 8

#: Keys and numbers of items from the top.
Place: TypeAlias = tuple[str | int, ...]

#: The same parser in C is ten times as fast, where PyYAML was built with it.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NOTHING = ("", "~", "null")


class Unreadable(Exception):
    """The text is no YAML of the kind that is read here; it has the line, from 1, and why."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line


class Document:
    """Value of a text, and the line of each place in it, from 1; that of a mapping's value is the one of its key."""

    def __init__(self, text: bytes) -> None:
        """Raises Unreadable."""
        self.lines: dict[Place, int] = {(): 1}
        self._open: list[tuple[Any, Place]] = []
        self._key: str | None = None
        self.value: Any = None
        try:
            for event in yaml.parse(_decoded(text), Loader=_LOADER):
                self._add(event)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            raise Unreadable(mark.line + 1 if mark else 1, error.problem or "this is no YAML") from None
        except yaml.YAMLError as error:
            raise Unreadable(1, f"this is no YAML: {str(error).splitlines()[0]}") from None

    def line(self, place: Place) -> int:
        """Return the line of a place, else of what is around it."""
        while place not in self.lines:
            place = place[:-1]
        return self.lines[place]

    def _add(self, event: yaml.Event) -> None:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.DocumentStartEvent) and () in self.lines and self.value is not None:
            raise Unreadable(line, "a second document begins here; there is one")
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) or _tagged(event):
            raise Unreadable(line, "anchors, aliases and tags (& * !) are not taken; write the value itself")
        if isinstance(event, yaml.ScalarEvent):
            self._scalar(event, line)
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            self._begin({} if isinstance(event, yaml.MappingStartEvent) else [], line)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            self._open.pop()

    def _scalar(self, event: yaml.ScalarEvent, line: int) -> None:
        if self._open and isinstance(self._open[-1][0], dict) and self._key is None:
            self._take_key(event.value, line)
        else:
            self._put(None if event.implicit[0] and event.value.lower() in _NOTHING else event.value, line)

    def _take_key(self, key: str, line: int) -> None:
        around, place = self._open[-1]
        if key in around:
            raise Unreadable(line, f"{key!r} is given twice")
        self._key = key
        self.lines[(*place, key)] = line

    def _begin(self, value: dict[str, Any] | list[Any], line: int) -> None:
        if self._open and isinstance(self._open[-1][0], dict) and self._key is None:
            raise Unreadable(line, "a key is a text")
        if len(self._open) == MAX_DEPTH:
            raise Unreadable(line, f"lists and mappings are nested over {MAX_DEPTH} levels deep")
        self._open.append((value, self._put(value, line)))

    def _put(self, value: Any, line: int) -> Place:
        """Put a value where it belongs; its place."""
        if not self._open:
            self.value = value
            return ()
        around, place = self._open[-1]
        if isinstance(around, list):
            around.append(value)
            place = (*place, len(around) - 1)
            self.lines[place] = line
            return place
        assert self._key is not None
        around[self._key], key, self._key = value, self._key, None
        return (*place, key)


def _decoded(text: bytes) -> str:
    if len(text) > MAX_BYTES:
        raise Unreadable(1, f"the file has {len(text):,} bytes; at most {MAX_BYTES:,} are read")
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreadable(text.count(b"\n", 0, error.start) + 1, "this is no UTF-8") from None


def _tagged(event: yaml.Event) -> bool:
    return getattr(event, "tag", None) is not None
