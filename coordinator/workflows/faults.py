"""Faults of the coordinator itself: what goes wrong unexpectedly is tried again, later each time, and then given up."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

log = logging.getLogger(__name__)

#: Tries of one thing, and seconds between the first two; each wait is twice the one before: about a minute in all.
TRIES, WAIT_SECONDS = 7, 1.0
#: Seconds after which a fault that did not come back is forgotten.
KEPT_SECONDS = 600.0
_MAX_WORDS = 300


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Fault of one thing so far."""

    tries: int
    words: str
    #: By the clock: it rests until then.
    until: float

    @property
    def is_given_up(self) -> bool:
        """True when it is tried no more."""
        return self.tries >= TRIES


class Faults:
    """Faults by the workflow, and the step of it, that they befell. One thread's."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.by_name: dict[tuple[str, str], Fault] = {}

    def resting(self, workflow: str, step: str = "") -> Fault | None:
        """Return the fault because of which this is not tried now; None: try it."""
        fault = self.by_name.get((workflow, step))
        return fault if fault and self._clock() < fault.until else None

    def note(self, error: Exception, workflow: str, step: str = "") -> Fault:
        """Count a fault. It is logged with its traceback once, and when it is given up."""
        before, now = self.by_name.get((workflow, step)), self._clock()
        tries = before.tries + 1 if before else 1
        words = f"a fault of the coordinator ({type(error).__name__}: {error})"[:_MAX_WORDS]
        known = {"workflow": workflow, "action": step}
        if before is None:
            log.error("a workflow met a fault of the coordinator; it is tried again", exc_info=error, extra=known)
        fault = Fault(tries=tries, words=words, until=now + WAIT_SECONDS * 2 ** (tries - 1))
        if fault.is_given_up:
            log.error("a workflow met %s %d times; given up", words, tries, extra=known)
            self.forget(workflow, step)
        else:
            self.by_name[workflow, step] = fault
            self._drop_old(now)
        return fault

    def forget(self, workflow: str, step: str = "") -> None:
        """Begin anew: it went well."""
        self.by_name.pop((workflow, step), None)

    def _drop_old(self, now: float) -> None:
        if len(self.by_name) > 1000:
            self.by_name = {name: one for name, one in self.by_name.items() if one.until > now - KEPT_SECONDS}
