"""Figures that are read beside the heartbeat: what does not answer holds no worker up, and what was known is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Background(Generic[T]):
    """Value that `look` last returned, `first` before that; a thread looks again after `seconds`, one at a time."""

    def __init__(
        self, look: Callable[[], T], first: T, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._look, self._known, self._seconds, self._clock = look, first, seconds, clock
        self._read_at = -seconds
        self._reading: threading.Thread | None = None

    def read(self) -> T:
        """Return what is known; have it read again where it is due."""
        due = self._clock() - self._read_at >= self._seconds
        if due and not (self._reading and self._reading.is_alive()):
            self._read_at = self._clock()
            self._reading = threading.Thread(target=self._keep, name="figures", daemon=True)
            self._reading.start()
        return self._known

    def settle(self) -> None:
        """Wait for the look that is under way, if one is."""
        if self._reading:
            self._reading.join()

    def _keep(self) -> None:
        self._known = self._look()
