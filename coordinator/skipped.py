"""What is stored in Redis and cannot be shown: skipped, logged once a name, counted by what it was."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from jobs.store import leases

log = logging.getLogger(__name__)

Stored = TypeVar("Stored")
Shown = TypeVar("Shown")
#: What may be skipped; the label of the metric.
WHAT = ("job", "node", "event", "span", "sample", "alert", "mark", "figure", "index")
#: So many names are remembered as logged.
_REMEMBERED = 10_000


class Skips:
    """Counts of this process. Thread-safe."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys(WHAT, 0))
        self._logged: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def note(self, what: str, name: str, why: object) -> None:
        """Counts an entry that was skipped; logs it when its name is new."""
        with self._lock:
            self.counts[what] += 1
            known = (what, name) in self._logged or len(self._logged) >= _REMEMBERED
            self._logged.add((what, name))
        if not known:
            log.warning("skipped a broken %s: %s: %s", what, name[:200], str(why)[:500])


#: Of this process.
SKIPS = Skips()


def each(what: str, rows: Iterable[tuple[Any, Stored]], read: Callable[[Any, Stored], Shown]) -> list[Shown]:
    """What `read` makes of each (name, stored), without those that it cannot read."""
    found = []
    for name, stored in rows:
        try:
            found.append(read(name, stored))
        except leases.Unreadable as error:
            SKIPS.note(what, repr(name), f"{type(error).__name__}: {error}")
    return found


def replies(pipe: Any) -> list[Any]:
    """A pipeline's replies; None in the place of each whose key has another type."""
    asked = [command[0] for command in pipe.command_stack]
    return _readable(asked, pipe.execute(raise_on_error=False))


def replies_at_once(book: leases.Leases, *commands: Sequence[str]) -> list[Any]:
    """The same of commands that read at one moment."""
    return _readable(commands, book.replies(*commands))


def _readable(asked: Sequence[Sequence[Any]], found: list[Any]) -> list[Any]:
    for place, reply in enumerate(found):
        if isinstance(reply, Exception):
            if not leases.wrong_type(reply):
                raise reply
            SKIPS.note("index", " ".join(map(str, asked[place][:2])), reply)
            found[place] = None
    return list(found)
