"""Periodic work on workflows: continue each one when it is due, and at once after one of its events."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from coordinator.events.event import Event
from coordinator.workflows.census import Census
from coordinator.workflows.engine import Engine
from jobs.store.server import connection
from jobs.store.workflows import Workflows

log = logging.getLogger(__name__)

#: Seconds between two checks for due workflows if no event arrives.
ROUND_SECONDS = 1.0
#: Seconds between two looks at a workflow of which nothing is heard: events may be lost, and writes of Redis too.
PATROL_SECONDS = 10.0
#: Rest after a look, over the time that it took: large workflows are looked at less often, and others have their turn.
_REST = 3.0
#: Workflows taken at once, and those that are deleted in one round.
_AT_ONCE, _PURGED = 100, 20
#: Ids of jobs that belong to workflows begin so.
_PREFIXES = ("w-", "f-")


def has_changed(events: Sequence[Event]) -> bool:
    """Return True if a workflow has changed, or one of its jobs has ended."""
    return any(event.workflow or (event.ends and event.job.startswith(_PREFIXES)) for event in events)


class WorkflowTask:
    """Continues the workflows that are due."""

    def __init__(self, store: Workflows, engine: Engine) -> None:
        self._store = store
        self._engine = engine
        self._census = Census(store)
        #: By workflow: when it is to be looked at, and before when it is not, by time.monotonic.
        self._due: dict[str, float] = {}
        self._resting: dict[str, float] = {}
        self._patrolled = self._rounded = -1e9

    def run_once(self) -> float:
        """Look at each workflow that is due; return the seconds until one is due again."""
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
            # Spread over the time until the next patrol.
            self._due.setdefault(workflow, now + PATROL_SECONDS * number / len(some))
        self._count()

    def _count(self) -> None:
        """Count workflows for the metrics; what hinders that hinders nothing else."""
        try:
            self._census.run_once()
        except connection.Unreachable as error:
            log.warning("workflows are not counted: %s", error)
        except Exception:
            log.exception("workflows are not counted")

    def _look(self, workflow: str) -> None:
        began = time.monotonic()
        # Before the look: what happens meanwhile makes it due again.
        del self._due[workflow]
        try:
            outcome = self._engine.look(workflow)
        except connection.Unreachable:
            self._due[workflow] = began + ROUND_SECONDS
            raise
        except Exception:
            log.exception("looking at a workflow failed", extra={"workflow": workflow})
            self._due[workflow] = began + PATROL_SECONDS
            return
        self._store.looked(workflow)
        ended = time.monotonic()
        self._resting[workflow] = ended + _REST * (ended - began)
        if outcome.again:
            self._due[workflow] = ended
        elif outcome.soon:
            self._due[workflow] = ended + ROUND_SECONDS
