"""When a GPU worker gives its GPU to programs that wait for it. Pure."""

from __future__ import annotations

import time
from collections.abc import Callable

from jobs.models import Priority

#: Seconds without work after which any program that waits gets the GPU.
IDLE_SECONDS = 10.0
_ORDER = list(Priority)


def rank(priority: str) -> int:
    """Return the place of a priority, the highest first; that of normal for work whose priority is not known."""
    return _ORDER.index(Priority(priority) if priority in _ORDER else Priority.NORMAL)


class Sharing:
    """Memory of when a GPU worker computed last. `clock`: monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._worked = clock()

    def gives_way(self, wanted: str, busy: bool, priority: str) -> bool:
        """Tell, about each second, whether the GPU goes to programs that wait.

        `wanted`: their highest priority, empty for none. `busy`: something is computed, of this priority; empty where
        that is not known, as of small jobs.
        """
        if busy:
            self._worked = self._clock()
            return bool(wanted) and rank(wanted) <= rank(priority)
        return bool(wanted) and self._clock() - self._worked >= IDLE_SECONDS
