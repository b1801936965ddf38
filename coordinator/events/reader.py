"""Thread that reads the fleet's event stream and passes the events to the hub's event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from coordinator.events.event import Event, parse_entries
from coordinator.redis_reader import RedisReader
from jobs.store import keys, unreadable_entries
from jobs.store.events import Events
from jobs.store.server.connection import RedisError, Unreachable

log = logging.getLogger(__name__)

#: Maximum number of events per read.
#: Milliseconds that a read waits for events.
_COUNT, BLOCK_MS = 1000, 1000


class Reader(RedisReader):
    """Passes new events to `take` in the event loop, or calls `resynchronize` if the stream was replaced."""

    def __init__(
        self,
        events: Events,
        loop: asyncio.AbstractEventLoop,
        take: Callable[[str, list[Event]], None],
        resynchronize: Callable[[str], None],
    ) -> None:
        super().__init__("events", loop)
        self._events = events
        self._take = take
        self._resynchronize = resynchronize
        self._place: str | None = None

    def read(self) -> None:
        """Read the events that follow the last read event."""
        if self._place is None:
            self._place = self._events.newest()
            self.call_in_loop(self._take, self._place, [])
        self._place = self.look(self._place)

    def handle_error(self, error: Exception) -> None:
        """Record the error if the key of the event stream has the wrong type."""
        if isinstance(error, RedisError) and not isinstance(error, Unreachable):
            unreadable_entries.SKIPS.note("event", keys.EVENTS, error)

    def look(self, place: str) -> str:
        """Wait up to one second for events after the ID `place`, deliver them, and return the last event's ID."""
        following = self._events.wait(place, block_ms=BLOCK_MS, count=_COUNT)
        if not following.known:  # the stream was deleted, trimmed, or has lost its last writes in a failover
            log.warning("the event stream no longer has the last event that was read; listeners must reload")
            place = self._events.newest()
            self.call_in_loop(self._resynchronize, place)
        elif following.entries:
            place = following.entries[-1][0].decode()
            self.call_in_loop(self._take, place, parse_entries(following.entries))
        return place
