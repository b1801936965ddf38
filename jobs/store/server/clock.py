"""Clock of Redis, which all timestamps use. Timestamps are therefore correct even if a coordinator's clock is wrong."""

from __future__ import annotations

import time

from jobs.store.server.functions import Functions, Part

#: Seconds for which a reading of Redis' clock is used before the clock is read again.
FRESH_SECONDS = 1.0


class Clock(Part):
    """Cached reading of Redis' clock. Thread-safe."""

    def __init__(self, functions: Functions) -> None:
        super().__init__(functions)
        #: Last reading of Redis' clock, as a pair of local monotonic time and Redis time.
        self._read = (float("-inf"), 0.0)

    def now(self) -> float:
        """Return the current Redis time in seconds since 1970."""
        here, (asked, answer) = time.monotonic(), self._read
        if here - asked < FRESH_SECONDS:
            return answer + here - asked
        seconds, micros = self._client.time()
        self._read = here, float(seconds + micros / 1e6)
        return self._read[1]
