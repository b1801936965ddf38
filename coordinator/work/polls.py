"""Workers whose questions for work wait here, and the one thread that hears bells for all of them.

A waiting question holds no thread and no connection to Redis. A bell is popped only while somebody waits who listens to
its queue; the one who has waited longest answers it with NEXT. A bell that gets lost with this process is rung again by
the next SWEEP.
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

#: Seconds for which Redis holds back a read of bells; a queue that nobody waited for before is heard after it.
BLOCK_SECONDS = 0.5
#: Seconds after which whoever waits looks for work without a bell, as an idle worker at Redis does.
POLL_SECONDS = 2.0
#: One read says for all of them whether there is anything to look for; it counts for this long.
_FRESH_SECONDS = 1.0

#: Queue of a bell; empty for none.
Wakeup = str
NO_WAKEUP: Wakeup = ""


class Polls:
    """Waiting questions, in the order in which they came. Use inside its loop, once started."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[asyncio.Future[Wakeup], frozenset[str]] = {}
        #: How many of them listen to the same queues.
        self._counts: Counter[frozenset[str]] = Counter()
        self._looked_at, self._anything = float("-inf"), False
        self._looking = asyncio.Lock()
        self._listener: _Listener | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to hear bells while somebody waits."""
        self._listener = _Listener(self._store, loop, self)
        self._listener.start()

    def stop(self) -> None:
        """End the thread, within the time of a read."""
        if self._listener:
            self._listener.stop()

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait(self, listened: Sequence[str], seconds: float) -> Wakeup:
        """Return a bell of these queues; NO_WAKEUP when it is time to look without one, or after `seconds`."""
        bell: asyncio.Future[Wakeup] = asyncio.get_running_loop().create_future()
        until = time.monotonic() + seconds
        self._waiting[bell] = frozenset(listened)
        self._counts[self._waiting[bell]] += 1
        self._heed()
        try:
            while not bell.done() and (left := until - time.monotonic()) > 0:
                await asyncio.wait([bell], timeout=min(left, POLL_SECONDS))
                if not bell.done() and await self._is_anything():
                    break
            return bell.result() if bell.done() else NO_WAKEUP
        finally:
            self._forget(bell)

    async def put_back(self, bell: Wakeup) -> None:
        """Let others hear a bell."""
        if bell != NO_WAKEUP:
            with contextlib.suppress(*Unreachable):
                await run_in_threadpool(wakeups.requeue_wakeup, self._store, bell)

    async def deliver(self, bell: Wakeup) -> bool:
        """Give a bell to whoever has waited for it longest; False when nobody does."""
        for one, listened in self._waiting.items():
            if bell in listened and not one.done():
                self._forget(one)
                one.set_result(bell)
                return True
        return False

    def _forget(self, bell: asyncio.Future[Wakeup]) -> None:
        listened = self._waiting.pop(bell, None)
        if listened is not None:
            self._counts[listened] -= 1
            self._heed()

    def _heed(self) -> None:
        """Have the thread hear what those who wait listen to."""
        if self._listener:
            wanted = {queue for listened, count in self._counts.items() if count for queue in listened}
            self._listener.heed([queue for queue in queues.ALL if queue in wanted])

    async def _is_anything(self) -> bool:
        """Return False while a worker that looked would hear none."""
        async with self._looking:
            if time.monotonic() - self._looked_at > _FRESH_SECONDS:
                self._anything = await run_in_threadpool(self._store.slots.anything)
                self._looked_at = time.monotonic()
        return self._anything


class _Listener(RedisReader):
    """Pops bells of the queues that are heeded, and hands each to the loop before it pops the next."""

    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop, polls: Polls) -> None:
        super().__init__("bells", loop)
        self._store, self._polls = store, polls
        self._queues: list[str] = []

    def heed(self, wanted: list[str]) -> None:
        if wanted != self._queues:
            with self._changed:
                self._queues = wanted
                self._changed.notify()

    def read(self) -> None:
        """Pop a bell, or wait until somebody listens."""
        with self._changed:
            if not self._queues:
                self._changed.wait(1.0)
            wanted = self._queues
        if wanted and (bell := wakeups.pop_wakeup(self._store, wanted, BLOCK_SECONDS)):
            self._deliver(bell)

    def _deliver(self, bell: Wakeup) -> None:
        try:
            taken = asyncio.run_coroutine_threadsafe(self._polls.deliver(bell), self._loop).result(5)
        except RuntimeError:  # the loop is closed
            taken = False
        if not taken:
            wakeups.requeue_wakeup(self._store, bell)
            time.sleep(0.01)  # whoever waited has gone; the loop says so at once
