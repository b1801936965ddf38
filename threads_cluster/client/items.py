"""Items of the units of a program: read from a file or a range; sent in the job or, where that is full, as a file."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from threads_cluster.client import bodies
from threads_cluster.errors import BadArgument
from threads_cluster.terminal import visible
from threads_protocol import numbers

#: Bytes of JSON, and values, that a job holds itself: less than the API's bounds, as the program has its part in them.
INLINE_BYTES, INLINE_VALUES = 30 << 10, 10_000
#: Units of a job at most.
MOST = 100_000
#: Bytes of one item as JSON: it becomes a variable of the program's environment.
ITEM_BYTES = 100_000
_RANGE = re.compile(r"(-?[0-9]{1,18})\.\.(-?[0-9]{1,18})")
_JSON_LINES = frozenset({".jsonl", ".ndjson"})


def read(sources: Sequence[str]) -> list[Any]:
    """Return the items of several sources in order. Raises BadArgument if there are more than a job can have units."""
    found = [item for source in sources for item in _read_one(source)]
    if len(found) > MOST:
        raise _too_many(len(found))
    return found


def _read_one(text: str) -> list[Any]:
    """Return the items of A..B (whole numbers, both ends included), of a file, or of stdin for -.

    A .json file holds a list. A .jsonl or .ndjson file holds one JSON value per line. In other files each line is a
    text, even a blank one, so that units are numbered like lines. Raises BadArgument if there are no items or more than
    a job can have units, or if the file cannot be read.
    """
    match = _RANGE.fullmatch(text)
    found = _range(int(match[1]), int(match[2])) if match else list(_from_file(text))
    if not found:
        raise BadArgument(f"{visible(text, 200)} holds no items")
    return found


def _range(first: int, last: int) -> list[Any]:
    if not 0 <= last - first < MOST:
        count = "none" if last < first else f"{last - first + 1:,}"
        raise BadArgument(f"{first}..{last} are {count}; a job has 1 to {MOST:,} units")
    return list(range(first, last + 1))


def _from_file(name: str) -> Iterator[Any]:
    shown, suffix = visible(name, 200), Path(name).suffix.lower()
    try:
        with nullcontext(sys.stdin) if name == "-" else Path(name).open(encoding="utf-8-sig") as source:
            if suffix == ".json":
                yield from _listed(source.read(), shown)
                return
            for number, line in enumerate(source, 1):
                if number > MOST:
                    raise _too_many(number)
                text = line.rstrip("\r\n")
                yield _json_line(text, f"{shown}, line {number}") if suffix in _JSON_LINES else text
    except UnicodeDecodeError:
        raise BadArgument(f"{shown} is no UTF-8 text") from None
    except OSError as error:
        raise BadArgument(f"{shown} cannot be read: {error.strerror}") from None


def _listed(text: str, shown: str) -> list[Any]:
    value = _value(text, shown)
    if not isinstance(value, list):
        raise BadArgument(f"{shown} holds no JSON list; a file of a JSON value a line is called .jsonl")
    return value


def _json_line(text: str, place: str) -> Any:
    if not text.strip():
        error = BadArgument(f"{place} is blank, and each line must hold a JSON value")
        error.next = 'remove the line, or write null or ""'
        raise error
    return _value(text, place)


def _value(text: str, place: str) -> Any:
    try:
        return bodies.parse(text)
    except bodies.BadBody as error:
        raise BadArgument(f"{place} is {error}") from None


def _too_many(count: int) -> BadArgument:
    error = BadArgument(f"there are over {MOST:,} items, at least {count:,}, and a job has at most {MOST:,} units")
    error.next = f"submit several jobs, each of at most {MOST:,} items; split(1) cuts a file: split -l {MOST}"
    return error


def lines(items: Iterable[Any]) -> list[bytes]:
    """Return each item as a line of JSON. BadArgument for what JSON cannot hold, and for too many or too long ones."""
    encoded: list[bytes] = []
    for number, item in enumerate(items):
        if number >= MOST:
            raise _too_many(number + 1)
        try:
            line = json.dumps(item, separators=(",", ":"), allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise BadArgument(f"item {number} cannot be sent as JSON: {error}") from None
        if len(line) > ITEM_BYTES:
            raise BadArgument(
                f"item {number} has {len(line):,} bytes, and an item has at most {ITEM_BYTES:,}; put it into a file of "
                "the folder, and make its path the item"
            )
        encoded.append(line)
    if not encoded:
        raise BadArgument("there are no items")
    return encoded


def fit(encoded: Sequence[bytes], items: Sequence[Any]) -> bool:
    """Return True where a job can hold the items itself, every integer as it is."""
    size = sum(map(len, encoded)) + len(encoded) + 1
    values = len(encoded) + sum(line.count(each) for line in encoded for each in (b",", b"]", b"}"))
    return size <= INLINE_BYTES and values <= INLINE_VALUES and not any(map(_is_large, items))


def _is_large(value: Any) -> bool:
    """Return True for what holds an integer that would travel in a job as a text."""
    if isinstance(value, dict):
        return any(map(_is_large, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_is_large, value))
    return isinstance(value, int) and abs(value) > numbers.JSON_SAFE
