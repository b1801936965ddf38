"""The fleet at one moment, and server-sent events: of one job, and of the fleet."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import Header, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import AfterValidator
from pydantic_core import PydanticCustomError
from starlette.concurrency import run_in_threadpool

from coordinator import http
from coordinator.cluster import Cluster
from coordinator.events import live_rows, queries, schemas
from coordinator.events.hub import START, Event, Position, Subscription, position
from coordinator.http import shown
from jobs import errors
from jobs.models import TERMINAL
from jobs.store import leases

log = logging.getLogger(__name__)

routes = http.router()

_STREAMED: dict[int | str, dict[str, Any]] = {
    200: {"description": "Server-sent events", "content": {"text/event-stream": {"schema": {"type": "string"}}}}
}
_ENDED: dict[int | str, dict[str, Any]] = {204: {"description": "Nothing comes after Last-Event-ID: the job has ended"}}
_RETRY, _RESYNC = b"retry: 2000\n\n", b"event: resync\ndata: {}\n\n"
_SSE = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


def _a_place(text: str) -> str:
    if max(position(text)) >= 2**64:
        raise PydanticCustomError("place", "must be two numbers below 2^64, as the id of an event")
    return text


LastId = Annotated[
    str | None,
    Header(alias="Last-Event-ID", pattern=r"^[0-9]{1,20}-[0-9]{1,20}$"),
    AfterValidator(lambda text: text and _a_place(text)),
]


@routes.get(
    "/jobs/{job_id}/events", tags=["events"], response_class=StreamingResponse, responses={**_STREAMED, **_ENDED}
)
async def job_events(job_id: http.JobId, cluster: http.ClusterDep, last_event_id: LastId = None) -> Response:
    """Server-sent events of one job: its state (or what came after Last-Event-ID), then what happens, to its end.

    204 when it has ended and nothing came after Last-Event-ID.
    """
    job = await run_in_threadpool(cluster.queries.jobs.job, job_id)
    since = last_event_id if job["state"] in TERMINAL else None
    if since and await run_in_threadpool(cluster.hub.history, job_id, since) == []:
        return Response(status_code=204)
    return _streamed(_job_frames(cluster, job_id, last_event_id))


def _streamed(frames: AsyncGenerator[bytes, None]) -> StreamingResponse:
    return StreamingResponse(_up_to_an_outage(frames), media_type="text/event-stream", headers=_SSE)


async def _up_to_an_outage(frames: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
    """Frames until Redis cannot be asked: an answer that has begun cannot become a 503. Its listener comes again."""
    async with aclosing(frames):
        try:
            async for frame in frames:
                yield frame
        except leases.Unreachable as error:
            log.warning("a stream of events ends: %s", error)


async def _job_frames(cluster: Cluster, job_id: str, since: str | None) -> AsyncGenerator[bytes, None]:
    with cluster.hub.subscribe(frozenset({f"job:{job_id}"})) as subscription:
        yield _RETRY
        missed = await run_in_threadpool(cluster.hub.history, job_id, since) if since else None
        try:
            told = [await run_in_threadpool(_present, cluster, job_id)] if missed is None else missed
        except errors.NotFound:  # deleted meanwhile
            return
        for event in told:
            yield event.frame
        if told and told[-1].ends:
            return
        at = told[-1].position if told else position(since or "")
        async for frame in _live(subscription, at, int(told[-1].fields["done"]) if told else 0):
            yield frame


def _present(cluster: Cluster, job_id: str) -> Event:
    """What a job is now, as an event at the place up to which that says all."""
    at = cluster.hub.tail()
    job = cluster.queries.jobs.job(job_id)
    fields = {"job": job_id, "kind": job["type"], "type": job["state"], "state": job["state"],
              "done": str(job["done"]), "total": str(job["total"])}  # fmt: skip
    return Event(id=at, fields={**fields, **({"error": job["error"]} if job["error"] else {})})


async def _live(subscription: Subscription, at: Position, done: int) -> AsyncIterator[bytes]:
    """Frames of one job after a place, to its end; without those that happened before `done` units were."""
    while chunk := await subscription.next():
        if not chunk.events:
            yield chunk.after(at)
        for event in chunk.events:
            if event.position > at and (event.ends or int(event.fields.get("done", done)) >= done):
                yield event.frame
                if event.ends:
                    return


@routes.get("/snapshot", tags=["cluster"], **http.answers(schemas.Snapshot))
def snapshot(cluster: http.ClusterDep) -> Response:
    """The fleet at one moment and the stream's position from which /api/events goes on without a gap."""
    return shown({"stream": cluster.hub.last, **queries.snapshot(cluster.queries)})


@routes.get("/events", tags=["events"], response_class=StreamingResponse, responses=_STREAMED)
async def fleet_events(
    cluster: http.ClusterDep,
    topics: Annotated[str, Query(pattern=r"^[a-z0-9:,_-]{0,1000}$")] = "jobs,workers",
    last_event_id: LastId = None,
) -> StreamingResponse:
    """Server-sent events of the fleet. Topics: jobs, workers, job:ID, nodes, queues, alerts.

    `jobs` and `workers` tell what happened, in the order of their ids, with an id from which Last-Event-ID resumes on
    any replica; `resync` says: take a new snapshot. `nodes`, `queues` and `alerts` (events `node`, `queue`, `alert`)
    tell how things are: rows as in the snapshot, all of them at first, then those that changed, once a second, without
    an id; `gone` says that one is no longer listed.
    """
    wanted = frozenset(topics.split(","))
    return _streamed(_fleet_frames(cluster, wanted, last_event_id))


async def _fleet_frames(cluster: Cluster, wanted: frozenset[str], since: str | None) -> AsyncGenerator[bytes, None]:
    with cluster.hub.subscribe(wanted) as subscription:
        yield _RETRY
        at = START
        if since:
            missed = await run_in_threadpool(cluster.hub.fleet_history, since)
            if missed is None:
                yield _RESYNC
            else:
                at = missed[-1].position if missed else position(since)
            if heard := [event.frame for event in missed or () if wanted.intersection(event.topics)]:
                yield b"".join(heard)
        rows = live_rows.changes(
            {}, await run_in_threadpool(live_rows.read, cluster.queries, wanted & live_rows.TOPICS.keys())
        )
        if known := b"".join(row.frame for row in rows):
            yield known
        while chunk := await subscription.next():
            if data := chunk.after(at):
                yield data
        yield _RESYNC
