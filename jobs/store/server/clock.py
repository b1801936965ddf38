"""Redis' clock, by which all times are written. A coordinator whose own clock is wrong reports the same times."""

from __future__ import annotations

import time

from jobs.store.server.functions import Functions, Part

#: Seconds after which Redis is asked again. In between, the local monotonic clock is used.
FRESH_SECONDS = 1.0


class Clock(Part):
    """Redis' clock, cached for FRESH_SECONDS. Thread-safe."""

    def __init__(self, functions: Functions) -> None:
        super().__init__(functions)
        #: time.monotonic() when Redis was asked, and its answer.
        self._read = (float("-inf"), 0.0)

    def now(self) -> float:
        """Return Redis' time in seconds since 1970."""
        here, (asked, answer) = time.monotonic(), self._read
        if here - asked < FRESH_SECONDS:
            return answer + here - asked
        seconds, micros = self._client.time()
        self._read = here, float(seconds + micros / 1e6)
        return self._read[1]
