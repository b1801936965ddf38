"""Deliver live log lines to followers. One reader per replica reads the lines of all followed units from Redis.

A follower uses no thread and no Redis connection. A slow follower loses lines, and does not delay the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from starlette.concurrency import run_in_threadpool

from coordinator.artifacts import threads
from coordinator.events.hub import OUTAGE_SECONDS, PING_SECONDS, Hub
from coordinator.logs import queries
from coordinator.logs.entry import Entry
from coordinator.logs.texts import Texts
from coordinator.redis_reader import RedisReader
from jobs import errors
from jobs.store import Store
from jobs.store.server.connection import Silent, Unreachable
from jobs.store.work.live_output import BEGINNING, FOLLOW_MS, Lines
from threads_protocol.answers import logs as answers

log = logging.getLogger(__name__)

#: Maximum number of followers per replica.
#: Maximum number of bytes buffered for each follower.
MOST_FOLLOWERS, WAITING_BYTES = 2000, 128 << 10
#: Interval in seconds between two checks whether a unit has ended. The end of its job triggers a check at once.
POLL_SECONDS = 1.0
#: Minimum pause between two checks in seconds.
#: Minimum pause between two checks, as a multiple of the duration of a check.
_SOONEST_SECONDS, _REST = 0.02, 20.0
#: Overhead of an entry in bytes, in addition to its lines.
_ENTRY_BYTES = 500
_RENEW_SECONDS = FOLLOW_MS / 3000
_BLOCK_MS = 300


@dataclass(frozen=True, kw_only=True)
class UnitEnd:
    """End of a unit, as reported to its followers."""

    row: answers.End


class Listener:
    """Queue of lines for one follower. Use this only in the event loop."""

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque()
        self.buffered_bytes = 0
        self._sleeper: asyncio.Future[None] | None = None
        self._ping = False
        self._silent = False
        self._end: UnitEnd | None = None

    def offer(self, entry: Entry) -> None:
        """Queue lines for the follower. If the buffer is full, drop the oldest lines."""
        self._entries.append(entry)
        self.buffered_bytes += entry.size + _ENTRY_BYTES
        while self.buffered_bytes > WAITING_BYTES and len(self._entries) > 1:
            self.buffered_bytes -= self._entries.popleft().size + _ENTRY_BYTES
        self._wake()

    def ping(self) -> None:
        """Make the stream send a ping."""
        self._ping = True
        self._wake()

    def report_outage(self) -> None:
        """End the stream because Redis does not respond."""
        self._silent = True
        self._wake()

    def end(self, end: UnitEnd) -> None:
        """End the stream after the buffered lines."""
        self._end = end
        self._wake()

    async def next(self) -> list[Entry] | UnitEnd:
        """Return the next lines, an empty list for a ping, or the end. Raise Silent if Redis does not respond."""
        while not (self._entries or self._ping or self._silent or self._end):
            self._sleeper = asyncio.get_running_loop().create_future()
            await self._sleeper
        if self._silent:
            raise Silent(f"redis has not responded for {OUTAGE_SECONDS:g} s")
        if self._end and not self._entries:
            return self._end
        self._ping, self.buffered_bytes = False, 0
        waiting = list(self._entries)
        self._entries.clear()
        return waiting

    def _wake(self) -> None:
        if self._sleeper and not self._sleeper.done():
            self._sleeper.set_result(None)


class _Channel:
    """A followed unit, its followers on this replica, and the task that detects its end."""

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.listeners: set[Listener] = set()
        self.watching: asyncio.Task[None] | None = None
        #: Time until which Redis counts the unit as followed.
        self.until = 0


class Live:
    """Tracks the followed units of one replica, and delivers their log lines.

    Call `start` first, and use this only in the event loop.
    """

    def __init__(self, store: Store, hub: Hub, texts: Texts) -> None:
        self.store = store
        self._hub = hub
        self._texts = texts
        self.channels: dict[tuple[str, int], _Channel] = {}
        self._followers = 0
        self._reader: _Reader | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the reader thread and the maintenance task."""
        self._reader = _Reader(self.store, loop, self._take)
        self._reader.start()
        self._begin(self._maintain())

    def stop(self) -> None:
        """Stop the reader thread and the tasks."""
        for task in self._tasks:
            task.cancel()
        if self._reader:
            self._reader.stop()

    def __len__(self) -> int:
        return self._followers

    @contextlib.contextmanager
    def listen(self, job: str, unit: int, tenant: str, until: int) -> Iterator[Listener]:
        """Yield a listener for the lines of a unit. `until` is the result of `LiveOutput.follow`."""
        place = (job, unit)
        channel = self.channels.get(place)
        if channel is None:
            channel = self.channels[place] = _Channel(tenant)
            channel.watching = self._begin(self._watch(job, unit, channel))
            self._update_reader()
        channel.until = max(channel.until, until)
        listener = Listener()
        channel.listeners.add(listener)
        self._followers += 1
        try:
            yield listener
        finally:
            self._followers -= 1
            channel.listeners.discard(listener)
            if not channel.listeners:
                self._forget(place, channel)

    def _forget(self, place: tuple[str, int], channel: _Channel) -> None:
        if channel.watching:
            channel.watching.cancel()
        if self.channels.get(place) is channel:
            del self.channels[place]
            self._update_reader()
        if channel.until and place not in self.channels:
            self._begin(self._leave(*place, channel))

    async def _leave(self, job: str, unit: int, channel: _Channel) -> None:
        with contextlib.suppress(*Unreachable):
            await run_in_threadpool(self.store.live_output.leave, job, unit, channel.tenant, channel.until)

    def _begin(self, work: object) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)  # type: ignore[arg-type]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _update_reader(self) -> None:
        if self._reader:
            self._reader.set_jobs({job for job, _ in self.channels})

    def _take(self, job: str, several: list[Lines]) -> None:
        for lines in several:
            if channel := self.channels.get((job, lines.unit)):
                entry = Entry(lines)
                for listener in channel.listeners:
                    listener.offer(entry)

    # -- unit end detection --------------------------------------------------------------------------------------------

    async def _watch(self, job: str, unit: int, channel: _Channel) -> None:
        """Notify the followers when the unit ends: at once if its job ends, otherwise within POLL_SECONDS."""
        began = time.monotonic()
        while (end := await self._read_end(job, unit)) is None:
            # If 100,000 units of a job have failed, Redis needs about 100 ms for a check.
            rest = max(POLL_SECONDS, _REST * (time.monotonic() - began))
            await asyncio.sleep(_SOONEST_SECONDS)
            await self._hub.ends.wait([job], lambda: [None], rest, just_seen=True)
            began = time.monotonic()
        if self.channels.get((job, unit)) is channel:  # the job may be retried, so new followers need a new channel
            del self.channels[job, unit]
            self._update_reader()
        for listener in channel.listeners:
            listener.end(UnitEnd(row=end))

    async def _read_end(self, job: str, unit: int) -> answers.End | None:
        """Return how a unit ended, or None if it has not ended or its end cannot be read."""
        try:
            found = await run_in_threadpool(self.store.outputs.unit, job, unit)
            if found is None:
                return {"state": "deleted", "exit": None, "bytes": 0}
            return await threads.run(lambda: queries.end(self._texts, found, unit)) if found.ended else None
        except (*Unreachable, errors.Unavailable) as error:
            log.warning("cannot read yet how unit %d of job %s ended: %s", unit, job, error)
        except Exception:
            log.exception("cannot read how unit %d of job %s ended", unit, job)
        return None

    # -- all followed units -----------------------------------------------------------------------------------------

    async def _maintain(self) -> None:
        """Renew the followed units in Redis, send pings, and end the streams if Redis stops responding."""
        renewed = pinged = time.monotonic()
        while True:
            await asyncio.sleep(1.0)
            now = time.monotonic()
            if self._reader and self.channels and now - self._reader.answered > OUTAGE_SECONDS:
                self._for_each_listener(Listener.report_outage)
            if now - pinged >= PING_SECONDS:
                pinged = now
                self._for_each_listener(Listener.ping)
            if now - renewed >= _RENEW_SECONDS:
                renewed = now
                await self._renew()

    def _for_each_listener(self, what: Callable[[Listener], None]) -> None:
        for channel in self.channels.values():
            for listener in channel.listeners:
                what(listener)

    async def _renew(self) -> None:
        for (job, unit), channel in list(self.channels.items()):
            with contextlib.suppress(*Unreachable):
                channel.until = await run_in_threadpool(self.store.live_output.follow, job, unit, channel.tenant)


class _Reader(RedisReader):
    """Reads the lines of the followed jobs, and passes them to the event loop."""

    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop, take: Callable[[str, list[Lines]], None]) -> None:
        super().__init__("live-output", loop)
        self._store, self._take = store, take
        self._places: dict[str, str] = {}

    def set_jobs(self, jobs: set[str]) -> None:
        """Set the jobs whose lines are read."""
        with self._changed:
            self._places = {job: self._places.get(job, BEGINNING) for job in jobs}
            self._changed.notify()

    def read(self) -> None:
        """Read new lines of the followed jobs, or wait until a job is followed."""
        with self._changed:
            if not self._places:
                self._changed.wait(1.0)
                self.answered = time.monotonic()
            places = dict(self._places)
        if not places:
            return
        for job, several in self._store.live_output.wait(places, block_ms=_BLOCK_MS).items():
            if several:
                self._note(job, several[-1].id)
                self.call_in_loop(self._take, job, several)

    def _note(self, job: str, place: str) -> None:
        with self._changed:
            if job in self._places:
                self._places[job] = place
