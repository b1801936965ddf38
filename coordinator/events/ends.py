"""Requests that wait until jobs have ended."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from coordinator.events.event import Event
from jobs.models import TERMINAL

#: Ends that are remembered.
_KEPT = 2000
#: A job that was said to run is asked about after this long without an event of it: events can be lost.
DOUBT_SECONDS = 1.0


class Ends:
    """Calls back when jobs end. Use inside the hub's loop."""

    def __init__(self) -> None:
        self.listeners: dict[str, list[Callable[[str], None]]] = {}
        self._recent: dict[str, None] = {}

    def take(self, events: Iterable[Event]) -> None:
        """Call whoever waits for the jobs that ended with these events."""
        for event in events:
            if not event.ends:
                self._recent.pop(event.job, None)  # retried
                continue
            self._recent[event.job] = None
            for listener in list(self.listeners.get(event.job, ())):
                listener(event.job)
        for job in list(islice(self._recent, max(len(self._recent) - _KEPT, 0))):
            del self._recent[job]

    async def wait(
        self, ids: Sequence[str], states: Callable[[], list[str | None]], seconds: float, *, just_seen: bool = False
    ) -> None:
        """Return when every job has ended (or is gone), or after `seconds`.

        `states` reads what they are now, in a thread; not at once if this replica has `just_seen` that none had ended.
        """
        left, over = set(ids), asyncio.Event()

        def ended(job: str) -> None:
            left.discard(job)
            if not left:
                over.set()

        with self._listening(set(ids), ended), contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                if just_seen and await self._ended_soon(ids, ended, over):
                    return
                for job, state in zip(ids, await asyncio.to_thread(states), strict=True):
                    if state is None or state in TERMINAL:
                        ended(job)
                await over.wait()

    async def _ended_soon(self, ids: Sequence[str], ended: Callable[[str], None], over: asyncio.Event) -> bool:
        """Return True once all have ended by their events; False after DOUBT_SECONDS."""
        for job in ids:
            if job in self._recent:  # between the answer and now
                ended(job)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DOUBT_SECONDS):
                await over.wait()
        return over.is_set()

    @contextlib.contextmanager
    def _listening(self, jobs: set[str], listener: Callable[[str], None]) -> Iterator[None]:
        for job in jobs:
            self.listeners.setdefault(job, []).append(listener)
        try:
            yield
        finally:
            for job in jobs:
                self.listeners[job].remove(listener)
                if not self.listeners[job]:
                    del self.listeners[job]
