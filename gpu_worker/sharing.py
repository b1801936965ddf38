"""Decides when a GPU worker yields its GPU to waiting programs."""

from __future__ import annotations

import time
from collections.abc import Callable

from jobs.models import Priority

#: Seconds without work after which any waiting program gets the GPU.
IDLE_SECONDS = 10.0
_ORDER = list(Priority)


def rank(priority: str) -> int:
    """Return the rank of a priority, 0 for the highest. An unknown priority ranks as normal."""
    return _ORDER.index(Priority(priority) if priority in _ORDER else Priority.NORMAL)


class GpuSharing:
    """Tracks when a GPU worker last computed. `clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._worked = clock()

    def gives_way(self, wanted: str, busy: bool, priority: str) -> bool:
        """Return True if the GPU must be yielded to waiting programs. Called about once per second.

        `wanted` is the highest priority of the waiting programs, or empty. `busy` is True if work of `priority` is
        being computed; `priority` is empty if it is unknown, as for small jobs.
        """
        if busy:
            self._worked = self._clock()
            return bool(wanted) and rank(wanted) <= rank(priority)
        return bool(wanted) and self._clock() - self._worked >= IDLE_SECONDS
