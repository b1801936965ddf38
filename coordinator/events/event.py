"""Parse, order, merge and encode events."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from jobs.store import unreadable_entries
from jobs.store.events import Entry
from threads_protocol.states import TERMINAL

Position: TypeAlias = tuple[int, int]
#: Topics that are filtered by tenant.
#: Prefixes of further topics that are filtered by tenant.
_MANY, _ONE = ("jobs", "workflows"), ("job:", "workflow:")
#: Position before the first event.
START: Position = (0, 0)


def position(place: str) -> Position:
    """Parse a stream ID, such as 1700000000000-0, into a position that can be compared."""
    head, _, tail = place.partition("-")
    return int(head or 0), int(tail or 0)


@dataclass(frozen=True, kw_only=True)
class Event:
    """Change of a job, workflow or worker, or a changed live record.

    Live records are not part of the event stream.
    """

    #: Stream ID, from which a client can resume at any replica. Empty for a live record.
    id: str
    fields: dict[str, str]
    #: Topic, unique name and content of a live record.
    topic: str = ""
    entity: str = ""
    row: Mapping[str, Any] | None = None

    @property
    def job(self) -> str:
        """Return the ID of the job, or an empty string for other events."""
        return self.fields.get("job", "")

    @property
    def workflow(self) -> str:
        """Return the ID of the workflow, or an empty string for other events."""
        return self.fields.get("workflow", "")

    @property
    def ends(self) -> bool:
        """Return True if this is the last event of a job."""
        return self.fields.get("state") in TERMINAL and self.fields.get("type") == self.fields.get("state")

    @property
    def merges(self) -> str:
        """Return the merge key, or an empty string. Of several events with one merge key, only the last is kept."""
        if self.row is not None:
            return self.entity
        if self.workflow:
            return f"workflow:{self.workflow}"
        return f"job:{self.job}" if self.fields.get("type") == "progress" else ""

    @property
    def topics(self) -> tuple[str, ...]:
        """Return the topics whose listeners receive this event."""
        if self.topic:
            return (self.topic,)
        if not self.job and not self.workflow:
            return ("workers",)
        tenant = self.fields.get("tenant", "")
        many, one = ("jobs", f"job:{self.job}") if self.job else ("workflows", f"workflow:{self.workflow}")
        return (many, f"{many}@{tenant}", one, f"{one}@{tenant}")

    @cached_property
    def position(self) -> Position:
        """Return the position of the event in the stream."""
        return position(self.id)

    @cached_property
    def frame(self) -> bytes:
        """Return the encoded server-sent event. An event is encoded once for all listeners."""
        place = f"id: {self.id}\n" if self.id else ""
        return f"{place}event: {self.fields.get('type', 'message')}\ndata: {json.dumps(self.data())}\n\n".encode()

    def data(self) -> Mapping[str, Any]:
        """Return the event's data for clients, with counts as numbers. Raise ValueError if a count is not a number."""
        if self.row is not None:
            return self.row
        numbers: dict[str, Any] = {name: int(self.fields[name]) for name in ("done", "total") if name in self.fields}
        return {**self.fields, **numbers}


def visible_topics(topics: Iterable[str], tenant: str | None) -> frozenset[str]:
    """Return the topics, with jobs and workflows restricted to one tenant unless `tenant` is None."""
    if tenant is None:
        return frozenset(topics)
    return frozenset(f"{topic}@{tenant}" if topic in _MANY or topic.startswith(_ONE) else topic for topic in topics)


def parse_entries(entries: Iterable[Entry]) -> list[Event]:
    """Parse stored entries into events. Invalid entries are skipped."""
    return unreadable_entries.readable("event", entries, _event)


def _event(place: bytes, fields: dict[bytes, bytes]) -> Event:
    event = Event(id=place.decode(), fields={name.decode(): value.decode() for name, value in fields.items()})
    event.data()  # raises ValueError if a count is not a number
    if "\n" in event.fields.get("type", "") or "\r" in event.fields.get("type", ""):
        raise ValueError("the event type contains a line break")
    return event


def merge_events(events: Iterable[Event]) -> list[Event]:
    """Return events in order. Of several progress events or live records about one subject, only the last is kept."""
    replaced: set[str] = set()
    kept = []
    for event in reversed(list(events)):
        if not (event.merges and event.merges in replaced):
            kept.append(event)
        replaced.add(event.merges or f"job:{event.job}")
    return kept[::-1]
