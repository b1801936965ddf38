"""Long polling for work. Workers' requests wait here, and one thread receives wake-ups from Redis for all of them.

A waiting request uses no thread and no connection to Redis. A wake-up is popped only while a request waits for its
queue; the longest-waiting request handles it with NEXT. If this process dies with a wake-up, the next SWEEP sends
another wake-up.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Sequence

from starlette.concurrency import run_in_threadpool

from coordinator.redis_reader import RedisReader
from jobs import queues
from jobs.store import Store
from jobs.store.server.connection import Unreachable
from jobs.store.work import wakeups

#: Seconds that a read of wake-ups blocks in Redis.
BLOCK_SECONDS = 0.5
#: Seconds after which a waiting request looks for work without a wake-up, like an idle worker with access to Redis.
POLL_SECONDS = 2.0
#: Seconds for which the result of one check for pending work is valid for all waiting requests.
_FRESH_SECONDS = 1.0

#: Name of the queue of a wake-up; empty for no wake-up.
Wakeup = str
NO_WAKEUP: Wakeup = ""


class Polls:
    """Waiting requests in order of arrival. Use only in the event loop passed to `start`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[asyncio.Future[Wakeup], frozenset[str]] = {}
        #: Number of waiting requests by set of queues.
        self._counts: Counter[frozenset[str]] = Counter()
        self._looked_at, self._anything = float("-inf"), False
        self._looking = asyncio.Lock()
        self._listener: _Listener | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the thread that receives wake-ups."""
        self._listener = _Listener(self._store, loop, self)
        self._listener.start()

    def stop(self) -> None:
        """Stop the thread. This takes at most BLOCK_SECONDS."""
        if self._listener:
            self._listener.stop()

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait(self, listened: Sequence[str], seconds: float) -> Wakeup:
        """Wait for a wake-up from these queues. Return NO_WAKEUP after `seconds`, or if pending work has no wake-up."""
        wakeup: asyncio.Future[Wakeup] = asyncio.get_running_loop().create_future()
        until = time.monotonic() + seconds
        self._waiting[wakeup] = frozenset(listened)
        self._counts[self._waiting[wakeup]] += 1
        self._update_queues()
        try:
            while not wakeup.done() and (left := until - time.monotonic()) > 0:
                await asyncio.wait([wakeup], timeout=min(left, POLL_SECONDS))
                if not wakeup.done() and await self._has_work():
                    break
            return wakeup.result() if wakeup.done() else NO_WAKEUP
        finally:
            self._forget(wakeup)

    async def put_back(self, wakeup: Wakeup) -> None:
        """Return a wake-up to its queue for other workers."""
        if wakeup != NO_WAKEUP:
            with contextlib.suppress(*Unreachable):
                await run_in_threadpool(wakeups.requeue_wakeup, self._store, wakeup)

    async def deliver(self, wakeup: Wakeup) -> bool:
        """Pass a wake-up to the longest-waiting request; return False if no request waits for its queue."""
        for one, listened in self._waiting.items():
            if wakeup in listened and not one.done():
                self._forget(one)
                one.set_result(wakeup)
                return True
        return False

    def _forget(self, wakeup: asyncio.Future[Wakeup]) -> None:
        listened = self._waiting.pop(wakeup, None)
        if listened is not None:
            self._counts[listened] -= 1
            self._update_queues()

    def _update_queues(self) -> None:
        """Make the thread read the queues that requests wait for."""
        if self._listener:
            wanted = {queue for listened, count in self._counts.items() if count for queue in listened}
            self._listener.heed([queue for queue in queues.ALL if queue in wanted])

    async def _has_work(self) -> bool:
        """Return True if work may be pending in Redis."""
        async with self._looking:
            if time.monotonic() - self._looked_at > _FRESH_SECONDS:
                self._anything = await run_in_threadpool(self._store.slots.anything)
                self._looked_at = time.monotonic()
        return self._anything


class _Listener(RedisReader):
    """Pops wake-ups from the requested queues and passes each to the event loop before it pops the next."""

    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop, polls: Polls) -> None:
        super().__init__("wakeups", loop)
        self._store, self._polls = store, polls
        self._queues: list[str] = []

    def heed(self, wanted: list[str]) -> None:
        if wanted != self._queues:
            with self._changed:
                self._queues = wanted
                self._changed.notify()

    def read(self) -> None:
        """Pop a wake-up, or wait until a request needs one."""
        with self._changed:
            if not self._queues:
                self._changed.wait(1.0)
            wanted = self._queues
        if wanted and (wakeup := wakeups.pop_wakeup(self._store, wanted, BLOCK_SECONDS)):
            self._deliver(wakeup)

    def _deliver(self, wakeup: Wakeup) -> None:
        try:
            taken = asyncio.run_coroutine_threadsafe(self._polls.deliver(wakeup), self._loop).result(5)
        except RuntimeError:  # the event loop is closed
            taken = False
        if not taken:
            wakeups.requeue_wakeup(self._store, wakeup)
            time.sleep(0.01)  # give the event loop time to remove the queue of the request that has ended
