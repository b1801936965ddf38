"""Thread of a coordinator that, while it leads, runs what is due, each second."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from coordinator.schedules.runs import AT_ONCE, Runs
from jobs.store import connection

log = logging.getLogger(__name__)

ROUND_SECONDS = 1.0


class Timekeeper(threading.Thread):
    """Runs due schedules until stopped."""

    def __init__(self, runs: Runs, leads: Callable[[], bool]) -> None:
        super().__init__(name="schedules", daemon=True)
        self._runs = runs
        self._leads = leads
        self._ended = threading.Event()

    def run(self) -> None:
        """Do a round each ROUND_SECONDS, whatever fails."""
        while not self._ended.wait(ROUND_SECONDS):
            try:
                if self._leads():
                    self._round()
                else:
                    self._runs.rest()
            except connection.Unreachable as error:
                log.warning("schedules wait: redis cannot be reached: %s", error)
            except Exception:
                log.exception("running schedules failed")

    def _round(self) -> None:
        """Run what is due, for as long as a round lasts: many are due at full hours."""
        until = time.monotonic() + ROUND_SECONDS
        while self._runs.run_due() == AT_ONCE and not self._ended.is_set() and time.monotonic() < until:
            pass

    def stop(self) -> None:
        """End after the round of this moment."""
        self._ended.set()
