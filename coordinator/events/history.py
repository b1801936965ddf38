"""Read missed events from the streams in Redis."""

from __future__ import annotations

from coordinator.events.event import Event, parse_entries, position
from coordinator.events.subscription import BACKLOG
from jobs.store.events import Events


def job_events(events: Events, job: str, since: str) -> list[Event] | None:
    """Return the events of a job after the ID `since`, or None if some of them are no longer stored."""
    stream = events.of_job(job, since)
    if not stream.newest or position(since) > position(stream.newest):
        return None
    if stream.entries is None:  # small jobs have no event stream of their own
        fleet = fleet_events(events, since)
        return None if fleet is None else [event for event in fleet if event.job == job]
    return [event for event in parse_entries(stream.entries) if event.position > position(since)]


def fleet_events(events: Events, since: str) -> list[Event] | None:
    """Return the events of the fleet after the ID `since`, or None if some of them are no longer stored."""
    stream = events.of_fleet(since, count=BACKLOG + 2)
    if stream.oldest is None or stream.newest is None:
        return None
    if not position(stream.oldest) <= position(since) <= position(stream.newest):
        return None
    # The event `since` can be missing after a failover.
    if not stream.entries or position(stream.entries[0][0].decode()) != position(since):
        return None
    if len(stream.entries) > BACKLOG + 1:
        return None
    return [event for event in parse_entries(stream.entries) if event.position > position(since)]
