"""Periodic work on dependent jobs: release those whose parents have ended, and skip those whose parents have failed."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from coordinator.events.event import Event
from jobs.store.fleet import Fleet

log = logging.getLogger(__name__)

#: Seconds without work after a round: parents that fail together are handled together.
_REST_SECONDS = 0.05
#: Calls of WAKE in a round, each of up to 64 jobs.
_MOST_CALLS = 400


def has_failed(events: Sequence[Event]) -> bool:
    """Return True if a job failed or was cancelled. The function that ends a done job releases its dependents."""
    return any(event.ends and event.fields["state"] != "done" for event in events)


class Dependents:
    """Jobs that depend on other jobs."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def round(self) -> None:
        """Release or skip the dependents of jobs that have ended."""
        calls = [self._fleet.wake()]
        while calls[-1].more and len(calls) <= _MOST_CALLS:
            calls.append(self._fleet.wake())
        if notified := sum(call.notified for call in calls):
            log.info("dependent jobs were released or skipped", extra={"jobs": notified})
        time.sleep(_REST_SECONDS)
