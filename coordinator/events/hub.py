"""One reader of the fleet's event stream a replica, fanned out to whoever listens here.

A batch of events is put together once for all who listen to the same topics, in the order of their ids, and each event
is encoded once. With many listeners delivery is paced: it takes at most a quarter of the loop's time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from jobs.models import TERMINAL
from jobs.store import leases, skipped
from jobs.store.leases import Leases

log = logging.getLogger(__name__)

P = leases.PREFIX
Position = tuple[int, int]
#: Before the first event.
START: Position = (0, 0)
#: A listener that falls this far behind loses progress events, and at twice this is told to start anew.
_BACKLOG = 10_000
PING_SECONDS = 15.0
#: Streams end when Redis has said nothing for this long: their listeners must not take silence for peace. A healthy
#: Redis answers the hub at least once a second.
OUTAGE_SECONDS = 5.0
_PING = b": ping\n\n"
#: Progress and rows wait for others this long, while nothing else happens.
MERGE_SECONDS = 0.25
#: Listeners woken at once; after each so many, others have their turn.
_WOKEN = 25
#: Rest after a delivery, over the time that it took, and at most.
_REST, _LONGEST_REST = 3.0, 1.0


@dataclass(frozen=True, kw_only=True)
class Event:
    #: Position in the stream; resumes on any replica. Empty: a row, which has no place there.
    id: str
    fields: dict[str, str]
    #: Of a row: what it is about, and as clients see it.
    topic: str = ""
    entity: str = ""
    row: dict[str, Any] | None = None

    @property
    def job(self) -> str:
        return self.fields.get("job", "")

    @property
    def ends(self) -> bool:
        return self.fields.get("state") in TERMINAL and self.fields.get("type") == self.fields.get("state")

    @property
    def merges(self) -> str:
        """Events with the same name here replace each other: the last one holds all that the others said."""
        if self.row is not None:
            return self.entity
        return f"job:{self.job}" if self.fields.get("type") == "progress" else ""

    @property
    def topics(self) -> tuple[str, ...]:
        """Who listens to one of them hears of it."""
        if self.topic:
            return (self.topic,)
        return ("jobs", f"job:{self.job}") if self.job else ("workers",)

    @cached_property
    def position(self) -> Position:
        return position(self.id)

    @cached_property
    def frame(self) -> bytes:
        """As it is sent, encoded once for all listeners."""
        place = f"id: {self.id}\n" if self.id else ""
        return f"{place}event: {self.fields.get('type', 'message')}\ndata: {json.dumps(self.data())}\n\n".encode()

    def data(self) -> dict[str, Any]:
        """As clients see it: counts are numbers."""
        if self.row is not None:
            return self.row
        numbers: dict[str, Any] = {name: int(self.fields[name]) for name in ("done", "total") if name in self.fields}
        return {**self.fields, **numbers}


def position(text: str) -> Position:
    """A place in the stream, to compare."""
    head, _, tail = text.partition("-")
    return int(head or 0), int(tail or 0)


def _event(where: bytes, fields: dict[bytes, bytes]) -> Event:
    event = Event(id=where.decode(), fields={key.decode(): value.decode() for key, value in fields.items()})
    event.data()  # raises for counts that are none
    if "\n" in event.fields.get("type", "") or "\r" in event.fields.get("type", ""):
        raise ValueError("its type is no line")
    return event


def _events(entries: Iterable[tuple[bytes, dict[bytes, bytes]]]) -> list[Event]:
    """Those that can be read."""
    return skipped.readable("event", entries, _event)


class Chunk:
    """Events that are sent together. Without any: a ping."""

    def __init__(self, events: Sequence[Event] = ()) -> None:
        self.events = events

    @cached_property
    def _first(self) -> Position | None:
        return next((event.position for event in self.events if event.id), None)

    @cached_property
    def _data(self) -> bytes:
        return b"".join(event.frame for event in self.events) or _PING

    def after(self, place: Position) -> bytes:
        """What is sent to a listener that has heard all up to a place; empty when that is all of it."""
        if self._first is None or self._first > place:
            return self._data
        return b"".join(event.frame for event in self.events if not event.id or event.position > place)

    def without_progress(self) -> Chunk:
        return Chunk([event for event in self.events if not event.merges])


class Subscription:
    """Chunks for one listener, in order. Use inside the hub's loop."""

    def __init__(self, topics: frozenset[str]) -> None:
        self.topics = topics
        self._chunks: deque[Chunk] = deque()
        self._waiting = 0
        self._sleeper: asyncio.Future[None] | None = None
        #: Events were thrown away: what the listener knows is no longer the whole story.
        self.lost = False
        #: Redis is silent: nobody knows what happens.
        self.cut_off = False

    def offer(self, chunk: Chunk) -> None:
        self.lost = self.lost or self._waiting >= 2 * _BACKLOG
        if not self.lost and self._waiting >= _BACKLOG:
            chunk = chunk.without_progress()
            if not chunk.events:
                return
        if not self.lost:
            self._chunks.append(chunk)
            self._waiting += len(chunk.events)

    def wake(self) -> None:
        if self._sleeper and not self._sleeper.done():
            self._sleeper.set_result(None)

    async def next(self) -> Chunk | None:
        """The next chunk; None when events were lost. leases.Silent when Redis says nothing."""
        while not self._chunks and not self.lost and not self.cut_off:
            self._sleeper = asyncio.get_running_loop().create_future()
            await self._sleeper
        if self.cut_off:
            raise leases.Silent(f"redis has been silent for {OUTAGE_SECONDS:g} s")
        if self.lost:
            return None
        chunk = self._chunks.popleft()
        self._waiting -= len(chunk.events)
        return chunk


def merged(events: Iterable[Event]) -> list[Event]:
    """In order, without progress and rows that a later event of the same job, or row, replaces."""
    told: set[str] = set()
    kept = []
    for event in reversed(list(events)):
        if not (event.merges and event.merges in told):
            kept.append(event)
        told.add(event.merges or f"job:{event.job}")
    return kept[::-1]


class Hub:
    """Reads ct:events in a thread of its own and offers every event to the subscriptions."""

    def __init__(self, book: Leases) -> None:
        self._book = book
        self._channels: dict[frozenset[str], set[Subscription]] = {}
        self._by_topic: dict[str, set[frozenset[str]]] = {}
        self._waiters: dict[str, list[Callable[[str], None]]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = threading.Event()
        self._fresh: list[Event] = []
        self._any, self._urgent = asyncio.Event(), asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        #: The last event that was read.
        self.last = "0-0"
        #: When Redis last answered, by time.monotonic.
        self._answered = time.monotonic()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._tasks = [loop.create_task(each) for each in (self._deliver(), self._ping(), self._watch())]
        self._thread = threading.Thread(target=self._read, name="events", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        for task in self._tasks:
            task.cancel()
        self._thread.join(timeout=3)

    # -- the thread -------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        at = None
        while not self._ended.is_set():
            try:
                if at is None:
                    at = self.last = self.tail()
                at = self._look(at)
                self._answered = time.monotonic()
            except leases.Unreachable as error:
                log.warning("no events: redis cannot be reached: %s", error)
                self._ended.wait(0.5)
            except leases.RedisError as error:  # a script puts aside what is no stream
                skipped.SKIPS.note("event", f"{P}events", error)
                self._ended.wait(0.5)
            except Exception:  # without this thread nobody here hears of an end
                log.exception("reading events failed")
                self._ended.wait(0.5)

    def _look(self, at: str) -> str:
        """Waits for events after a place, up to a second, tells them, and gives the place of the last."""
        entries = _entries(self._book.client.xread({f"{P}events": at}, count=1000, block=1000))
        if entries:
            at = entries[-1][0].decode()
            self._call(self._take, at, _events(entries))
        elif position(tail := self.tail()) < position(at):
            log.warning("the stream of events began anew; listeners are told to look again")
            at = tail
            self._call(self._begin_anew, at)
        return at

    def tail(self) -> str:
        """The place of the last event in Redis."""
        newest = self._book.client.xrevrange(f"{P}events", count=1)
        return newest[0][0].decode() if newest else "0-0"

    def _call(self, what: Callable[..., None], *arguments: Any) -> None:
        if self._loop:
            with contextlib.suppress(RuntimeError):  # the loop closed while we read
                self._loop.call_soon_threadsafe(what, *arguments)

    # -- the loop ---------------------------------------------------------------------------------------------------

    def _take(self, last: str, events: list[Event]) -> None:
        self.last = last
        for event in events:
            if event.ends:
                for tell in list(self._waiters.get(event.job, ())):
                    tell(event.job)
        self.offer(events)

    def _begin_anew(self, last: str) -> None:
        self.last = last
        for subscription in self._everyone():
            subscription.lost = True
            subscription.wake()

    def _everyone(self) -> list[Subscription]:
        return [subscription for channel in self._channels.values() for subscription in channel]

    def topics(self) -> frozenset[str]:
        """All that somebody listens to."""
        return frozenset(self._by_topic)

    def offer(self, events: list[Event]) -> None:
        """To every subscription, soon. Call it in the hub's loop."""
        if events:
            self._fresh += events
            self._any.set()
            if not all(event.merges for event in events):
                self._urgent.set()

    async def _deliver(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._any.wait()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._urgent.wait(), MERGE_SECONDS)
            began, events = loop.time(), self._fresh
            self._fresh = []
            self._any.clear()
            self._urgent.clear()
            await self._wake(self._hand_out(merged(events)))
            await asyncio.sleep(min(_LONGEST_REST, _REST * (loop.time() - began)))

    def _hand_out(self, events: list[Event]) -> list[Subscription]:
        """Puts events where their listeners find them, and gives these."""
        chosen: dict[frozenset[str], list[Event]] = {}
        for event in events:
            for topics in {topics for topic in event.topics for topics in self._by_topic.get(topic, ())}:
                chosen.setdefault(topics, []).append(event)
        found: list[Subscription] = []
        for topics, some in chosen.items():
            chunk = Chunk(some)
            for subscription in self._channels[topics]:
                subscription.offer(chunk)
            found += self._channels[topics]
        return found

    async def _wake(self, subscriptions: Sequence[Subscription]) -> None:
        for at in range(0, len(subscriptions), _WOKEN):
            for subscription in subscriptions[at : at + _WOKEN]:
                subscription.wake()
            await asyncio.sleep(0)

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(PING_SECONDS)
            everyone, ping = self._everyone(), Chunk()
            for subscription in everyone:
                subscription.offer(ping)
            await self._wake(everyone)

    async def _watch(self) -> None:
        """Cuts off the listeners while Redis is silent; they come again and hear why."""
        while True:
            await asyncio.sleep(1.0)
            if time.monotonic() - self._answered <= OUTAGE_SECONDS:
                continue
            everyone = self._everyone()
            for subscription in everyone:
                subscription.cut_off = True
            await self._wake(everyone)

    @contextlib.contextmanager
    def subscribe(self, topics: frozenset[str]) -> Iterator[Subscription]:
        subscription = Subscription(topics)
        self._channels.setdefault(topics, set()).add(subscription)
        for topic in topics:
            self._by_topic.setdefault(topic, set()).add(topics)
        try:
            yield subscription
        finally:
            self._channels[topics].discard(subscription)
            if not self._channels[topics]:
                self._forget(topics)

    def _forget(self, topics: frozenset[str]) -> None:
        del self._channels[topics]
        for topic in topics:
            self._by_topic[topic].discard(topics)
            if not self._by_topic[topic]:
                del self._by_topic[topic]

    # -- what was ---------------------------------------------------------------------------------------------------

    def history(self, job: str, since: str) -> list[Event] | None:
        """Events of a job after a place; None when nobody knows what came after it."""
        own = leases.key(job, "ev")
        pipe = self._book.client.pipeline(transaction=False)  # a full Redis refuses transactions
        pipe.xrange(own, since, "+").exists(own).xrevrange(f"{P}events", count=1)
        found, exists, newest = skipped.replies(pipe)
        if not newest or position(since) > position(newest[0][0].decode()):
            return None
        if not exists or found is None:  # small jobs have no stream of their own
            fleet = self.fleet_history(since)
            return None if fleet is None else [event for event in fleet if event.job == job]
        return [event for event in _events(found) if event.position > position(since)]

    def fleet_history(self, since: str) -> list[Event] | None:
        """Events of the fleet after a place; None when the stream does not reach back, or not yet on, to there."""
        pipe = self._book.client.pipeline(transaction=False)
        pipe.xrange(f"{P}events", since, "+", count=_BACKLOG + 2)
        pipe.xrange(f"{P}events", count=1).xrevrange(f"{P}events", count=1)  # read last: nothing was trimmed before
        found, first, newest = skipped.replies(pipe)
        if not first or not position(first[0][0].decode()) <= position(since) <= position(newest[0][0].decode()):
            return None
        later = [event for event in _events(found) if event.position > position(since)]
        return None if len(found) > _BACKLOG + 1 else later

    async def until_ended(self, ids: Sequence[str], states: Callable[[], list[str | None]], seconds: float) -> None:
        """Returns when every job has ended (or is gone), or after `seconds`."""
        left, over = set(ids), asyncio.Event()

        def ended(job: str) -> None:
            left.discard(job)
            if not left:
                over.set()

        with self._told_of_ends(set(ids), ended), contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                for job, state in zip(ids, await asyncio.to_thread(states), strict=True):
                    if state is None or state in TERMINAL:
                        ended(job)
                await over.wait()

    @contextlib.contextmanager
    def _told_of_ends(self, jobs: set[str], tell: Callable[[str], None]) -> Iterator[None]:
        for job in jobs:
            self._waiters.setdefault(job, []).append(tell)
        try:
            yield
        finally:
            for job in jobs:
                self._waiters[job].remove(tell)
                if not self._waiters[job]:
                    del self._waiters[job]


def _entries(reply: Any) -> list[Any]:
    """Of XREAD's answer, which is a list or a mapping by protocol version."""
    if not reply:
        return []
    stream = next(iter(reply.values())) if isinstance(reply, dict) else reply[0][1]
    return list(stream[0]) if stream and isinstance(stream[0], list) else list(stream)
