"""Rows that change all the time (workers, queues, alerts): read each second while somebody listens, sent when changed.

They have no place in the event stream: whoever connects, to any replica, hears all rows first and then what changes.
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


#: By topic: the event's type, the field that names the row, and where the rows come from.
TOPICS: dict[str, tuple[str, str, Callable[[Queries], Sequence[Row]]]] = {
    "fleet": ("fleet", "id", lambda queries: queries.fleet.workers()),
    "queues": ("queue", "queue", lambda queries: queries.fleet.queues()),
    "alerts": ("alert", "id", lambda queries: queries.telemetry.alerts()),
}


def read(queries: Queries, topics: frozenset[str]) -> dict[str, Rows]:
    """Return the rows of each of these topics, by name."""
    found: dict[str, Rows] = {}
    for topic in sorted(topics):
        _, name, source = TOPICS[topic]
        found[topic] = {row[name]: row for row in source(queries)}
    return found


def changes(before: Mapping[str, Rows], now: Mapping[str, Rows]) -> Iterator[Event]:
    """Return the events that turn the rows that a listener knows into those of now.

    None for a topic that was not read.
    """
    for topic, rows in now.items():
        kind, name, _ = TOPICS[topic]
        known = before.get(topic, {})
        changed = {key: row for key, row in rows.items() if known.get(key) != row}
        gone = {key: {name: key, "gone": True} for key in known.keys() - rows.keys()}
        for key, row in (changed | gone).items():
            yield Event(id="", fields={"type": kind}, topic=topic, entity=f"{kind}:{key}", row=row)


class LiveRows:
    """Reads the rows once a second for all listeners of a replica, and offers what changed to its hub."""

    def __init__(self, queries: Queries, hub: Hub) -> None:
        self._queries = queries
        self._hub = hub
        self._known: dict[str, Rows] = {}

    async def run(self) -> None:
        """Read for as long as the replica lives; cancel it."""
        while True:
            await asyncio.sleep(SECONDS)
            try:
                await self._look()
            except Unreachable as error:
                log.warning("no rows: redis cannot be reached: %s", error)
            except Exception:
                log.exception("reading rows failed")

    async def _look(self) -> None:
        wanted = self._hub.topics() & TOPICS.keys()
        if not wanted:
            self._known = {}
            return
        now = await asyncio.to_thread(read, self._queries, frozenset(wanted))
        self._hub.offer(list(changes(self._known, now)))
        self._known = now
