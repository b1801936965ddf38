"""Rows that change all the time, of nodes, queues and alerts: read each second while somebody listens, sent as changed.

They have no place in the event stream: whoever connects, to any replica, hears all rows first and then what changes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from coordinator.events.hub import Event, Hub
from coordinator.queries import Queries
from jobs.store import leases

log = logging.getLogger(__name__)

SECONDS = 1.0
Rows = dict[str, dict[str, Any]]
#: By topic: the event's type, the field that names the row, and where the rows come from.
TOPICS: dict[str, tuple[str, str, Callable[[Queries], list[dict[str, Any]]]]] = {
    "nodes": ("node", "id", lambda queries: queries.fleet.nodes()),
    "queues": ("queue", "queue", lambda queries: queries.fleet.queues()),
    "alerts": ("alert", "id", lambda queries: queries.telemetry.alerts()),
}


def read(queries: Queries, topics: frozenset[str]) -> dict[str, Rows]:
    """The rows of each of these topics, by name."""
    return {topic: {row[TOPICS[topic][1]]: row for row in TOPICS[topic][2](queries)} for topic in sorted(topics)}


def changes(before: Mapping[str, Rows], now: Mapping[str, Rows]) -> Iterator[Event]:
    """What turns the rows that a listener knows into those of now; of a topic that was not read, nothing."""
    for topic, rows in now.items():
        kind, name, _ = TOPICS[topic]
        known = before.get(topic, {})
        for each, row in rows.items():
            if known.get(each) != row:
                yield Event(id="", fields={"type": kind}, topic=topic, entity=f"{kind}:{each}", row=row)
        for each in known.keys() - rows.keys():
            yield Event(
                id="", fields={"type": kind}, topic=topic, entity=f"{kind}:{each}", row={name: each, "gone": True}
            )


class Pulse:
    """One replica's reading of the rows, fanned out through its hub."""

    def __init__(self, queries: Queries, hub: Hub) -> None:
        self._queries = queries
        self._hub = hub
        self._known: dict[str, Rows] = {}

    async def run(self) -> None:
        """For as long as the replica lives; cancel it."""
        while True:
            await asyncio.sleep(SECONDS)
            try:
                await self._beat()
            except leases.Unreachable as error:
                log.warning("no rows: redis cannot be reached: %s", error)
            except Exception:
                log.exception("reading rows failed")

    async def _beat(self) -> None:
        wanted = self._hub.topics() & TOPICS.keys()
        if not wanted:
            self._known = {}
            return
        now = await asyncio.to_thread(read, self._queries, frozenset(wanted))
        self._hub.offer(list(changes(self._known, now)))
        self._known = now
