"""Reads of event streams. The Redis functions write an event for each change of a job or worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from jobs.store import keys, unreadable_entries
from jobs.store.server.functions import Part

#: Event: its position in the stream (milliseconds-number), and its fields.
Entry: TypeAlias = tuple[bytes, dict[bytes, bytes]]
#: Stream position before the first event.
NOWHERE = "0-0"
#: Number of events that are read from the end of a job's stream.
_LAST = 8


class Following(NamedTuple):
    """Events that follow a position of the stream."""

    entries: list[Entry]
    #: True if no event after the position was lost, because the event at the position is still stored.
    known: bool


class JobStream(NamedTuple):
    """Events of one job that follow a position."""

    #: Events of the job, or None if it has no stream. Small jobs, jobs before their start and deleted jobs have none.
    entries: list[Entry] | None
    #: Position of the newest event of all jobs, or None if there is no event.
    newest: str | None


class FleetStream(NamedTuple):
    """Events of all jobs and workers that follow a position."""

    entries: list[Entry]
    #: Positions of the oldest and the newest stored event, or None if there is no event.
    oldest: str | None
    newest: str | None


class Events(Part):
    """Reads event streams from Redis."""

    def newest(self) -> str:
        """Return the position of the newest event. Without events, return the position before the first event."""
        return _place(self._client.xrevrange(keys.EVENTS, count=1)) or NOWHERE

    def wait(self, after: str, *, block_ms: int, count: int) -> Following:
        """Return up to `count` events after a position. Wait up to `block_ms` milliseconds for the first one."""
        pipe = self._pipe()
        # Both reads use one connection, because a second connection could reach a server without the latest events.
        pipe.xread({keys.EVENTS: after}, count=count, block=block_ms).xrange(keys.EVENTS, after, after)
        entries, there = pipe.execute()
        return Following(_entries(entries), bool(there) or after == NOWHERE)

    def of_job(self, job: str, since: str) -> JobStream:
        """Return the events of a job from a position on."""
        pipe = self._pipe()
        pipe.xrange(keys.job_events(job), since, "+").exists(keys.job_events(job)).xrevrange(keys.EVENTS, count=1)
        entries, exists, newest = unreadable_entries.replies(pipe)
        return JobStream(entries if exists else None, _place(newest))

    def finishing(self, jobs: Sequence[str]) -> list[int | None]:
        """Return the time in milliseconds at which the last unit of each job was committed, or None if unknown."""
        pipe = self._pipe()
        for job in jobs:
            pipe.xrevrange(keys.job_events(job), count=_LAST)
        return [_finishing(entries or ()) for entries in (unreadable_entries.replies(pipe) if jobs else ())]

    def of_fleet(self, since: str, *, count: int) -> FleetStream:
        """Return up to `count` events of all jobs and workers from a position on."""
        pipe = self._pipe()
        pipe.xrange(keys.EVENTS, since, "+", count=count)
        # The oldest and newest events are read last. They were therefore also stored during the read above.
        pipe.xrange(keys.EVENTS, count=1).xrevrange(keys.EVENTS, count=1)
        entries, oldest, newest = unreadable_entries.replies(pipe)
        return FleetStream(entries or [], _place(oldest), _place(newest))


def _finishing(entries: Sequence[Entry]) -> int | None:
    moments = [place for place, fields in entries if fields.get(b"type") == b"finishing"]
    return int(moments[0].partition(b"-")[0]) if moments else None


def _place(entries: list[Entry] | None) -> str | None:
    return entries[0][0].decode() if entries else None


def _entries(reply: Any) -> list[Entry]:
    """Return the events of one stream from the reply to XREAD. The reply is a list or a mapping."""
    if not reply:
        return []
    entries = next(iter(reply.values())) if isinstance(reply, dict) else reply[0][1]
    return list(entries[0]) if entries and isinstance(entries[0], list) else list(entries)
