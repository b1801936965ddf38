"""Functions that read the items of a program from files or ranges, and check whether a job can contain them."""

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

#: Maximum size in bytes of a job's items as JSON, which is below the API's limit.
#: Maximum number of JSON values in a job's items, which is below the API's limit.
INLINE_BYTES, INLINE_VALUES = 30 << 10, 10_000
#: Maximum number of units per job.
MOST = 100_000
#: Maximum size in bytes of an item as JSON. Each item becomes an environment variable.
ITEM_BYTES = 100_000
_RANGE = re.compile(r"(-?[0-9]{1,18})\.\.(-?[0-9]{1,18})")
_JSON_LINES = frozenset({".jsonl", ".ndjson"})


def read(sources: Sequence[str]) -> list[Any]:
    """Return the items of several sources in order. Raises BadArgument if there are too many items for a job."""
    found = [item for source in sources for item in _read_one(source)]
    if len(found) > MOST:
        raise _too_many(len(found))
    return found


def _read_one(text: str) -> list[Any]:
    """Return the items of a range A..B, which includes both ends, of a file, or of stdin for `-`.

    A .json file contains a list. A .jsonl or .ndjson file contains one JSON value per line. In other files each line is
    a text, even a blank one, so that units are numbered like lines. Raises BadArgument if there are no items or more
    than a job can have units, or if the file cannot be read.
    """
    match = _RANGE.fullmatch(text)
    found = _range(int(match[1]), int(match[2])) if match else list(_from_file(text))
    if not found:
        raise BadArgument(f"{visible(text, 200)} contains no items")
    return found


def _range(first: int, last: int) -> list[Any]:
    if not 0 <= last - first < MOST:
        count = "no" if last < first else f"{last - first + 1:,}"
        raise BadArgument(f"{first}..{last} has {count} items; a job has 1 to {MOST:,} units")
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
        raise BadArgument(f"{shown} is not UTF-8 text") from None
    except OSError as error:
        raise BadArgument(f"{shown} cannot be read: {error.strerror}") from None


def _listed(text: str, shown: str) -> list[Any]:
    value = _value(text, shown)
    if not isinstance(value, list):
        raise BadArgument(f"{shown} does not contain a JSON list; name a file with one JSON value per line .jsonl")
    return value


def _json_line(text: str, place: str) -> Any:
    if not text.strip():
        error = BadArgument(f"{place} is blank; each line must contain a JSON value")
        error.next = 'remove the line, or write null or ""'
        raise error
    return _value(text, place)


def _value(text: str, place: str) -> Any:
    try:
        return bodies.parse(text)
    except bodies.BadBody as error:
        raise BadArgument(f"{place} is {error}") from None


def _too_many(count: int) -> BadArgument:
    error = BadArgument(f"there are at least {count:,} items, but a job can have at most {MOST:,} units")
    error.next = f"submit several jobs, each of at most {MOST:,} items; split(1) cuts a file: split -l {MOST}"
    return error


def lines(items: Iterable[Any]) -> list[bytes]:
    """Encode each item as a line of JSON. Raises BadArgument if an item is not valid JSON or is too long.

    Also raises BadArgument if there are no items, or too many.
    """
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
                f"item {number} has {len(line):,} bytes; the limit is {ITEM_BYTES:,}. Store the value in a file of "
                "the folder, and use its path as the item"
            )
        encoded.append(line)
    if not encoded:
        raise BadArgument("there are no items")
    return encoded


def fit(encoded: Sequence[bytes], items: Sequence[Any]) -> bool:
    """Return True if a job's specification can contain the items. Large integers would be changed."""
    size = sum(map(len, encoded)) + len(encoded) + 1
    values = len(encoded) + sum(line.count(each) for line in encoded for each in (b",", b"]", b"}"))
    return size <= INLINE_BYTES and values <= INLINE_VALUES and not any(map(_is_large, items))


def _is_large(value: Any) -> bool:
    """Return True if a value contains an integer that a job would store as text."""
    if isinstance(value, dict):
        return any(map(_is_large, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_is_large, value))
    return isinstance(value, int) and abs(value) > numbers.JSON_SAFE
