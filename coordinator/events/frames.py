"""Streams of server-sent events. A stream starts with missed events or the current state, followed by new events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing

from starlette.concurrency import run_in_threadpool

from coordinator.cluster import Cluster
from coordinator.events import history, live_records
from coordinator.events.event import START, Event, Position, position
from coordinator.events.subscription import Subscription
from jobs import errors
from jobs.store.server.connection import Unreachable

log = logging.getLogger(__name__)

#: Minimum interval in seconds between two checks that a listener's token or session is still valid.
RECHECK_SECONDS = 2.0

_RETRY, _RESYNC = b"retry: 2000\n\n", b"event: resync\ndata: {}\n\n"


async def until_outage(frames: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
    """Yield frames until Redis is unreachable. Clients reconnect to receive the error as a 503."""
    async with aclosing(frames):
        try:
            async for frame in frames:
                yield frame
        except Unreachable as error:
            log.warning("event stream stopped: %s", error)


async def while_valid(
    frames: AsyncGenerator[bytes, None], is_valid: Callable[[], Awaitable[bool]]
) -> AsyncGenerator[bytes, None]:
    """Yield frames while the listener's token or session is valid.

    Pings guarantee a check at least every PING_SECONDS.
    """
    loop = asyncio.get_running_loop()
    checked = loop.time()
    async with aclosing(frames):
        async for frame in frames:
            if loop.time() - checked >= RECHECK_SECONDS:
                if not await is_valid():
                    return
                checked = loop.time()
            yield frame


async def job_frames(cluster: Cluster, job_id: str, since: str | None) -> AsyncGenerator[bytes, None]:
    """Yield a job's state, or its events after `since`, and then new events until the job ends."""
    with cluster.hub.subscribe(frozenset({f"job:{job_id}"})) as subscription:
        yield _RETRY
        missed = await run_in_threadpool(history.job_events, cluster.hub.events, job_id, since) if since else None
        try:
            first = [await run_in_threadpool(_current_state, cluster, job_id)] if missed is None else missed
        except errors.NotFound:  # the job was deleted
            return
        for event in first:
            yield event.frame
        if first and first[-1].ends:
            return
        place = first[-1].position if first else position(since or "")
        async for frame in _live(subscription, place, int(first[-1].fields["done"]) if first else 0):
            yield frame


def _current_state(cluster: Cluster, job_id: str) -> Event:
    """Return the state of a job as an event. The state includes all events up to the ID of this event."""
    place = cluster.hub.events.newest()
    job = cluster.queries.jobs.job(job_id)
    fields = {
        "job": job_id,
        "kind": job["type"],
        "type": job["state"],
        "state": job["state"],
        "done": str(job["done"]),
        "total": str(job["total"]),
        "present": "true",
    }
    return Event(id=place, fields={**fields, **({"error": job["error"]} if job["error"] else {})})


async def _live(subscription: Subscription, place: Position, done: int) -> AsyncIterator[bytes]:
    """Yield a job's events after a position as frames, until the job ends.

    Events with fewer than `done` committed units are skipped.
    """
    while chunk := await subscription.next():
        if not chunk.events:
            yield chunk.after(place)
        for event in chunk.events:
            if event.position > place and (event.ends or int(event.fields.get("done", done)) >= done):
                yield event.frame
                if event.ends:
                    return


async def fleet_frames(cluster: Cluster, topics: frozenset[str], since: str | None) -> AsyncGenerator[bytes, None]:
    """Yield the events after `since` and all live records, and then new events and changed records."""
    with cluster.hub.subscribe(topics) as subscription:
        yield _RETRY
        place = START
        if since:
            missed = await run_in_threadpool(history.fleet_events, cluster.hub.events, since)
            if missed is None:
                yield _RESYNC
            else:
                place = missed[-1].position if missed else position(since)
            if heard := [event.frame for event in missed or () if topics.intersection(event.topics)]:
                yield b"".join(heard)
        rows = await run_in_threadpool(live_records.read, cluster.queries, topics & live_records.TOPICS.keys())
        if known := b"".join(row.frame for row in live_records.changes({}, rows)):
            yield known
        while chunk := await subscription.next():
            if data := chunk.after(place):
                yield data
        yield _RESYNC
