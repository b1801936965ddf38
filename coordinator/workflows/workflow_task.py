"""Leader task that advances workflows periodically, and immediately after an event of a workflow."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from coordinator.events.event import Event
from coordinator.workflows.engine import Engine
from coordinator.workflows.workflow_counts import WorkflowCounter
from jobs.store.server import connection
from jobs.store.workflows import Workflows

log = logging.getLogger(__name__)

#: Interval in seconds between checks for due workflows if no event arrives.
ROUND_SECONDS = 1.0
#: Interval in seconds between checks of a workflow without events, since Redis can lose events and its last writes.
PATROL_SECONDS = 10.0
#: Ratio of the pause after a pass to its duration. The pause gives other workflows time while a large one is active.
_REST = 3.0
#: Maximum number of due workflows taken per round.
#: Maximum number of expired workflows deleted per round.
_AT_ONCE, _PURGED = 100, 20
#: Prefixes of the IDs of jobs that belong to workflows.
_PREFIXES = ("w-", "f-")


def has_changed(events: Sequence[Event]) -> bool:
    """Return True if an event reports a changed workflow, or the end of one of its jobs."""
    return any(event.workflow or (event.ends and event.job.startswith(_PREFIXES)) for event in events)


class WorkflowTask:
    """Advances the workflows that are due."""

    def __init__(self, store: Workflows, engine: Engine) -> None:
        self._store = store
        self._engine = engine
        self._census = WorkflowCounter(store)
        #: For each workflow, time of the next pass and earliest time of a pass, both by time.monotonic.
        self._due: dict[str, float] = {}
        self._resting: dict[str, float] = {}
        self._patrolled = self._rounded = -1e9

    def run_once(self) -> float:
        """Advance each workflow that is due, and return the seconds until the next one is due."""
        now = time.monotonic()
        for workflow in self._store.take_due(_AT_ONCE):
            self._due[workflow] = now
        if now - self._rounded >= ROUND_SECONDS:
            self._rounded = now
            self._store.purge(_PURGED)
        if now - self._patrolled >= PATROL_SECONDS:
            self._patrol(now)
        for workflow in [name for name, at in self._due.items() if at <= now]:
            if self._resting.get(workflow, now) <= now:
                self._look(workflow)
        after = time.monotonic()
        nexts = [max(at, self._resting.get(name, at)) for name, at in self._due.items()]
        return min([ROUND_SECONDS, *(max(0.0, at - after) for at in nexts)])

    def _patrol(self, now: float) -> None:
        self._patrolled = now
        some = self._store.open()
        self._resting = {name: at for name, at in self._resting.items() if name in some}
        for number, workflow in enumerate(some):
            # Spread the checks evenly over the interval.
            self._due.setdefault(workflow, now + PATROL_SECONDS * number / len(some))
        self._count()

    def _count(self) -> None:
        """Count workflows for the metrics. An error is logged and does not affect the workflows."""
        try:
            self._census.run_once()
        except connection.Unreachable as error:
            log.warning("cannot count workflows: %s", error)
        except Exception:
            log.exception("cannot count workflows")

    def _look(self, workflow: str) -> None:
        began = time.monotonic()
        # Delete the entry before the pass, so that an event during the pass makes the workflow due again.
        del self._due[workflow]
        try:
            outcome = self._engine.look(workflow)
        except connection.Unreachable:
            self._due[workflow] = began + ROUND_SECONDS
            raise
        except Exception:
            log.exception("cannot advance a workflow", extra={"workflow": workflow})
            self._due[workflow] = began + PATROL_SECONDS
            return
        self._store.looked(workflow)
        ended = time.monotonic()
        self._resting[workflow] = ended + _REST * (ended - began)
        if outcome.again:
            self._due[workflow] = ended
        elif outcome.soon:
            self._due[workflow] = ended + ROUND_SECONDS
