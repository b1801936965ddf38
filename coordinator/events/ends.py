"""Requests that wait until jobs have ended."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence

from coordinator.events.event import Event
from jobs.models import TERMINAL


class Ends:
    """Calls back when jobs end. Use inside the hub's loop."""

    def __init__(self) -> None:
        self.listeners: dict[str, list[Callable[[str], None]]] = {}

    def take(self, events: Iterable[Event]) -> None:
        """Call whoever waits for the jobs that ended with these events."""
        for event in events:
            if event.ends:
                for listener in list(self.listeners.get(event.job, ())):
                    listener(event.job)

    async def wait(self, ids: Sequence[str], states: Callable[[], list[str | None]], seconds: float) -> None:
        """Return when every job has ended (or is gone), or after `seconds`.

        `states` reads what they are now, in a thread.
        """
        left, over = set(ids), asyncio.Event()

        def ended(job: str) -> None:
            left.discard(job)
            if not left:
                over.set()

        with self._listening(set(ids), ended), contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                for job, state in zip(ids, await asyncio.to_thread(states), strict=True):
                    if state is None or state in TERMINAL:
                        ended(job)
                await over.wait()

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
