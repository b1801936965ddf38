"""One reader of the fleet's event stream a replica, fanned out to whoever listens here."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jobs import leases
from jobs.leases import Leases
from jobs.models import TERMINAL

log = logging.getLogger(__name__)

P = leases.PREFIX
#: A listener that falls this far behind loses progress events, and at twice this is told to start anew.
_BACKLOG = 10_000
PING_SECONDS = 15.0
#: Progress of one job goes to a fleet listener at most this often.
MERGE_SECONDS = 0.25


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

    def data(self) -> dict[str, Any]:
        """As clients see it: counts are numbers."""
        if self.row is not None:
            return self.row
        numbers: dict[str, Any] = {name: int(self.fields[name]) for name in ("done", "total") if name in self.fields}
        return {**self.fields, **numbers}


def after(left: str, right: str) -> bool:
    """True when stream position `left` comes later than `right`."""
    return _position(left) > _position(right)


def _position(text: str) -> tuple[int, int]:
    head, _, tail = text.partition("-")
    return int(head or 0), int(tail or 0)


def _event(entry: tuple[bytes, dict[bytes, bytes]]) -> Event:
    where, fields = entry
    return Event(id=where.decode(), fields={key.decode(): value.decode() for key, value in fields.items()})


class Subscription:
    """Events for one listener, in order. Use inside the hub's loop."""

    def __init__(self, wanted: Callable[[Event], bool], topics: frozenset[str] = frozenset()) -> None:
        self.wanted = wanted
        #: Topics of rows that it wants.
        self.topics = topics
        self.queue: asyncio.Queue[Event] = asyncio.Queue()
        #: Events were thrown away: what the listener knows is no longer the whole story.
        self.lost = False

    def offer(self, event: Event) -> None:
        if self.lost or not self.wanted(event):
            return
        waiting = self.queue.qsize()
        self.lost = waiting >= 2 * _BACKLOG
        if not self.lost and (waiting < _BACKLOG or not event.merges):
            self.queue.put_nowait(event)

    async def next(self, timeout: float) -> Event | None:
        """The next event, or None when `timeout` seconds passed."""
        try:
            return await asyncio.wait_for(self.queue.get(), timeout)
        except TimeoutError:
            return None


class Hub:
    """Reads ct:events in a thread of its own and offers every event to the subscriptions."""

    def __init__(self, book: Leases) -> None:
        self._book = book
        self._subscriptions: set[Subscription] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = threading.Event()
        self.last = "0-0"

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = threading.Thread(target=self._read, name="events", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(timeout=3)

    def _read(self) -> None:
        at = None
        while not self._ended.is_set():
            try:
                if at is None:
                    at = self.last = self._tail()
                reply = self._book.client.xread({f"{P}events": at}, count=1000, block=1000)
            except leases.Unreachable as error:
                log.warning("no events: redis cannot be reached: %s", error)
                self._ended.wait(0.5)
                continue
            except Exception:  # without this thread nobody here hears of an end
                log.exception("reading events failed")
                self._ended.wait(0.5)
                continue
            events = [_event(entry) for entry in _entries(reply)]
            if events:
                at = events[-1].id
                self._tell(events)

    def _tail(self) -> str:
        newest = self._book.client.xrevrange(f"{P}events", count=1)
        return newest[0][0].decode() if newest else "0-0"

    def _tell(self, events: list[Event]) -> None:
        if self._loop:
            with contextlib.suppress(RuntimeError):  # the loop closed while we read
                self._loop.call_soon_threadsafe(self._take, events)

    def _take(self, events: list[Event]) -> None:
        self.last = events[-1].id
        self.offer(events)

    def topics(self) -> frozenset[str]:
        """Of rows, that somebody listens to."""
        return frozenset().union(*(subscription.topics for subscription in self._subscriptions))

    def offer(self, events: list[Event]) -> None:
        """To every subscription. Call it in the hub's loop."""
        for subscription in list(self._subscriptions):
            for event in events:
                subscription.offer(event)

    @contextlib.contextmanager
    def subscribe(
        self, wanted: Callable[[Event], bool], topics: frozenset[str] = frozenset()
    ) -> Iterator[Subscription]:
        subscription = Subscription(wanted, topics)
        self._subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)

    def history(self, job: str, since: str) -> list[Event]:
        """Events of a job after a position, from its own stream."""
        return [_event(entry) for entry in self._book.client.xrange(leases.key(job, "ev"), f"({since}", "+")]

    def fleet_history(self, since: str) -> list[Event] | None:
        """Events of the fleet after a position; None when the stream no longer reaches back that far."""
        first = self._book.client.xrange(f"{P}events", count=1)
        if first and after(first[0][0].decode(), since):
            return None
        found = self._book.client.xrange(f"{P}events", f"({since}", "+", count=_BACKLOG + 1)
        return None if len(found) > _BACKLOG else [_event(entry) for entry in found]

    async def until_ended(self, ids: Sequence[str], states: Callable[[], list[str | None]], seconds: float) -> None:
        """Returns when every job has ended (or is gone), or after `seconds`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        wanted = set(ids)
        with self.subscribe(lambda event: event.ends and event.job in wanted) as subscription:
            found = await asyncio.to_thread(states)
            left = {job for job, state in zip(ids, found, strict=True) if state is not None and state not in TERMINAL}
            while left and (patience := deadline - loop.time()) > 0:
                event = await subscription.next(patience)
                if event:
                    left.discard(event.job)


def _entries(reply: Any) -> list[Any]:
    """Of XREAD's answer, which is a list or a mapping by protocol version."""
    if not reply:
        return []
    stream = next(iter(reply.values())) if isinstance(reply, dict) else reply[0][1]
    return list(stream[0]) if stream and isinstance(stream[0], list) else list(stream)


async def merged(subscription: Subscription, since: str) -> AsyncIterator[Event | None]:
    """Events after `since`; progress of a job, and a row, at most every MERGE_SECONDS. None when it is time for a ping.

    Ends when the listener was too slow and events were lost.
    """
    latest: dict[str, Event] = {}
    loop = asyncio.get_running_loop()
    flush, ping = 0.0, loop.time() + PING_SECONDS
    while not subscription.lost:
        event = await subscription.next(max(0.01, (flush if latest else ping) - loop.time()))
        if event and (event.row is not None or after(event.id, since)):
            if event.merges:
                flush = flush if latest else loop.time() + MERGE_SECONDS
                latest[event.merges] = event
            else:
                latest.pop(f"job:{event.job}", None)
                ping = loop.time() + PING_SECONDS
                yield event
        if latest and loop.time() >= flush:
            ready, latest = list(latest.values()), {}
            ping = loop.time() + PING_SECONDS
            for waiting in ready:
                yield waiting
        elif loop.time() >= ping:
            ping = loop.time() + PING_SECONDS
            yield None
