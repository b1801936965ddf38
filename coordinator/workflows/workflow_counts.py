"""Count workflows by state for the metrics.

In each round, the leader counts some pages of workflows. After the last page, it publishes the counts.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from coordinator.workflows.planning import State
from jobs.store.workflows import WorkflowCounts, Workflows

#: Number of workflows read per page.
#: Maximum duration of one round in seconds.
PAGE, ROUND_SECONDS = 1000, 0.2
#: Job states in which a workflow makes progress or waits for an event that does not depend on the leader.
_AT_WORK = frozenset({"queued", "running", "finishing", "cancelling", "paused", "blocked"})
_GOES_ON = frozenset({State.RUNNING, State.CANCELLING})


@dataclass
class _Counts:
    """Counts of the workflows read so far."""

    states: Counter[str] = field(default_factory=Counter)
    #: Unix time in milliseconds since which an active workflow has had no working job; 0 if there is none.
    idle: int = 0
    #: Cursor of the next page.
    after: tuple[int, str] | None = None

    def add(self, one: WorkflowCounts) -> None:
        self.states[one.state] += 1
        if one.state in _GOES_ON and not _AT_WORK & one.counts.keys():
            self.idle = min(self.idle or one.changed, one.changed)


class WorkflowCounter:
    """Counts workflows by state and finds the active workflow that has been idle longest."""

    def __init__(self, store: Workflows) -> None:
        self._store = store
        self._tally = _Counts()

    def run_once(self) -> None:
        """Continue counting, and publish the counts after the last page."""
        until = time.monotonic() + ROUND_SECONDS
        while self._count():
            if time.monotonic() > until:
                return
        tally, self._tally = self._tally, _Counts()
        states = {state.value: tally.states[state] for state in State}
        self._store.publish({**states, "idle": tally.idle, "at": self._store.now_ms()})

    def _count(self) -> bool:
        """Count one page of workflows; return False after the last page."""
        page = self._store.page(None, self._tally.after, PAGE)
        for one in self._store.glances([name for _, name in page]):
            self._tally.add(one)
        self._tally.after = page[-1] if page else None
        return len(page) == PAGE
