"""The thread of a replica that reads the fleet's stream of events and hands it to the hub's loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from coordinator.events.event import Event, readable
from coordinator.redis_reader import RedisReader
from jobs.store import keys, skipped
from jobs.store.events import Events
from jobs.store.server.connection import RedisError, Unreachable

log = logging.getLogger(__name__)

#: Events read at once at most, and how long Redis holds a read back when there is none.
_COUNT, BLOCK_MS = 1000, 1000


class Reader(RedisReader):
    """Calls `take(last, events)`, and `begin_anew(last)` when the stream was replaced, in the given loop."""

    def __init__(
        self,
        events: Events,
        loop: asyncio.AbstractEventLoop,
        take: Callable[[str, list[Event]], None],
        begin_anew: Callable[[str], None],
    ) -> None:
        super().__init__("events", loop)
        self._events = events
        self._take = take
        self._begin_anew = begin_anew
        self._place: str | None = None

    def read(self) -> None:
        """Read on from the last event that was read."""
        if self._place is None:
            self._place = self._events.newest()
            self.call_in_loop(self._take, self._place, [])
        self._place = self.look(self._place)

    def handle_error(self, error: Exception) -> None:
        """Note a stream that a function puts aside, since it is none."""
        if isinstance(error, RedisError) and not isinstance(error, Unreachable):
            skipped.SKIPS.note("event", keys.EVENTS, error)

    def look(self, place: str) -> str:
        """Wait up to a second for events after a place, hand them over, and return the place of the last."""
        following = self._events.wait(place, block_ms=BLOCK_MS, count=_COUNT)
        if not following.known:  # begun anew, trimmed, or of a Redis that lacks the last writes of the one before
            log.warning("the stream of events lost the last one that was read; listeners must look again")
            place = self._events.newest()
            self.call_in_loop(self._begin_anew, place)
        elif following.entries:
            place = following.entries[-1][0].decode()
            self.call_in_loop(self._take, place, readable(following.entries))
        return place
