"""One reader of the fleet's event stream a replica, fanned out to whoever listens here.

A batch of events is put together once for all who listen to the same topics, in the order of their ids, and each event
is encoded once. With many listeners delivery is paced: it takes at most a quarter of the loop's time.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence

from coordinator.events.ends import Ends
from coordinator.events.event import Event, merged
from coordinator.events.reader import Reader
from coordinator.events.subscription import Chunk, Subscription
from jobs.store.events import NOWHERE, Events

#: With RECHECK_SECONDS at most 15 s: within these a listener whose token was revoked hears no more.
PING_SECONDS = 12.0
#: Streams end when Redis has said nothing for this long: their listeners must not take silence for peace. A healthy
#: Redis answers the hub at least once a second.
OUTAGE_SECONDS = 5.0
#: Progress and rows wait for others this long, while nothing else happens.
MERGE_SECONDS = 0.25
#: Listeners woken before others have their turn.
_WOKEN = 25
#: Rest after a delivery, over the time that it took, and at most.
_REST, _LONGEST_REST = 3.0, 1.0


class Hub:
    """Offers every event to the subscriptions of its topics. Use inside its loop, once started."""

    def __init__(self, events: Events) -> None:
        self.events = events
        self.ends = Ends()
        #: Is called with all events that are read; must not wait.
        self.listener: Callable[[Sequence[Event]], None] = lambda _events: None
        #: The place of the last event that was offered.
        self.last = NOWHERE
        self._channels: dict[frozenset[str], set[Subscription]] = {}
        self._by_topic: dict[str, set[frozenset[str]]] = {}
        self._fresh: list[Event] = []
        self._any, self._urgent = asyncio.Event(), asyncio.Event()
        self.tasks: list[asyncio.Task[None]] = []

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to read in a thread, and to deliver in this loop."""
        self._reader = Reader(self.events, loop, self.take, self.begin_anew)
        self.tasks = [loop.create_task(task) for task in (self.deliver(), self._ping(), self._watch())]
        self._reader.start()

    def stop(self) -> None:
        """End reading and delivering."""
        for task in self.tasks:
            task.cancel()
        self._reader.stop()

    # -- what the reader calls --------------------------------------------------------------------------------------

    def take(self, last: str, events: list[Event]) -> None:
        """Offer events that were read, up to a place."""
        self.last = last
        self.ends.take(events)
        self.listener(events)
        self.offer(events)

    def begin_anew(self, last: str) -> None:
        """Let every listener look again: events are numbered anew."""
        self.last = last
        for subscription in self._everyone():
            subscription.lost = True
            subscription.wake()

    # -- listeners --------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def subscribe(self, topics: frozenset[str]) -> Iterator[Subscription]:
        """Give a subscription to these topics, while the context lasts."""
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

    def topics(self) -> frozenset[str]:
        """Return all topics that somebody listens to."""
        return frozenset(self._by_topic)

    def _everyone(self) -> list[Subscription]:
        return [subscription for channel in self._channels.values() for subscription in channel]

    # -- delivery ---------------------------------------------------------------------------------------------------

    def offer(self, events: list[Event]) -> None:
        """Deliver events to every subscription of their topics, soon."""
        if events:
            self._fresh += events
            self._any.set()
            if not all(event.merges for event in events):
                self._urgent.set()

    async def deliver(self) -> None:
        """Deliver what is offered, for as long as the replica lives; cancel it."""
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
        """Put events where their listeners find them, and return the subscriptions that got some."""
        by_channel: dict[frozenset[str], list[Event]] = {}
        for event in events:
            for topics in {topics for topic in event.topics for topics in self._by_topic.get(topic, ())}:
                by_channel.setdefault(topics, []).append(event)
        served: list[Subscription] = []
        for topics, batch in by_channel.items():
            chunk = Chunk(batch)
            for subscription in self._channels[topics]:
                subscription.offer(chunk)
            served += self._channels[topics]
        return served

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
        """Cut off the listeners while Redis is silent; they come again and hear why."""
        while True:
            await asyncio.sleep(1.0)
            if time.monotonic() - self._reader.answered <= OUTAGE_SECONDS:
                continue
            everyone = self._everyone()
            for subscription in everyone:
                subscription.silent_seconds = OUTAGE_SECONDS
            await self._wake(everyone)
