"""Handling of unreadable entries in Redis, which reads skip. Each entry is logged once and counted by type."""

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
#: Types of entries that can be skipped, which are the values of a metric's label.
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
    "service",
    "schedule",
    "profile",
    "webhook",
)
#: Maximum number of names of skipped entries that are remembered.
_REMEMBERED = 10_000


class Skips:
    """Counts of skipped entries, keyed by type. Thread-safe."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys(SORTS, 0))
        self._logged: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def note(self, sort: str, name: str, why: object) -> None:
        """Count a skipped entry. Log the entry if its name is new."""
        with self._lock:
            self.counts[sort] += 1
            known = (sort, name) in self._logged or len(self._logged) >= _REMEMBERED
            self._logged.add((sort, name))
        if not known:
            log.warning("skipped a broken %s: %s: %s", sort, name[:200], str(why)[:500])


#: Counts of skipped entries in this process.
SKIPS = Skips()


def readable(sort: str, rows: Iterable[tuple[Any, Stored]], read: Callable[[Any, Stored], Read]) -> list[Read]:
    """Return `read(name, stored)` for each row that is readable. Other rows are skipped."""
    entries = []
    for name, stored in rows:
        try:
            entries.append(read(name, stored))
        except Unreadable as error:
            SKIPS.note(sort, repr(name), f"{type(error).__name__}: {error}")
    return entries


def replies(pipe: Any) -> list[Any]:
    """Execute a pipeline and return its replies. The reply is None if a key has the wrong type."""
    commands = [command[0] for command in pipe.command_stack]
    return _without_wrong_types(commands, pipe.execute(raise_on_error=False))


def replies_at_once(functions: Functions, *commands: Sequence[str]) -> list[Any]:
    """Execute commands atomically and return their replies. The reply is None if a key has the wrong type."""
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
