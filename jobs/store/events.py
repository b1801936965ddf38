"""Reads of event streams: changes of jobs and workers, written by the Redis functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from jobs.store import keys, unreadable_entries
from jobs.store.server.functions import Part

#: Position of an event in the stream (milliseconds-number), and its fields.
Entry: TypeAlias = tuple[bytes, dict[bytes, bytes]]
#: Position before the first event.
NOWHERE = "0-0"
#: Number of events to read from the end of a job's stream.
_LAST = 8


class Following(NamedTuple):
    """Events after a position."""

    entries: list[Entry]
    #: True if the event at the position is still stored, so no later event was lost.
    known: bool


class JobStream(NamedTuple):
    """Events of one job, starting at a position."""

    #: Events of the job. None if it has no stream because it is small, has not started, or was deleted.
    entries: list[Entry] | None
    #: Position of the newest event of all jobs; None if there is no event.
    newest: str | None


class FleetStream(NamedTuple):
    """Events of all jobs and workers, starting at a position."""

    entries: list[Entry]
    #: Positions of the oldest and newest stored events; None if there is no event.
    oldest: str | None
    newest: str | None


class Events(Part):
    """Reads streams of events."""

    def newest(self) -> str:
        """Return the position of the newest event, or NOWHERE."""
        return _place(self._client.xrevrange(keys.EVENTS, count=1)) or NOWHERE

    def wait(self, after: str, *, block_ms: int, count: int) -> Following:
        """Return at most `count` events after a position. Wait up to `block_ms` for the first one."""
        pipe = self._pipe()
        # Both commands use the same connection, because another connection could reach a server without the latest
        # events.
        pipe.xread({keys.EVENTS: after}, count=count, block=block_ms).xrange(keys.EVENTS, after, after)
        entries, there = pipe.execute()
        return Following(_entries(entries), bool(there) or after == NOWHERE)

    def of_job(self, job: str, since: str) -> JobStream:
        """Return the events of a job at and after a position."""
        pipe = self._pipe()
        pipe.xrange(keys.job_events(job), since, "+").exists(keys.job_events(job)).xrevrange(keys.EVENTS, count=1)
        entries, exists, newest = unreadable_entries.replies(pipe)
        return JobStream(entries if exists else None, _place(newest))

    def finishing(self, jobs: Sequence[str]) -> list[int | None]:
        """Return the time in milliseconds at which the last unit of each job was committed; None if no stored event has
        it.
        """
        pipe = self._pipe()
        for job in jobs:
            pipe.xrevrange(keys.job_events(job), count=_LAST)
        return [_finishing(entries or ()) for entries in (unreadable_entries.replies(pipe) if jobs else ())]

    def of_fleet(self, since: str, *, count: int) -> FleetStream:
        """Return at most `count` events at and after a position."""
        pipe = self._pipe()
        pipe.xrange(keys.EVENTS, since, "+", count=count)
        # Read last: an event reported as stored here was also stored when the events above were read.
        pipe.xrange(keys.EVENTS, count=1).xrevrange(keys.EVENTS, count=1)
        entries, oldest, newest = unreadable_entries.replies(pipe)
        return FleetStream(entries or [], _place(oldest), _place(newest))


def _finishing(entries: Sequence[Entry]) -> int | None:
    moments = [place for place, fields in entries if fields.get(b"type") == b"finishing"]
    return int(moments[0].partition(b"-")[0]) if moments else None


def _place(entries: list[Entry] | None) -> str | None:
    return entries[0][0].decode() if entries else None


def _entries(reply: Any) -> list[Entry]:
    """Return the entries in XREAD's reply for one stream. The protocol version determines its type: a list or a
    mapping.
    """
    if not reply:
        return []
    entries = next(iter(reply.values())) if isinstance(reply, dict) else reply[0][1]
    return list(entries[0]) if entries and isinstance(entries[0], list) else list(entries)
