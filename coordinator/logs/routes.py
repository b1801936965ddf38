"""Routes for logs of units, by byte range and live."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from coordinator.artifacts import threads
from coordinator.events import frames as event_frames
from coordinator.events.routes import LastId
from coordinator.logs import frames, queries
from coordinator.logs.live import MOST_FOLLOWERS, Live
from coordinator.logs.texts import Stream
from coordinator.server import http
from coordinator.server.http import json_response
from coordinator.state import shared_state
from jobs import errors
from jobs.models import MAX_UNITS
from jobs.store.work.live_output import MOST_FOLLOWED
from threads_protocol.answers import logs as answers
from threads_protocol.answers.jobs import UnitStateName

routes = http.router(tag="logs")

#: Maximum size of a response in bytes.
MOST_BYTES = 4 << 20
Unit = Annotated[int, Path(ge=0, le=MAX_UNITS, description="Unit number, starting with 0.")]
_TEXT: dict[str, Any] = {"text/plain": {"schema": {"type": "string", "format": "binary"}}}
_LOG: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Output bytes as the program wrote them",
        "content": _TEXT,
        "headers": {"X-Log-Bytes": {"description": "Size of the whole stream in bytes", "schema": {"type": "integer"}}},
    }
}
_STREAMED: dict[int | str, dict[str, Any]] = {
    200: {"description": "Server-sent events", "content": {"text/event-stream": {"schema": {"type": "string"}}}},
    204: {"description": "The unit has ended, so no output follows Last-Event-ID"},
}
_HEADERS = {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}
_SSE = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


@routes.get("/jobs/{job_id}/logs", **http.describe_response(answers.LogExcerpts))
async def search_logs(
    request: Request,
    job_id: http.JobId,
    cluster: http.ClusterDep,
    search: Annotated[str, Query(max_length=200, description="Text that the lines contain, ignoring case.")] = "",
    stream: Annotated[Stream, Query(description="Both streams in order, or only one of them.")] = "all",
    state: Annotated[UnitStateName | None, Query(description="State of the units.")] = None,
    first: Annotated[int, Query(alias="from", ge=0, le=MAX_UNITS, description="First unit.")] = 0,
    lines: Annotated[int, Query(ge=1, le=1000, description="Maximum number of lines per unit.")] = 20,
) -> Response:
    """Search the stored logs of all units, or read the last lines of each log.

    A response covers up to 200 units. To continue, repeat the request with `from` set to `next`.
    """
    texts = shared_state(request).texts
    return json_response(
        await threads.run(lambda: queries.search(cluster, texts, job_id, first, state, stream, search, lines))
    )


@routes.get("/jobs/{job_id}/logs/{unit}", response_class=Response, responses=_LOG)
async def get_log(
    request: Request,
    job_id: http.JobId,
    unit: Unit,
    cluster: http.ClusterDep,
    stream: Annotated[Stream, Query(description="Both streams in order, or only one of them.")] = "all",
    start: Annotated[int, Query(alias="from", ge=0, le=MAX_UNITS, description="Offset of the first byte.")] = 0,
    limit: Annotated[int, Query(ge=1, le=MOST_BYTES, description="Maximum bytes; the response may be shorter.")] = 1
    << 20,
) -> Response:
    """Return the stdout and stderr of a unit's last finished attempt. If there is no log, the 404 contains the reason.

    If a log exceeds 9 MiB, only its first 1 MiB and its last 8 MiB are kept.
    """
    outputs, texts = cluster.store.outputs, shared_state(request).texts
    data, size = await threads.run(lambda: queries.log(outputs, texts, job_id, unit, stream, start, limit))
    headers = {"X-Log-Bytes": str(size), **_HEADERS}
    return Response(data, 200, headers, "text/plain; charset=utf-8")


@routes.get("/jobs/{job_id}/logs/{unit}/follow", response_class=StreamingResponse, responses=_STREAMED)
async def follow_log(
    request: Request,
    job_id: http.JobId,
    unit: Unit,
    cluster: http.ClusterDep,
    principal: http.PrincipalDep,
    last_event_id: LastId = None,
) -> Response:
    """Stream a unit's output as server-sent events: `output`, `dropped` (a number of bytes) and finally `end`.

    Each `output` contains the offset of its first byte. When the unit has ended, you can read dropped bytes from its
    log. Lines are dropped if a program writes more than 64 KiB/s for more than four seconds.
    """
    live: Live = shared_state(request).live
    found = await run_in_threadpool(queries.unit, cluster.store.outputs, job_id, unit)
    if found.ended and last_event_id:
        return Response(status_code=204)
    if len(live) >= MOST_FOLLOWERS:
        raise errors.OverLimit(
            f"{MOST_FOLLOWERS} clients are following logs at this replica, the maximum; try again", field="unit"
        )
    ask = live.store.live_output.follow
    until = 0 if found.ended else await run_in_threadpool(ask, job_id, unit, found.tenant)
    if not found.ended and not until:
        detail = f"{MOST_FOLLOWED} units are being followed, the maximum; read the log when this unit has ended"
        raise errors.OverLimit(detail, field="unit", seconds=15)
    stream = frames.unit_frames(live, job_id, unit, found.tenant, until, last_event_id)
    if principal.token:
        stream = event_frames.while_valid(stream, lambda: cluster.credentials.is_valid(principal))
    return StreamingResponse(event_frames.until_outage(stream), media_type="text/event-stream", headers=_SSE)
