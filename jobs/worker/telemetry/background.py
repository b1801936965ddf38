"""Measurements that a background thread refreshes, so that a slow device does not delay heartbeats."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Background(Generic[T]):
    """Cached result of a slow function, which a background thread refreshes.

    The value starts with `first`. When it is older than `seconds`, a read starts one thread that calls `look`.
    """

    def __init__(
        self, look: Callable[[], T], first: T, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._look, self._known, self._seconds, self._clock = look, first, seconds, clock
        self._read_at = -seconds
        self._reading: threading.Thread | None = None

    def read(self) -> T:
        """Return the cached value, and start a refresh if one is due."""
        due = self._clock() - self._read_at >= self._seconds
        if due and not (self._reading and self._reading.is_alive()):
            self._read_at = self._clock()
            self._reading = threading.Thread(target=self._keep, name="figures", daemon=True)
            self._reading.start()
        return self._known

    def settle(self) -> None:
        """Wait for the running refresh, if there is one."""
        if self._reading:
            self._reading.join()

    def _keep(self) -> None:
        self._known = self._look()
