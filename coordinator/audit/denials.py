"""Denied calls of this replica, counted by who called and why, so that a flood becomes few entries."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence

from jobs.models import Actor
from jobs.store.tenancy.audit_log import Denied

#: Reasons by the status of the answer.
REASONS = {401: "unauthorized", 403: "forbidden", 429: "limited"}
SECONDS = 60.0
#: Callers that are told apart in a minute; the others are one.
CALLERS = 256
OTHERS = "others"


class Denials:
    """Counts of this minute. Thread-safe, and bounded whatever comes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[Actor, str, str]] = Counter()

    def count(self, status: int, source: str, actor: Actor) -> None:
        """Count an answer of one of REASONS to a caller at the network address `source`."""
        self._add((actor, source, REASONS[status]), 1)

    def _add(self, key: tuple[Actor, str, str], times: int) -> None:
        with self._lock:
            if key not in self._counts and len(self._counts) >= CALLERS:
                key = (Actor("", ""), OTHERS, key[2])
            self._counts[key] += times

    def write(self, write: Callable[[Sequence[Denied]], None]) -> None:
        """Give the counts to `write`, and count anew. When it raises, they are kept for the next time."""
        with self._lock:
            counts, self._counts = self._counts, Counter()
        if not counts:
            return
        try:
            write([Denied(*key, times) for key, times in counts.items()])
        except Exception:
            for key, times in counts.items():
                self._add(key, times)
            raise
