"""An event as it is stored, ordered, merged and sent."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from jobs.store import skipped
from jobs.store.events import Entry
from threads_protocol.states import TERMINAL

Position: TypeAlias = tuple[int, int]
#: Topics of which a tenant sees its part, and beginnings of such topics.
_MANY, _ONE = ("jobs", "workflows"), ("job:", "workflow:")
#: Before the first event.
START: Position = (0, 0)


def position(place: str) -> Position:
    """Return a place in the stream, milliseconds-number, as what compares."""
    head, _, tail = place.partition("-")
    return int(head or 0), int(tail or 0)


@dataclass(frozen=True, kw_only=True)
class Event:
    """Change of a job, a workflow or a worker; or a row that changed, which has no place in the stream."""

    #: Place in the stream, from which any replica resumes. Empty for a row.
    id: str
    fields: dict[str, str]
    #: A row's topic, its name among all rows, and its content as clients see it.
    topic: str = ""
    entity: str = ""
    row: Mapping[str, Any] | None = None

    @property
    def job(self) -> str:
        """Id of the job; empty for a worker's event."""
        return self.fields.get("job", "")

    @property
    def workflow(self) -> str:
        """Id of the workflow; empty for any other event."""
        return self.fields.get("workflow", "")

    @property
    def ends(self) -> bool:
        """True for the last event of a job."""
        return self.fields.get("state") in TERMINAL and self.fields.get("type") == self.fields.get("state")

    @property
    def merges(self) -> str:
        """Name shared by events of which the last holds all that the others said; empty for one that stands alone."""
        if self.row is not None:
            return self.entity
        if self.workflow:
            return f"workflow:{self.workflow}"
        return f"job:{self.job}" if self.fields.get("type") == "progress" else ""

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics whose listeners hear of it."""
        if self.topic:
            return (self.topic,)
        if not self.job and not self.workflow:
            return ("workers",)
        tenant = self.fields.get("tenant", "")
        many, one = ("jobs", f"job:{self.job}") if self.job else ("workflows", f"workflow:{self.workflow}")
        return (many, f"{many}@{tenant}", one, f"{one}@{tenant}")

    @cached_property
    def position(self) -> Position:
        """Place in the stream, to compare."""
        return position(self.id)

    @cached_property
    def frame(self) -> bytes:
        """Bytes of the event as it is sent, encoded once for all listeners."""
        place = f"id: {self.id}\n" if self.id else ""
        return f"{place}event: {self.fields.get('type', 'message')}\ndata: {json.dumps(self.data())}\n\n".encode()

    def data(self) -> Mapping[str, Any]:
        """Return the content as clients see it: counts are numbers. ValueError for counts that are none."""
        if self.row is not None:
            return self.row
        numbers: dict[str, Any] = {name: int(self.fields[name]) for name in ("done", "total") if name in self.fields}
        return {**self.fields, **numbers}


def visible_topics(topics: Iterable[str], tenant: str | None) -> frozenset[str]:
    """Return the topics, those of jobs and workflows narrowed to those of one tenant; None: of all."""
    if tenant is None:
        return frozenset(topics)
    return frozenset(f"{topic}@{tenant}" if topic in _MANY or topic.startswith(_ONE) else topic for topic in topics)


def readable(entries: Iterable[Entry]) -> list[Event]:
    """Return the events of stored entries, without those that cannot be read."""
    return skipped.readable("event", entries, _event)


def _event(place: bytes, fields: dict[bytes, bytes]) -> Event:
    event = Event(id=place.decode(), fields={name.decode(): value.decode() for name, value in fields.items()})
    event.data()  # raises for counts that are none
    if "\n" in event.fields.get("type", "") or "\r" in event.fields.get("type", ""):
        raise ValueError("its type is no line")
    return event


def merged(events: Iterable[Event]) -> list[Event]:
    """Return events in order, without progress and rows that a later event of the same job, or row, replaces."""
    replaced: set[str] = set()
    kept = []
    for event in reversed(list(events)):
        if not (event.merges and event.merges in replaced):
            kept.append(event)
        replaced.add(event.merges or f"job:{event.job}")
    return kept[::-1]
