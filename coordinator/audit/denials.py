"""Count denied requests of this replica by caller and reason, so that a flood of requests causes few audit entries."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence

from jobs.models import Actor
from jobs.store.tenancy.audit_log import Denied

#: Denial reasons by response status.
REASONS = {401: "unauthorized", 403: "forbidden", 429: "limited"}
SECONDS = 60.0
#: Maximum number of callers counted separately per minute. Further callers are counted together.
CALLERS = 256
OTHERS = "others"


class Denials:
    """Thread-safe counts of the requests denied in the current minute."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[Actor, str, str]] = Counter()

    def count(self, status: int, source: str, actor: Actor) -> None:
        """Count a request denied for a reason in REASONS. `source` is the network address of the caller."""
        self._add((actor, source, REASONS[status]), 1)

    def _add(self, key: tuple[Actor, str, str], times: int) -> None:
        with self._lock:
            if key not in self._counts and len(self._counts) >= CALLERS:
                key = (Actor("", ""), OTHERS, key[2])
            self._counts[key] += times

    def write(self, write: Callable[[Sequence[Denied]], None]) -> None:
        """Pass the counts to `write` and reset them. If `write` raises an error, keep the counts for the next call."""
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
