"""Queue of events for one listener. A listener that reads too slowly loses events."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import cached_property

from coordinator.events.event import Event, Position
from jobs.store.server.connection import Silent

#: Number of queued events above which a listener loses progress events. Above twice this number, it must resynchronize.
BACKLOG = 10_000
_PING = b": ping\n\n"


class Chunk:
    """Events that are sent together. An empty chunk is a ping."""

    def __init__(self, events: Sequence[Event] = ()) -> None:
        self.events = events

    @cached_property
    def _first(self) -> Position | None:
        return next((event.position for event in self.events if event.id), None)

    @cached_property
    def _data(self) -> bytes:
        return b"".join(event.frame for event in self.events) or _PING

    def after(self, place: Position) -> bytes:
        """Return the frames of the events after a position, or empty bytes if no event is left."""
        if self._first is None or self._first > place:
            return self._data
        return b"".join(event.frame for event in self.events if not event.id or event.position > place)

    def without_progress(self) -> Chunk:
        """Return a copy of the chunk without progress events and live records, because later events replace them."""
        return Chunk([event for event in self.events if not event.merges])


class Subscription:
    """Queue of chunks for one listener. Use this only in the hub's event loop."""

    def __init__(self, topics: frozenset[str]) -> None:
        self.topics = topics
        self._chunks: deque[Chunk] = deque()
        self._waiting = 0
        self._sleeper: asyncio.Future[None] | None = None
        #: True if events were dropped, so that the listener must resynchronize.
        self.lost = False
        #: Seconds since the last response from Redis during an outage, otherwise 0.
        self.silent_seconds = 0.0

    def offer(self, chunk: Chunk) -> None:
        """Add a chunk to the queue, unless the queue is full."""
        self.lost = self.lost or self._waiting >= 2 * BACKLOG
        if not self.lost and self._waiting >= BACKLOG:
            chunk = chunk.without_progress()
            if not chunk.events:
                return
        if not self.lost:
            self._chunks.append(chunk)
            self._waiting += len(chunk.events)

    def wake(self) -> None:
        """Wake the listener."""
        if self._sleeper and not self._sleeper.done():
            self._sleeper.set_result(None)

    async def next(self) -> Chunk | None:
        """Return the next chunk, or None if events were lost. Raise Silent if Redis does not respond."""
        while not self._chunks and not self.lost and not self.silent_seconds:
            self._sleeper = asyncio.get_running_loop().create_future()
            await self._sleeper
        if self.silent_seconds:
            raise Silent(f"redis has not responded for {self.silent_seconds:g} s")
        if self.lost:
            return None
        chunk = self._chunks.popleft()
        self._waiting -= len(chunk.events)
        return chunk
