"""Detect workers without heartbeats for several seconds, measured by the leader's own clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

#: Seconds after which a worker without heartbeats counts as missing.
MISSED_SECONDS = 6.0
#: Maximum interval in seconds between two checks. After a longer interval, workers can have returned unnoticed.
_BLIND_SECONDS = 5.0


class Absences:
    """Tracks when each worker became missing. After an outage of Redis, all workers look missing at once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}
        self._looked_at = 0.0

    def missed(self, gone: Collection[str]) -> frozenset[str]:
        """Return the workers in `gone` that have sent no heartbeat for at least MISSED_SECONDS."""
        now = self._clock()
        if now - self._looked_at > _BLIND_SECONDS:
            self._since.clear()
        self._looked_at = now
        self._since = {one: self._since.get(one, now) for one in gone}
        return frozenset(one for one, since in self._since.items() if now - since >= MISSED_SECONDS)
