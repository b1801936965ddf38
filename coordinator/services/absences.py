"""Workers that a leader misses: those whose heartbeats have not come for a while of its own looking."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

#: Seconds for which a worker must be missed. Its heartbeats count for five seconds more.
MISSED_SECONDS = 6.0
#: Longest time between two looks: after a longer one nobody knows who was there meanwhile.
_BLIND_SECONDS = 5.0


class Absences:
    """Counts since when workers are missed. A Redis that was away says of all at once that they are gone."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}
        self._looked_at = 0.0

    def missed(self, gone: Collection[str]) -> frozenset[str]:
        """Return the workers that have been missed for long, of those that are gone now."""
        now = self._clock()
        if now - self._looked_at > _BLIND_SECONDS:
            self._since.clear()
        self._looked_at = now
        self._since = {one: self._since.get(one, now) for one in gone}
        return frozenset(one for one, since in self._since.items() if now - since >= MISSED_SECONDS)
