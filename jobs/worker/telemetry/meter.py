"""Divides a device's time and energy among the leases that are computed on the device."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Share:
    """Share of a device's time and energy that one lease used."""

    #: Device time in seconds; while n leases are running, each lease is charged for 1/n of the time.
    seconds: float = 0.0
    #: Energy in joules, divided in the same way, or None if the device does not measure it.
    joules: float | None = None


@dataclass
class Meter:
    """Divides the time and energy between two changes evenly among the running leases. Thread-safe.

    The shares of all leases add up to the use of the device while leases ran. Idle use belongs to no lease.
    """

    #: Function that returns an energy counter in joules, or None.
    energy: Callable[[], float | None] = lambda: None
    clock: Callable[[], float] = time.monotonic
    _running: list[Share] = field(default_factory=list)
    _at: float = 0.0
    _energy: float | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def lease(self) -> Iterator[Share]:
        share = Share()
        with self._lock:
            self._settle()
            self._running.append(share)
        try:
            yield share
        finally:
            with self._lock:
                self._settle()
                self._running = [one for one in self._running if one is not share]

    def _settle(self) -> None:
        now, energy = self.clock(), self.energy()
        if self._running:
            seconds = (now - self._at) / len(self._running)
            spent = None if energy is None or self._energy is None else max(energy - self._energy, 0.0)
            for share in self._running:
                share.seconds += seconds
                if spent is not None:
                    share.joules = (share.joules or 0.0) + spent / len(self._running)
        self._at, self._energy = now, energy
