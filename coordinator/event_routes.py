"""Server-sent events: of one job, and of the fleet."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import Header, Query
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from coordinator import edge, pulse
from coordinator.cluster import Cluster
from coordinator.events import Event, after, merged
from jobs.models import TERMINAL

routes = edge.router()

_STREAMED: dict[int | str, dict[str, Any]] = {
    200: {"description": "Server-sent events", "content": {"text/event-stream": {"schema": {"type": "string"}}}}
}
_RESYNC = "event: resync\ndata: {}\n\n"
_SSE = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
LastId = Annotated[str | None, Header(alias="Last-Event-ID", pattern=r"^\d{1,20}-\d{1,20}$")]


def _frame(event: Event) -> str:
    place = f"id: {event.id}\n" if event.id else ""
    return f"{place}event: {event.fields.get('type', 'message')}\ndata: {json.dumps(event.data())}\n\n"


@routes.get("/jobs/{job_id}/events", tags=["events"], response_class=StreamingResponse, responses=_STREAMED)
async def job_events(job_id: edge.JobId, cluster: edge.The, last_event_id: LastId = None) -> StreamingResponse:
    """Server-sent events of one job: its state (or what came after Last-Event-ID), then what happens, to its end."""
    await run_in_threadpool(cluster.views.job, job_id)
    return StreamingResponse(_job_frames(cluster, job_id, last_event_id), media_type="text/event-stream", headers=_SSE)


async def _job_frames(cluster: Cluster, job_id: str, since: str | None) -> AsyncIterator[str]:
    yield "retry: 2000\n\n"
    with cluster.hub.subscribe(lambda event: event.job == job_id) as subscription:
        at = cluster.hub.last
        for event in await run_in_threadpool(cluster.hub.history, job_id, since) if since else []:
            at = event.id
            yield _frame(event)
        job = await run_in_threadpool(cluster.views.job, job_id)
        fields = {"job": job_id, "kind": job["type"], "type": job["state"], "state": job["state"],
                  "done": str(job["done"]), "total": str(job["total"])}  # fmt: skip
        present = Event(id=at, fields={**fields, **({"error": job["error"]} if job["error"] else {})})
        yield _frame(present)
        if job["state"] in TERMINAL:
            return
        async for found in merged(subscription, at):
            if found and not found.ends and int(found.fields["done"]) < int(job["done"]):
                continue  # the job was read after this happened
            yield _frame(found) if found else ": ping\n\n"
            if found and found.ends:
                return


@routes.get("/events", tags=["events"], response_class=StreamingResponse, responses=_STREAMED)
async def fleet_events(
    cluster: edge.The,
    topics: Annotated[str, Query(pattern=r"^[a-z0-9:,_-]{0,1000}$")] = "jobs,workers",
    last_event_id: LastId = None,
) -> StreamingResponse:
    """Server-sent events of the fleet. Topics: jobs, workers, job:ID, nodes, queues, alerts.

    `jobs` and `workers` tell what happened, with an id from which Last-Event-ID resumes on any replica; `resync` says:
    take a new snapshot. `nodes`, `queues` and `alerts` (events `node`, `queue`, `alert`) tell how things are: rows as
    in the snapshot, all of them at first, then those that changed, once a second, without an id; `gone` says that one
    is no longer listed.
    """
    wanted = set(topics.split(","))
    return StreamingResponse(
        _fleet_frames(cluster, wanted, last_event_id), media_type="text/event-stream", headers=_SSE
    )


async def _fleet_frames(cluster: Cluster, wanted: set[str], since: str | None) -> AsyncIterator[str]:
    def matches(event: Event) -> bool:
        topic = event.topic or ("jobs" if event.job else "workers")
        return topic in wanted or f"job:{event.job}" in wanted

    topics = frozenset(wanted & pulse.TOPICS.keys())
    yield "retry: 2000\n\n"
    with cluster.hub.subscribe(matches, topics) as subscription:
        at = cluster.hub.last
        if since and after(at, since):
            missed = await run_in_threadpool(cluster.hub.fleet_history, since)
            if missed is None:
                yield _RESYNC
            for event in filter(matches, missed or []):
                at = event.id
                yield _frame(event)
        for row in pulse.changes({}, await run_in_threadpool(pulse.read, cluster.views, topics)):
            yield _frame(row)
        async for found in merged(subscription, at):
            yield _frame(found) if found else ": ping\n\n"
        yield _RESYNC
