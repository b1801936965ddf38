"""Threads that call a function periodically."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from coordinator.events.event import Event
from jobs import errors
from jobs.store.server import connection

log = logging.getLogger(__name__)

#: Default interval in seconds between two calls.
INTERVAL_SECONDS = 1.0
#: Maximum time in seconds that `stop` waits for the final call.
STOP_SECONDS = 1.0


def _always() -> bool:
    return True


def _nothing() -> None:
    return None


def _never(_events: Sequence[Event]) -> bool:
    return False


class PeriodicTask(threading.Thread):
    """Thread that calls `work` every `interval` seconds until stopped, even after failures.

    `work` can return the seconds until its next call. If `wakes_on` returns True for new events, `work` is called at
    once. `condition` is checked before each call. If it returns False, `otherwise` is called instead. `at_end` is
    called once after the last call. A failure is logged once as "`failure`: reason", and again only after the work has
    succeeded or failed for another reason.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[], float | None],
        *,
        failure: str,
        interval: float = INTERVAL_SECONDS,
        condition: Callable[[], bool] = _always,
        otherwise: Callable[[], None] = _nothing,
        wakes_on: Callable[[Sequence[Event]], bool] = _never,
        at_end: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._work, self._condition, self._otherwise, self._at_end = work, condition, otherwise, at_end
        self._interval, self._failure, self._wakes_on = interval, failure, wakes_on
        self._woken = threading.Event()
        self._stopped = False
        self._reason = ""

    def notify(self, events: Sequence[Event]) -> None:
        """Call `work` at once if `wakes_on` returns True for these events. Can be called from any thread."""
        if self._wakes_on(events):
            self._woken.set()

    def run(self) -> None:
        """Call `work` until stopped."""
        wait = self._interval
        while not self._stopped:
            self._woken.wait(wait)
            self._woken.clear()
            if not self._stopped:
                wait = self.attempt()
        if self._at_end is not None:
            self._call(self._at_end)

    def attempt(self) -> float:
        """Call `work` once, log a failure, and return the seconds until the next call."""
        wait = self._call(self._do)
        return self._interval if wait is None else wait

    def _do(self) -> float | None:
        if self._condition():
            return self._work()
        self._otherwise()
        return None

    def _call(self, call: Callable[[], float | None]) -> float | None:
        """Call a function. If it fails, log the failure and return None."""
        try:
            wait = call()
        except connection.Unreachable as error:
            self._log(connection.reason(error))
        except errors.ClusterError as error:
            self._log(error.detail)
        except Exception as error:
            self._log(f"{type(error).__name__}: {error}", exc_info=True)
        else:
            self._reason = ""
            return wait
        return None

    def _log(self, reason: str, *, exc_info: bool = False) -> None:
        if reason != self._reason:
            log.log(logging.ERROR if exc_info else logging.WARNING, "%s: %s", self._failure, reason, exc_info=exc_info)
        self._reason = reason

    def stop(self) -> None:
        """Stop the thread after the call in progress. Wait at most STOP_SECONDS for `at_end`."""
        self._stopped = True
        self._woken.set()
        if self._at_end is not None and self.is_alive():
            self.join(timeout=STOP_SECONDS)
