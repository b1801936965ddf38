"""Live records of workers, queues and alerts, read every second while there are listeners and sent when changed.

Live records are not part of the event stream. A new listener first receives all records, and then the changes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from coordinator.events.event import Event
from coordinator.events.hub import Hub
from coordinator.queries import Queries
from jobs.store.server.connection import Unreachable

log = logging.getLogger(__name__)

SECONDS = 1.0
Row = Mapping[str, Any]
Rows = dict[str, Row]


#: Event type, key field and query of the records of each topic.
TOPICS: dict[str, tuple[str, str, Callable[[Queries], Sequence[Row]]]] = {
    "fleet": ("fleet", "id", lambda queries: queries.fleet.workers()),
    "queues": ("queue", "queue", lambda queries: queries.fleet.queues()),
    "alerts": ("alert", "id", lambda queries: queries.telemetry.alerts()),
}


def read(queries: Queries, topics: frozenset[str]) -> dict[str, Rows]:
    """Return the records of each topic, by the value of their key field."""
    found: dict[str, Rows] = {}
    for topic in sorted(topics):
        _, name, source = TOPICS[topic]
        found[topic] = {row[name]: row for row in source(queries)}
    return found


def changes(before: Mapping[str, Rows], now: Mapping[str, Rows]) -> Iterator[Event]:
    """Yield events for the differences between two states. Topics missing in `now` cause no events."""
    for topic, rows in now.items():
        kind, name, _ = TOPICS[topic]
        known = before.get(topic, {})
        changed = {key: row for key, row in rows.items() if known.get(key) != row}
        gone = {key: {name: key, "gone": True} for key in known.keys() - rows.keys()}
        for key, row in (changed | gone).items():
            yield Event(id="", fields={"type": kind}, topic=topic, entity=f"{kind}:{key}", row=row)


class LiveRows:
    """Reads live records once per second for all listeners of a replica, and sends the changes to its hub."""

    def __init__(self, queries: Queries, hub: Hub) -> None:
        self._queries = queries
        self._hub = hub
        self._known: dict[str, Rows] = {}

    async def run(self) -> None:
        """Read the live records every second until cancelled."""
        while True:
            await asyncio.sleep(SECONDS)
            try:
                await self._look()
            except Unreachable as error:
                log.warning("cannot read live records from redis: %s", error)
            except Exception:
                log.exception("reading live records failed")

    async def _look(self) -> None:
        wanted = self._hub.topics() & TOPICS.keys()
        if not wanted:
            self._known = {}
            return
        now = await asyncio.to_thread(read, self._queries, frozenset(wanted))
        self._hub.offer(list(changes(self._known, now)))
        self._known = now
