"""Redis' clock: the one by which everything is written, so that a coordinator whose own is wrong shows the same."""

from __future__ import annotations

import time

from jobs.store.server.functions import Functions, Part

#: Seconds after which Redis is asked again; between, this machine counts seconds, whatever its clock is set to.
FRESH_SECONDS = 1.0


class Clock(Part):
    """Redis' clock as a replica knows it. Thread-safe."""

    def __init__(self, functions: Functions) -> None:
        super().__init__(functions)
        #: When Redis was asked, by time.monotonic, and what it answered.
        self._read = (float("-inf"), 0.0)

    def now(self) -> float:
        """Return Redis' time in seconds since 1970."""
        here, (asked, answer) = time.monotonic(), self._read
        if here - asked < FRESH_SECONDS:
            return answer + here - asked
        seconds, micros = self._client.time()
        self._read = here, float(seconds + micros / 1e6)
        return self._read[1]
