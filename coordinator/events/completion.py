"""Wait until jobs have ended."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from coordinator.events.event import Event
from threads_protocol.states import TERMINAL

#: Maximum number of recently ended jobs to remember.
_KEPT = 2000
#: Seconds before the first check of a job's state in Redis.
#: Interval in seconds between further checks of a job's state in Redis.
DOUBT_SECONDS, AGAIN_SECONDS = 1.0, 5.0


class Ends:
    """Notifies listeners when jobs end. Use this only in the hub's event loop."""

    def __init__(self) -> None:
        self.listeners: dict[str, list[Callable[[str], None]]] = {}
        self.recent_jobs: dict[str, None] = {}

    def take(self, events: Iterable[Event]) -> None:
        """Notify the listeners of the jobs that have ended with these events."""
        for event in events:
            if not event.ends:
                self.recent_jobs.pop(event.job, None)  # the job has been retried
                continue
            self.recent_jobs[event.job] = None
            for listener in list(self.listeners.get(event.job, ())):
                listener(event.job)
        for job in list(islice(self.recent_jobs, max(len(self.recent_jobs) - _KEPT, 0))):
            del self.recent_jobs[job]

    async def wait(
        self, ids: Sequence[str], states: Callable[[], list[str | None]], seconds: float, *, just_seen: bool = False
    ) -> None:
        """Wait until all jobs have ended or were deleted, for at most `seconds`.

        `states` reads the states of the jobs and is called in a thread. Set `just_seen` to delay its first call, if
        this replica has just seen that no job has ended.
        """
        left, over = set(ids), asyncio.Event()

        def ended(job: str) -> None:
            left.discard(job)
            if not left:
                over.set()

        with self._listening(set(ids), ended), contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                for job in ids if just_seen else ():
                    if job in self.recent_jobs:  # the job ended after its state was read
                        ended(job)
                doubt = DOUBT_SECONDS if just_seen else 0.0
                while not await _is_set(over, doubt):
                    for job, state in zip(ids, await asyncio.to_thread(states), strict=True):
                        if state is None or state in TERMINAL:
                            ended(job)
                    doubt = AGAIN_SECONDS

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


async def _is_set(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event. Return True once it is set, or False after `seconds`."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
