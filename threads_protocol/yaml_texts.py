"""Parser of YAML and JSON texts that users write. The parsed values know their lines and columns.

Scalars follow YAML 1.2, which includes JSON: `no` is a string and `1e5` is a number. Aliases, tags and duplicate keys
are errors, so the size of a value is bounded by the size of its text.
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

#: Maximum size of a text in bytes.
#: Maximum nesting depth of a text.
#: Maximum number of keys and values in a text.
MAX_BYTES, MAX_DEPTH, MAX_VALUES = 4 << 20, 64, 500_000
#: Maximum number of problems that are reported for a text.
MAX_COMPLAINTS = 100
#: Maximum number of digits of an unquoted integer. JSON request bodies have the same limit.
_MAX_DIGITS = 4300

#: The C loader is ten times as fast, but PyYAML may have been built without it.
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
#: Pattern of an escape sequence in a quoted string. Both groups match only a JSON surrogate pair.
_ESCAPE = re.compile(r"\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|.)", re.DOTALL)
_NO_NUMBER = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


@dataclass(frozen=True, order=True, slots=True)
class Position:
    """Position in a text: line and column, both counted from 1."""

    line: int
    column: int


START = Position(1, 1)


@dataclass(frozen=True, kw_only=True)
class Complaint:
    """A problem in a text, with its position."""

    place: Position
    #: ID of the action with the problem, or empty if the problem concerns the complete workflow.
    action: str = ""
    #: Dotted path of the invalid field within the action, or within the workflow.
    field: str = ""
    text: str


class Complaints:
    """Problems of a text: their number, and the first ones by position."""

    def __init__(self, some: Iterable[Complaint] = ()) -> None:
        self.kept: list[Complaint] = []
        self.total = 0
        for each in some:
            self.add(each)

    def add(self, complaint: Complaint) -> None:
        """Add a problem of the text."""
        self.total += 1
        self.kept.append(complaint)
        if len(self.kept) >= 2 * MAX_COMPLAINTS:
            self.kept = self.first

    @property
    def first(self) -> list[Complaint]:
        """Return the first MAX_COMPLAINTS problems, sorted by position."""
        return sorted(self.kept, key=lambda one: one.place)[:MAX_COMPLAINTS]

    @property
    def more(self) -> int:
        """Return the number of problems that `first` omits."""
        return max(0, self.total - MAX_COMPLAINTS)


class Mapping(dict[str, Any]):
    """Dictionary that knows its own position and the positions of its keys."""

    __slots__ = ("at", "keys_at")

    def __init__(self, at: Position) -> None:
        super().__init__()
        self.at = at
        self.keys_at: dict[str, Position] = {}


class Sequence(list[Any]):
    """List that knows its own position and the positions of its items."""

    __slots__ = ("_items_at", "at")

    def __init__(self, at: Position) -> None:
        super().__init__()
        self.at = at
        self._items_at: array[int] | None = None

    def add(self, value: Any, at: Position) -> None:
        """Append an item to the list, with the item's position."""
        if self._items_at is None:
            self._items_at = array("Q")
        self.append(value)
        self._items_at.append(at.line << 32 | at.column)

    def place(self, number: int) -> Position:
        """Return the position of an item by its index in the list."""
        at = self._items_at[number] if self._items_at else 0
        return Position(at >> 32, at & 0xFFFFFFFF)


Node: TypeAlias = Mapping | Sequence


class Unreadable(Exception):
    """The text cannot be parsed, so parsing stops."""

    def __init__(self, place: Position, text: str) -> None:
        super().__init__(text)
        self.complaint = Complaint(place=place, text=text)


def parse(
    text: bytes, *, max_bytes: int = MAX_BYTES, max_depth: int = MAX_DEPTH, typed: bool = True
) -> tuple[Any, Complaints]:
    """Parse a text, and return its value and its problems. Raises Unreadable if parsing cannot continue.

    If `typed` is false, non-empty scalars remain strings.
    """
    if len(text) > max_bytes:
        raise Unreadable(START, f"the text has over {max_bytes} bytes, which is the maximum")
    try:
        decoded = text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        raise Unreadable(Position(line, 1), "the text is not UTF-8") from None
    try:
        return _Reader(_events(_replace_surrogate_pairs(decoded)), max_depth, typed).value()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = ", ".join(filter(None, (error.context, error.problem))) or "invalid YAML"
        raise Unreadable(_to_position(mark) if mark else START, what) from None
    except yaml.YAMLError as error:
        raise Unreadable(START, str(error).splitlines()[0]) from None


def _replace_surrogate_pairs(text: str) -> str:
    """Replace each surrogate pair of JSON in a text with an escape sequence of YAML.

    JSON writes characters beyond 16 bits, such as emoji, as surrogate pairs, which are invalid in YAML.
    """
    if "\\ud" not in text.lower() or not _is_json(text):
        return text

    def joined(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        return f"\\U{0x10000 + ((int(match[1], 16) - 0xD800) << 10) + int(match[2], 16) - 0xDC00:08x}"

    return _ESCAPE.sub(joined, text)


def _is_json(text: str) -> bool:
    if sum(map(text.count, ",]}")) > MAX_VALUES:  # The text has more values than the parser accepts
        return False
    try:
        from_json(text)
    except ValueError:
        return False
    return True


def _events(text: str) -> Iterator[Any]:
    """Yield the events of the YAML parser, but faster than yaml.parse."""
    parser = _LOADER(text)
    try:
        while (event := parser.get_event()) is not None:
            yield event
    finally:
        parser.dispose()


def short_name(key: str) -> str:
    """Return a shortened key for use in a message."""
    return key if len(key) <= 64 else f"{key[:63]}…"


def describe_value(value: Any) -> str:
    """Format a value for use in a message, cut to a few words."""
    if isinstance(value, Node):
        return short(dict(value) if isinstance(value, Mapping) else list(value))
    return short(value)


def plain(value: Any) -> Any:
    """Convert a value to plain dicts and lists."""
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list) else value


def find_position(value: Any, path: tuple[str | int, ...], default: Position) -> Position:
    """Return the position of a path in a value. If the path does not exist, return the position of its start."""
    for step in path:
        if isinstance(value, Mapping) and isinstance(step, str) and step in value:
            default, value = value.keys_at[step], value[step]
        elif isinstance(value, Sequence) and isinstance(step, int) and step < len(value):
            default, value = value.place(step), value[step]
        else:
            return default
    return default


class _Reader:
    """Builder of a value from the events of the YAML parser."""

    def __init__(self, events: Iterator[Any], max_depth: int, typed: bool) -> None:
        self._events, self._max_depth, self._typed = events, max_depth, typed
        self._complaints = Complaints()
        self._left = MAX_VALUES
        self._open: list[Node] = []
        #: Key at each nesting depth that is waiting for its value.
        self._keys: list[str | None] = []
        self._root: Any = None

    def value(self) -> tuple[Any, Complaints]:
        documents = 0
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise Unreadable(
                        _to_position(event.start_mark), "a second document starts here; only one is allowed"
                    )
            elif isinstance(event, yaml.NodeEvent):
                self._handle(event)
            elif isinstance(event, yaml.CollectionEndEvent):
                self._open.pop()
                self._keys.pop()
        return self._root, self._complaints

    def _handle(self, event: Any) -> None:
        place = _to_position(event.start_mark)
        self._left -= 1
        if self._left < 0:
            raise Unreadable(place, f"the text has over {MAX_VALUES} keys and values up to here; split it")
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            name = short_name(event.anchor)
            raise Unreadable(place, f"anchors and aliases (&{name}, *{name}) are not allowed; repeat the value")
        if event.tag is not None and event.tag != "!":
            raise Unreadable(place, f"the tag {short(event.tag)} is not allowed; to write a string, use quotes")
        if isinstance(event, yaml.ScalarEvent):
            self._put(self._key(event) if self._expects_key() else self._scalar(event, place), place, is_text=True)
            return
        node: Node = Mapping(place) if isinstance(event, yaml.MappingStartEvent) else Sequence(place)
        if self._expects_key():
            raise Unreadable(place, "a key must be a string")
        self._put(node, place)
        self._open.append(node)
        self._keys.append(None)
        if len(self._open) > self._max_depth:
            raise Unreadable(place, f"lists and mappings are nested more than {self._max_depth} levels deep")

    def _expects_key(self) -> bool:
        return bool(self._open) and isinstance(self._open[-1], Mapping) and self._keys[-1] is None

    def _put(self, value: Any, place: Position, *, is_text: bool = False) -> None:
        if not self._open:
            self._root = value
            return
        parent = self._open[-1]
        if isinstance(parent, Sequence):
            parent.add(value, place)
        elif self._keys[-1] is None and is_text:
            self._add_key(parent, value, place)
        else:
            parent[self._keys[-1] or ""] = value
            self._keys[-1] = None

    def _add_key(self, parent: Mapping, key: str, place: Position) -> None:
        if key in parent.keys_at:
            first = parent.keys_at[key].line
            words = f"duplicate key {short(key)}, first used in line {first}"
            self._complaints.add(Complaint(place=place, field=short_name(key), text=words))
        parent.keys_at[key] = place
        self._keys[-1] = key

    @staticmethod
    def _key(event: Any) -> str:
        key: str = event.value
        return key

    def _scalar(self, event: Any, place: Position) -> Any:
        text: str = event.value
        if event.style:  # The scalar is quoted or is a block scalar
            return text
        if text in _PLAIN and (self._typed or _PLAIN[text] is None):
            return _PLAIN[text]
        if not self._typed or text[0] not in _FIRST:
            return text
        return _number(text, place)


def _number(text: str, place: Position) -> Any:
    """Convert an unquoted scalar to a number if possible. Otherwise, return the text."""
    if _INTEGER.fullmatch(text) or _OTHER_BASE.fullmatch(text):
        # The decimal form of a hexadecimal integer has up to a sixth more digits.
        if len(text) > _MAX_DIGITS:
            raise Unreadable(place, f"integer with over {_MAX_DIGITS} digits; quote it")
        return int(text) if _INTEGER.fullmatch(text) else int(text, 0)
    if _DECIMAL.fullmatch(text):
        number = float(text)
        if abs(number) == float("inf"):
            raise Unreadable(place, f"{short(text)} is out of range")
        return number
    if _NO_NUMBER.fullmatch(text):
        raise Unreadable(place, f"{text} is not a supported number")
    return text


def _to_position(mark: Any) -> Position:
    return Position(mark.line + 1, mark.column + 1)
