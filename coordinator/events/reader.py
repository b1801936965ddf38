"""The thread of a replica that reads the fleet's stream of events and hands it to the hub's loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from coordinator.events.event import Event, readable
from jobs.store import keys, skipped
from jobs.store.connection import RedisError, Unreachable
from jobs.store.events import Events

log = logging.getLogger(__name__)

#: Events read at once at most, and how long Redis holds a read back when there is none.
_COUNT, _BLOCK_MS = 1000, 1000
#: Rest after a failed read.
_RETRY_SECONDS = 0.5


class Reader(threading.Thread):
    """Calls `take(last, events)`, and `begin_anew(last)` when the stream was replaced, in the given loop."""

    def __init__(
        self,
        events: Events,
        loop: asyncio.AbstractEventLoop,
        take: Callable[[str, list[Event]], None],
        begin_anew: Callable[[str], None],
    ) -> None:
        super().__init__(name="events", daemon=True)
        self._events = events
        self._loop = loop
        self._take = take
        self._begin_anew = begin_anew
        self._ended = threading.Event()
        #: When Redis last answered, by time.monotonic.
        self.answered = time.monotonic()

    def run(self) -> None:
        """Read until stopped, whatever fails."""
        place = None
        while not self._ended.is_set():
            try:
                if place is None:
                    place = self._events.newest()
                    self._call(self._take, place, [])
                place = self.look(place)
                self.answered = time.monotonic()
            except Unreachable as error:
                log.warning("no events: redis cannot be reached: %s", error)
                self._ended.wait(_RETRY_SECONDS)
            except RedisError as error:  # a script puts aside what is no stream
                skipped.SKIPS.note("event", keys.EVENTS, error)
                self._ended.wait(_RETRY_SECONDS)
            except Exception:  # without this thread nobody here hears of an end
                log.exception("reading events failed")
                self._ended.wait(_RETRY_SECONDS)

    def look(self, place: str) -> str:
        """Wait up to a second for events after a place, hand them over, and return the place of the last."""
        following = self._events.wait(place, block_ms=_BLOCK_MS, count=_COUNT)
        if not following.known:  # begun anew, trimmed, or of a Redis that lacks the last writes of the one before
            log.warning("the stream of events lost the last one that was read; listeners must look again")
            place = self._events.newest()
            self._call(self._begin_anew, place)
        elif following.entries:
            place = following.entries[-1][0].decode()
            self._call(self._take, place, readable(following.entries))
        return place

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop closed while we read
            self._loop.call_soon_threadsafe(function, *arguments)

    def stop(self) -> None:
        """End the thread, within the time of a read."""
        self._ended.set()
        self.join(timeout=3)
