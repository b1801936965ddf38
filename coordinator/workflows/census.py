"""Census of the workflows, for metrics: taken by the leader some at a time, and stored once it has gone through all."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from coordinator.workflows.planning import State
from jobs.store.workflows import Glance, Workflows

#: Workflows that are read at once, and seconds that one round spends at most.
PAGE, ROUND_SECONDS = 1000, 0.2
#: States of actions whose jobs run, or wait for nothing that the leader does.
_AT_WORK = frozenset({"queued", "running", "finishing", "cancelling", "paused", "blocked"})
_GOES_ON = frozenset({State.RUNNING, State.CANCELLING})


@dataclass
class _Counts:
    """Counts of those that were read so far."""

    states: Counter[str] = field(default_factory=Counter)
    #: Milliseconds since 1970 from which on a workflow that goes on has had no job at work; 0: there is none.
    idle: int = 0
    #: Where the next page begins.
    after: tuple[int, str] | None = None

    def add(self, one: Glance) -> None:
        self.states[one.state] += 1
        if one.state in _GOES_ON and not _AT_WORK & one.counts.keys():
            self.idle = min(self.idle or one.changed, one.changed)


class Census:
    """Counts workflows by state, and finds the one that has stood still for longest."""

    def __init__(self, store: Workflows) -> None:
        self._store = store
        self._tally = _Counts()

    def run_once(self) -> None:
        """Go on counting; store the counts when all are counted."""
        until = time.monotonic() + ROUND_SECONDS
        while self._count():
            if time.monotonic() > until:
                return
        tally, self._tally = self._tally, _Counts()
        states = {state.value: tally.states[state] for state in State}
        self._store.publish({**states, "idle": tally.idle, "at": self._store.now_ms()})

    def _count(self) -> bool:
        """Count a page; False: it was the last."""
        page = self._store.page(None, self._tally.after, PAGE)
        for one in self._store.glances([name for _, name in page]):
            self._tally.add(one)
        self._tally.after = page[-1] if page else None
        return len(page) == PAGE
