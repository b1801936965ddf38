"""Routes for the snapshot of the fleet, and for server-sent events of a job and of the fleet."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Annotated, Any

from fastapi import Header, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import AfterValidator
from pydantic_core import PydanticCustomError
from starlette.concurrency import run_in_threadpool

from coordinator.access.principal import Principal
from coordinator.cluster import Cluster
from coordinator.events import event, frames, history, queries
from coordinator.events.event import position
from coordinator.server import http
from coordinator.server.http import json_response
from threads_protocol.answers import events as answers
from threads_protocol.states import TERMINAL

routes = http.router()

_STREAMED: dict[int | str, dict[str, Any]] = {
    200: {"description": "Server-sent events", "content": {"text/event-stream": {"schema": {"type": "string"}}}}
}
_ENDED: dict[int | str, dict[str, Any]] = {
    204: {"description": "The job has ended and has no events after Last-Event-ID"}
}
_SSE = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


def check_event_id(text: str) -> str:
    if max(position(text)) >= 2**64:
        raise PydanticCustomError("place", "must be an event ID, which consists of two numbers below 2^64")
    return text


LastId = Annotated[
    str | None,
    Header(alias="Last-Event-ID", pattern=r"^[0-9]{1,20}-[0-9]{1,20}$"),
    AfterValidator(lambda text: text and check_event_id(text)),
]


@routes.get(
    "/jobs/{job_id}/events", tags=["events"], response_class=StreamingResponse, responses={**_STREAMED, **_ENDED}
)
async def follow_job(
    job_id: http.JobId, cluster: http.ClusterDep, principal: http.PrincipalDep, last_event_id: LastId = None
) -> Response:
    """Stream the events of one job: its state, or the events after Last-Event-ID, and then new events until it ends.

    If the job has ended and has no events after Last-Event-ID, the response is a 204.
    """
    job = await run_in_threadpool(cluster.queries.jobs.job, job_id)
    since = last_event_id if job["state"] in TERMINAL else None
    if since and await run_in_threadpool(history.job_events, cluster.hub.events, job_id, since) == []:
        return Response(status_code=204)
    return _stream_response(frames.job_frames(cluster, job_id, last_event_id), cluster, principal)


def _stream_response(stream: AsyncGenerator[bytes, None], cluster: Cluster, principal: Principal) -> StreamingResponse:
    if principal.token:
        stream = frames.while_valid(stream, lambda: cluster.credentials.is_valid(principal))
    return StreamingResponse(frames.until_outage(stream), media_type="text/event-stream", headers=_SSE)


@routes.get("/snapshot", tags=["cluster"], **http.describe_response(answers.Snapshot))
def get_snapshot(cluster: http.ClusterDep, principal: http.PrincipalDep) -> Response:
    """Return the state of the fleet, and the stream position from which /api/events continues without a gap."""
    return json_response(
        queries.snapshot(cluster.queries, cluster.hub.last, cluster.store.clock.now(), principal.only_tenant)
    )


@routes.get("/events", tags=["events"], response_class=StreamingResponse, responses=_STREAMED)
async def follow_cluster(
    cluster: http.ClusterDep,
    principal: http.PrincipalDep,
    topics: Annotated[str, Query(pattern=r"^[a-z0-9:,_-]{0,1000}$")] = "jobs,workers",
    last_event_id: LastId = None,
) -> StreamingResponse:
    """Stream the events of the fleet. Topics: jobs, workers, job:ID, fleet, queues, alerts.

    `jobs` and `workers` send events in the order of their IDs. With Last-Event-ID, any replica can resume after that
    ID. After `resync`, request a new snapshot. `fleet`, `queues` and `alerts` send the records of the snapshot as
    events `fleet`, `queue` and `alert`: first all records, then once per second the changed ones. These events have no
    ID. The field `gone` marks a deleted record.
    """
    wanted = event.visible_topics(topics.split(","), principal.only_tenant)
    return _stream_response(frames.fleet_frames(cluster, wanted, last_event_id), cluster, principal)
