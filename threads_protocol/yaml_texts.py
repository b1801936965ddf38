"""Texts of people: YAML or JSON, read as values that know their lines and columns.

Scalars mean what YAML 1.2 says, of which JSON is a part: `no` is a text, `1e5` a number. There are no aliases, tags or
keys that are given twice, so that a text is never more than it shows.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import yaml
from pydantic_core import from_json

from threads_protocol.numbers import short

#: Bytes of a text, levels of its lists and mappings, and its keys, values, lists and mappings: in memory each takes
#: many times what it takes in the text.
MAX_BYTES, MAX_DEPTH, MAX_VALUES = 4 << 20, 64, 500_000
#: Complaints that are kept of a text.
MAX_COMPLAINTS = 100
#: Digits of an integer that is not quoted, as in a body of JSON.
_MAX_DIGITS = 4300

#: The same parser in C is ten times as fast, where PyYAML was built with it.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PLAIN = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_FIRST = frozenset("+-.0123456789")
_INTEGER = re.compile(r"[-+]?[0-9]+")
_OTHER_BASE = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_DECIMAL = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
#: An escape of a quoted text; two of JSON that stand for one character have both groups.
_ESCAPE = re.compile(r"\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|.)", re.DOTALL)
_NO_NUMBER = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


@dataclass(frozen=True, order=True, slots=True)
class Place:
    """Line and column in a text, both from 1."""

    line: int
    column: int


START = Place(1, 1)


@dataclass(frozen=True, kw_only=True)
class Complaint:
    """Complaint about a text, and its place."""

    place: Place
    #: Id of the action that it is about; empty for the workflow as a whole.
    action: str = ""
    #: Dotted path of the field within the action, or within the workflow.
    field: str = ""
    text: str


class Complaints:
    """Complaints about a text: the first ones by their places, and how many there are."""

    def __init__(self, some: Iterable[Complaint] = ()) -> None:
        self.kept: list[Complaint] = []
        self.total = 0
        for each in some:
            self.add(each)

    def add(self, complaint: Complaint) -> None:
        """Note one more."""
        self.total += 1
        self.kept.append(complaint)
        if len(self.kept) >= 2 * MAX_COMPLAINTS:
            self.kept = self.first

    @property
    def first(self) -> list[Complaint]:
        """The first MAX_COMPLAINTS by their places."""
        return sorted(self.kept, key=lambda one: one.place)[:MAX_COMPLAINTS]

    @property
    def more(self) -> int:
        """How many there are besides the first."""
        return max(0, self.total - MAX_COMPLAINTS)


class Mapping(dict[str, Any]):
    """Mapping that knows where it and its keys stand."""

    __slots__ = ("at", "keys_at")

    def __init__(self, at: Place) -> None:
        super().__init__()
        self.at = at
        self.keys_at: dict[str, Place] = {}


class Sequence(list[Any]):
    """List that knows where it and its items stand."""

    __slots__ = ("_items_at", "at")

    def __init__(self, at: Place) -> None:
        super().__init__()
        self.at = at
        self._items_at: array[int] | None = None

    def add(self, value: Any, at: Place) -> None:
        """Append an item that stands at a place."""
        if self._items_at is None:
            self._items_at = array("Q")
        self.append(value)
        self._items_at.append(at.line << 32 | at.column)

    def place(self, number: int) -> Place:
        """Return where an item stands."""
        at = self._items_at[number] if self._items_at else 0
        return Place(at >> 32, at & 0xFFFFFFFF)


Node: TypeAlias = Mapping | Sequence


class Unreadable(Exception):
    """The text cannot be read; reading ends at the first complaint of this sort."""

    def __init__(self, place: Place, text: str) -> None:
        super().__init__(text)
        self.complaint = Complaint(place=place, text=text)


def parse(
    text: bytes, *, max_bytes: int = MAX_BYTES, max_depth: int = MAX_DEPTH, typed: bool = True
) -> tuple[Any, Complaints]:
    """Return the value of a text, and complaints about what need not stop the reading. Raises Unreadable.

    Unless scalars are `typed`, they are texts, but for those that are empty.
    """
    if len(text) > max_bytes:
        raise Unreadable(START, f"the text has over {max_bytes} bytes; it may have at most so many")
    try:
        decoded = text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        raise Unreadable(Place(line, 1), "the text is no UTF-8") from None
    try:
        return _Reader(_events(_without_pairs(decoded)), max_depth, typed).value()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = ", ".join(filter(None, (error.context, error.problem))) or "it is no YAML"
        raise Unreadable(_to_position(mark) if mark else START, what) from None
    except yaml.YAMLError as error:
        raise Unreadable(START, str(error).splitlines()[0]) from None


def _without_pairs(text: str) -> str:
    """Return a text of JSON with one escape of YAML for each two of JSON that stand for one character.

    JSON has such pairs for what lies beyond 16 bits, such as emoji; in YAML each alone would be no character.
    """
    if "\\ud" not in text.lower() or not _is_json(text):
        return text

    def joined(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        return f"\\U{0x10000 + ((int(match[1], 16) - 0xD800) << 10) + int(match[2], 16) - 0xDC00:08x}"

    return _ESCAPE.sub(joined, text)


def _is_json(text: str) -> bool:
    if sum(map(text.count, ",]}")) > MAX_VALUES:  # more values than are read, and many times their bytes
        return False
    try:
        from_json(text)
    except ValueError:
        return False
    return True


def _events(text: str) -> Iterator[Any]:
    """Yield the parser's events, as yaml.parse does in more calls."""
    parser = _LOADER(text)
    try:
        while (event := parser.get_event()) is not None:
            yield event
    finally:
        parser.dispose()


def short_name(key: str) -> str:
    """Return a key for a message."""
    return key if len(key) <= 64 else f"{key[:63]}…"


def describe_value(value: Any) -> str:
    """Return a value for a message, cut to some words."""
    if isinstance(value, Node):
        return short(dict(value) if isinstance(value, Mapping) else list(value))
    return short(value)


def plain(value: Any) -> Any:
    """Return a value as plain dicts and lists."""
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list) else value


def find_position(value: Any, path: tuple[str | int, ...], default: Place) -> Place:
    """Return where a path within a value stands, as far as it goes."""
    for step in path:
        if isinstance(value, Mapping) and isinstance(step, str) and step in value:
            default, value = value.keys_at[step], value[step]
        elif isinstance(value, Sequence) and isinstance(step, int) and step < len(value):
            default, value = value.place(step), value[step]
        else:
            return default
    return default


class _Reader:
    """Makes a value of the parser's events."""

    def __init__(self, events: Iterator[Any], max_depth: int, typed: bool) -> None:
        self._events, self._max_depth, self._typed = events, max_depth, typed
        self._complaints = Complaints()
        self._left = MAX_VALUES
        self._open: list[Node] = []
        #: By depth: the key whose value comes next.
        self._keys: list[str | None] = []
        self._root: Any = None

    def value(self) -> tuple[Any, Complaints]:
        documents = 0
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise Unreadable(_to_position(event.start_mark), "a second document begins; there is one in a text")
            elif isinstance(event, yaml.NodeEvent):
                self._take(event)
            elif isinstance(event, yaml.CollectionEndEvent):
                self._open.pop()
                self._keys.pop()
        return self._root, self._complaints

    def _take(self, event: Any) -> None:
        place = _to_position(event.start_mark)
        self._left -= 1
        if self._left < 0:
            raise Unreadable(place, f"the text has over {MAX_VALUES} keys and values up to here; divide it")
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            name = short_name(event.anchor)
            raise Unreadable(place, f"&{name} and *{name} are not used here; write it out")
        if event.tag is not None and event.tag != "!":
            raise Unreadable(place, f"the tag {short(event.tag)} is not used here; quote a text that looks otherwise")
        if isinstance(event, yaml.ScalarEvent):
            self._put(self._key(event) if self._wants_key() else self._scalar(event, place), place, is_text=True)
            return
        node: Node = Mapping(place) if isinstance(event, yaml.MappingStartEvent) else Sequence(place)
        if self._wants_key():
            raise Unreadable(place, "a key must be a text")
        self._put(node, place)
        self._open.append(node)
        self._keys.append(None)
        if len(self._open) > self._max_depth:
            raise Unreadable(place, f"lists and mappings are nested over {self._max_depth} deep")

    def _wants_key(self) -> bool:
        return bool(self._open) and isinstance(self._open[-1], Mapping) and self._keys[-1] is None

    def _put(self, value: Any, place: Place, *, is_text: bool = False) -> None:
        if not self._open:
            self._root = value
            return
        parent = self._open[-1]
        if isinstance(parent, Sequence):
            parent.add(value, place)
        elif self._keys[-1] is None and is_text:
            self._begin(parent, value, place)
        else:
            parent[self._keys[-1] or ""] = value
            self._keys[-1] = None

    def _begin(self, parent: Mapping, key: str, place: Place) -> None:
        if key in parent.keys_at:
            first = parent.keys_at[key].line
            words = f"{short(key)} is given twice, first in line {first}"
            self._complaints.add(Complaint(place=place, field=short_name(key), text=words))
        parent.keys_at[key] = place
        self._keys[-1] = key

    @staticmethod
    def _key(event: Any) -> str:
        key: str = event.value
        return key

    def _scalar(self, event: Any, place: Place) -> Any:
        text: str = event.value
        if event.style:  # quoted, or a block
            return text
        if text in _PLAIN and (self._typed or _PLAIN[text] is None):
            return _PLAIN[text]
        if not self._typed or text[0] not in _FIRST:
            return text
        return _number(text, place)


def _number(text: str, place: Place) -> Any:
    """Return the number that a plain scalar is, else the text."""
    if _INTEGER.fullmatch(text) or _OTHER_BASE.fullmatch(text):
        # One of another base may have a sixth more digits once it is written as JSON.
        if len(text) > _MAX_DIGITS:
            raise Unreadable(place, f"an integer of over {_MAX_DIGITS} digits; quote it")
        return int(text) if _INTEGER.fullmatch(text) else int(text, 0)
    if _DECIMAL.fullmatch(text):
        number = float(text)
        if abs(number) == float("inf"):
            raise Unreadable(place, f"{short(text)} is beyond the numbers that there are")
        return number
    if _NO_NUMBER.fullmatch(text):
        raise Unreadable(place, f"{text} is no number that a job takes")
    return text


def _to_position(mark: Any) -> Place:
    return Place(mark.line + 1, mark.column + 1)
