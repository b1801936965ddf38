"""Skip unreadable entries in Redis. Each one is logged once by its name and counted by its type."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from jobs.store.server.connection import Unreadable, wrong_type
from jobs.store.server.functions import Functions

log = logging.getLogger(__name__)

Stored = TypeVar("Stored")
Read = TypeVar("Read")
#: Types of entries that can be skipped: values of the metric's label.
SORTS = (
    "job",
    "workflow",
    "worker",
    "event",
    "span",
    "sample",
    "alert",
    "mark",
    "figure",
    "index",
    "audit",
    "output",
    "attachment",
)
#: Maximum number of names that are remembered as logged.
_REMEMBERED = 10_000


class Skips:
    """Counts of skipped entries by type. Thread-safe."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys(SORTS, 0))
        self._logged: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def note(self, sort: str, name: str, why: object) -> None:
        """Count a skipped entry, and log it if its name is new."""
        with self._lock:
            self.counts[sort] += 1
            known = (sort, name) in self._logged or len(self._logged) >= _REMEMBERED
            self._logged.add((sort, name))
        if not known:
            log.warning("skipped a broken %s: %s: %s", sort, name[:200], str(why)[:500])


#: Counts of this process.
SKIPS = Skips()


def readable(sort: str, rows: Iterable[tuple[Any, Stored]], read: Callable[[Any, Stored], Read]) -> list[Read]:
    """Return `read(name, stored)` for all readable rows, and skip the others."""
    entries = []
    for name, stored in rows:
        try:
            entries.append(read(name, stored))
        except Unreadable as error:
            SKIPS.note(sort, repr(name), f"{type(error).__name__}: {error}")
    return entries


def replies(pipe: Any) -> list[Any]:
    """Execute a pipeline and return its replies, with None for commands whose key has the wrong type."""
    commands = [command[0] for command in pipe.command_stack]
    return _without_wrong_types(commands, pipe.execute(raise_on_error=False))


def replies_at_once(functions: Functions, *commands: Sequence[str]) -> list[Any]:
    """Execute commands atomically and return their replies, with None as in `replies`."""
    return _without_wrong_types(commands, functions.replies(*commands))


def _without_wrong_types(commands: Sequence[Sequence[Any]], answered: Sequence[Any]) -> list[Any]:
    readable_replies = list(answered)
    for place, reply in enumerate(answered):
        if isinstance(reply, Exception):
            if not wrong_type(reply):
                raise reply
            SKIPS.note("index", " ".join(map(str, commands[place][:2])), reply)
            readable_replies[place] = None
    return readable_replies
