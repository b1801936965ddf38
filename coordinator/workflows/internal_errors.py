"""Internal errors of the coordinator. A failed step is retried with increasing delays a limited number of times."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

log = logging.getLogger(__name__)

#: Number of attempts. All attempts take about a minute, because the delays double.
#: Delay before the second attempt in seconds.
TRIES, WAIT_SECONDS = 7, 1.0
#: Seconds after which an error that did not recur is forgotten.
KEPT_SECONDS = 600.0
_MAX_WORDS = 300


@dataclass(frozen=True, kw_only=True)
class InternalError:
    """Repeated internal error of one workflow or step."""

    tries: int
    words: str
    #: Time of the next attempt by the clock of InternalErrors.
    until: float

    @property
    def is_given_up(self) -> bool:
        """Return True if all attempts have failed."""
        return self.tries >= TRIES


class InternalErrors:
    """Internal errors by workflow and step. For use by one thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.by_name: dict[tuple[str, str], InternalError] = {}

    def resting(self, workflow: str, step: str = "") -> InternalError | None:
        """Return the error whose delay has not passed yet, or None if the step can be tried."""
        fault = self.by_name.get((workflow, step))
        return fault if fault and self._clock() < fault.until else None

    def note(self, error: Exception, workflow: str, step: str = "") -> InternalError:
        """Record an error. The first occurrence and the final one are logged."""
        before, now = self.by_name.get((workflow, step)), self._clock()
        tries = before.tries + 1 if before else 1
        words = f"an internal error of the coordinator ({type(error).__name__}: {error})"[:_MAX_WORDS]
        known = {"workflow": workflow, "action": step}
        if before is None:
            log.error("an internal error interrupted a workflow; trying again", exc_info=error, extra=known)
        fault = InternalError(tries=tries, words=words, until=now + WAIT_SECONDS * 2 ** (tries - 1))
        if fault.is_given_up:
            log.error("giving up on a workflow: %s occurred %d times", words, tries, extra=known)
            self.forget(workflow, step)
        else:
            self.by_name[workflow, step] = fault
            self._drop_old(now)
        return fault

    def forget(self, workflow: str, step: str = "") -> None:
        """Forget the errors of a step after a success."""
        self.by_name.pop((workflow, step), None)

    def _drop_old(self, now: float) -> None:
        if len(self.by_name) > 1000:
            self.by_name = {name: one for name, one in self.by_name.items() if one.until > now - KEPT_SECONDS}
