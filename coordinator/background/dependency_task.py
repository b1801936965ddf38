"""Leader task that releases dependent jobs when their parents have ended, and skips them if a parent has failed."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from coordinator.events.event import Event
from jobs.store.fleet import Fleet

log = logging.getLogger(__name__)

#: Seconds to sleep after a run, so that one run handles all parents that fail at the same time.
_REST_SECONDS = 0.05
#: Maximum number of Redis calls per run. Each call releases or skips up to 64 jobs.
_MAX_CALLS = 400


def has_failed(events: Sequence[Event]) -> bool:
    """Return True if an event reports a failed or cancelled job."""
    return any(event.ends and event.fields["state"] != "done" for event in events)


class DependencyTask:
    """Releases or skips the jobs that depend on other jobs."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def run_once(self) -> None:
        """Release or skip the dependents of jobs that have ended."""
        calls = [self._fleet.wake()]
        while calls[-1].more and len(calls) <= _MAX_CALLS:
            calls.append(self._fleet.wake())
        if notified := sum(call.notified for call in calls):
            log.info("dependent jobs were released or skipped", extra={"jobs": notified})
        time.sleep(_REST_SECONDS)
