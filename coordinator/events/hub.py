"""Distribute the fleet's event stream to the listeners of a replica.

Each event is encoded once, and each batch is assembled once for all listeners of the same topics. With many listeners,
delivery is limited to a quarter of the event loop's time.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence

from coordinator.events.completion import Ends
from coordinator.events.event import Event, merge_events
from coordinator.events.reader import Reader
from coordinator.events.subscription import Chunk, Subscription
from jobs.store.events import NOWHERE, Events

#: Interval in seconds between two pings. A stream ends within 15 seconds after its token is revoked.
PING_SECONDS = 12.0
#: Seconds without a response from Redis after which streams end. A healthy Redis responds at least once per second.
OUTAGE_SECONDS = 5.0
#: Maximum delay in seconds of progress events and live records, so that they can be merged with later ones.
MERGE_SECONDS = 0.25
#: Number of listeners that are woken before other tasks of the event loop can run.
_WOKEN = 25
#: Pause after a delivery, as a multiple of the delivery's duration.
#: Maximum pause after a delivery in seconds.
_REST, _LONGEST_REST = 3.0, 1.0


class Hub:
    """Delivers events to the subscribers of their topics.

    Call `start` first, and use this only in its event loop.
    """

    def __init__(self, events: Events) -> None:
        self.events = events
        self.ends = Ends()
        #: Function called with all events. It must not block.
        self.listener: Callable[[Sequence[Event]], None] = lambda _events: None
        #: ID of the last event from the reader.
        self.last = NOWHERE
        self._channels: dict[frozenset[str], set[Subscription]] = {}
        self._by_topic: dict[str, set[frozenset[str]]] = {}
        self._fresh: list[Event] = []
        self._any, self._urgent = asyncio.Event(), asyncio.Event()
        self.tasks: list[asyncio.Task[None]] = []

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the reader thread, and the delivery tasks in this event loop."""
        self._reader = Reader(self.events, loop, self.take, self.resynchronize)
        self.tasks = [loop.create_task(task) for task in (self.deliver(), self._ping(), self._watch())]
        self._reader.start()

    def stop(self) -> None:
        """Stop reading and delivering."""
        for task in self.tasks:
            task.cancel()
        self._reader.stop()

    # -- input from the reader thread ----------------------------------------------------------------------------------

    def take(self, last: str, events: list[Event]) -> None:
        """Queue events from the reader. `last` is the ID of the last event."""
        self.last = last
        self.ends.take(events)
        self.listener(events)
        self.offer(events)

    def resynchronize(self, last: str) -> None:
        """Make all listeners resynchronize, because the stream was replaced."""
        self.last = last
        for subscription in self._all_subscriptions():
            subscription.lost = True
            subscription.wake()

    # -- listeners --------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def subscribe(self, topics: frozenset[str]) -> Iterator[Subscription]:
        """Subscribe to topics for the duration of the context."""
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
        """Return all topics that have listeners."""
        return frozenset(self._by_topic)

    def _all_subscriptions(self) -> list[Subscription]:
        return [subscription for channel in self._channels.values() for subscription in channel]

    # -- delivery ---------------------------------------------------------------------------------------------------

    def offer(self, events: list[Event]) -> None:
        """Queue events for delivery to the subscriptions of their topics."""
        if events:
            self._fresh += events
            self._any.set()
            if not all(event.merges for event in events):
                self._urgent.set()

    async def deliver(self) -> None:
        """Deliver queued events until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await self._any.wait()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._urgent.wait(), MERGE_SECONDS)
            began, events = loop.time(), self._fresh
            self._fresh = []
            self._any.clear()
            self._urgent.clear()
            await self._wake(self._distribute(merge_events(events)))
            await asyncio.sleep(min(_LONGEST_REST, _REST * (loop.time() - began)))

    def _distribute(self, events: list[Event]) -> list[Subscription]:
        """Add events to the subscriptions of their topics, and return those subscriptions."""
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
            everyone, ping = self._all_subscriptions(), Chunk()
            for subscription in everyone:
                subscription.offer(ping)
            await self._wake(everyone)

    async def _watch(self) -> None:
        """End all streams if Redis stops responding. Clients reconnect and receive the error."""
        while True:
            await asyncio.sleep(1.0)
            if time.monotonic() - self._reader.answered <= OUTAGE_SECONDS:
                continue
            everyone = self._all_subscriptions()
            for subscription in everyone:
                subscription.silent_seconds = OUTAGE_SECONDS
            await self._wake(everyone)
