"""Chunks of events for one listener, in order; a listener that does not read loses some."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import cached_property

from coordinator.events.event import Event, Position
from jobs.store.server.connection import Silent

#: A listener that falls this far behind loses progress events, and at twice this it must start anew.
BACKLOG = 10_000
_PING = b": ping\n\n"


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
        """Return what is sent to a listener that has heard everything up to a place; empty when nothing is left."""
        if self._first is None or self._first > place:
            return self._data
        return b"".join(event.frame for event in self.events if not event.id or event.position > place)

    def without_progress(self) -> Chunk:
        """Return the events that no later one replaces."""
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
        #: Seconds for which Redis has been silent, when that is so long that nobody knows what happens.
        self.silent_seconds = 0.0

    def offer(self, chunk: Chunk) -> None:
        """Put a chunk where the listener finds it, if there is room."""
        self.lost = self.lost or self._waiting >= 2 * BACKLOG
        if not self.lost and self._waiting >= BACKLOG:
            chunk = chunk.without_progress()
            if not chunk.events:
                return
        if not self.lost:
            self._chunks.append(chunk)
            self._waiting += len(chunk.events)

    def wake(self) -> None:
        """Let the listener look again."""
        if self._sleeper and not self._sleeper.done():
            self._sleeper.set_result(None)

    async def next(self) -> Chunk | None:
        """Return the next chunk; None when events were lost. Raises Silent when Redis says nothing."""
        while not self._chunks and not self.lost and not self.silent_seconds:
            self._sleeper = asyncio.get_running_loop().create_future()
            await self._sleeper
        if self.silent_seconds:
            raise Silent(f"redis has been silent for {self.silent_seconds:g} s")
        if self.lost:
            return None
        chunk = self._chunks.popleft()
        self._waiting -= len(chunk.events)
        return chunk
