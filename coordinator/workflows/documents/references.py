"""References in action parameters: `${action.field}` is replaced by a result field of another action.

A reference must be the whole value. Text that only contains one is unchanged, so `${HOME}` in a shell command stays as
it is. Replaced values are not scanned again. `$${...}` is the escape for a literal `${...}`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

Path: TypeAlias = tuple[str | int, ...]

_WHOLE = re.compile(r"\$\{([A-Za-z0-9_-]+)((?:\.[A-Za-z0-9_-]+)*)\}")
_WITHIN = re.compile(r"\$\{([A-Za-z0-9_-]+)(?:\.[A-Za-z0-9_-]+)+\}")
_ESCAPE = "$${"
#: Maximum number of path steps of a reference in an error message.
#: Maximum number of characters of a reference in an error message.
_SHOWN_STEPS, _SHOWN = 20, 100
#: Names in actions with foreach: the current item, and its index from 0.
ITEM, INDEX = "item", "index"


@dataclass(frozen=True)
class Reference:
    """Reference to a result field of an action, or to the item of a foreach."""

    action: str
    path: tuple[str, ...]

    def __str__(self) -> str:
        """Format the reference for a message, shortened if it is long."""
        text = ".".join((self.action, *self.path[:_SHOWN_STEPS]))
        return f"${{{text[:_SHOWN]}…}}" if len(self.path) > _SHOWN_STEPS or len(text) > _SHOWN else f"${{{text}}}"


def reference(value: Any) -> Reference | None:
    """Parse a value as a reference, or return None for any other value."""
    match = _WHOLE.fullmatch(value) if isinstance(value, str) and value.startswith("${") else None
    if match is None or not (match[2] or match[1] in (ITEM, INDEX)):
        return None
    return Reference(match[1], tuple(match[2].split(".")[1:]))


def find_references(value: Any, path: Path = ()) -> Iterator[tuple[Path, Reference]]:
    """Yield each reference in a value with its path."""
    for where, text in _texts(value, path):
        if one := reference(text):
            yield where, one


def within_texts(value: Any) -> Iterator[tuple[Path, str, str]]:
    """Yield (path, action ID, match) for each text that contains a reference among other characters.

    Such references are not replaced.
    """
    for where, text in _texts(value, ()):
        if "${" in text and not text.startswith(_ESCAPE) and not reference(text) and (match := _WITHIN.search(text)):
            yield where, match[1], match[0]


def _texts(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _texts(inner, (*path, name))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _texts(inner, (*path, number))


def is_changed(value: Any) -> bool:
    """Return True if filling references would change the value."""
    return any(reference(text) or _is_escape(text) for _, text in _texts(value, ()))


def _is_escape(text: str) -> bool:
    return text.startswith(_ESCAPE) and _WHOLE.fullmatch(text[1:]) is not None


class Unfilled(Exception):
    """Error raised if a reference has no value. The message explains the reason."""


def fill_references(value: Any, look_up: Callable[[Reference], Any]) -> Any:
    """Return a value with each reference replaced by the result of `look_up`, which can raise Unfilled."""
    if isinstance(value, str):
        if _is_escape(value):
            return value[1:]
        one = reference(value)
        return value if one is None else look_up(one)
    if isinstance(value, dict):
        return {name: fill_references(inner, look_up) for name, inner in value.items()}
    return [fill_references(inner, look_up) for inner in value] if isinstance(value, list) else value


def size_of(value: Any) -> int:
    """Return the size in bytes of a value as JSON in UTF-8."""
    return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(errors="surrogatepass"))


def limit_look_up(look_up: Callable[[Reference], Any], most: int) -> Callable[[Reference], Any]:
    """Wrap `look_up` so that it raises Unfilled once the returned values exceed `most` bytes as JSON.

    A value counts each time that it is returned: in memory it is shared, but serialized it is repeated.
    """
    sizes: dict[Reference, int] = {}
    brought = 0

    def counted(one: Reference) -> Any:
        nonlocal brought
        value = look_up(one)
        if one not in sizes:
            sizes[one] = size_of(value)
        brought += sizes[one]
        if brought > most:
            raise Unfilled(
                f"the values of its references exceed the maximum of {most} bytes as JSON ({one} alone has "
                f"{sizes[one]}): refer to smaller parts, or let jobs write files and refer to their artifacts"
            )
        return value

    return counted


def find_index(step: str, length: int) -> int | None:
    """Convert a path step to an index below `length`, or return None if it is not such an index."""
    return int(step) if step.isdigit() and len(step) <= len(str(length)) and int(step) < length else None


def part(given: Any, reference: Reference, first: int = 0) -> Any:
    """Return the part of a value that a reference selects, starting at step `first` of its path.

    Raises Unfilled, with the available fields, if a step does not exist.
    """
    for number, step in enumerate(reference.path[first:], first):
        if isinstance(given, dict) and step in given:
            given = given[step]
        elif isinstance(given, list) and (at := find_index(step, len(given))) is not None:
            given = given[at]
        else:
            here = ".".join((reference.action, *reference.path[:number]))
            raise Unfilled(f"{reference}: {here} has no {step}; it {_describe(given)}")
    return given


def as_word(value: Any) -> str:
    """Convert a value to a command argument: keep text, encode other values as JSON. Raises Unfilled for null."""
    if value is None:
        raise Unfilled("null cannot be an argument of a command")
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _describe(value: Any) -> str:
    if isinstance(value, dict):
        return f"has {', '.join(list(value)[:20]) or 'no fields'}"
    return f"is a list of {len(value)}" if isinstance(value, list) else f"is a {type(value).__name__}"
