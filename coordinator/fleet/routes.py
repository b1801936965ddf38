"""The fleet at one moment and over the last hour."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict
from starlette.concurrency import run_in_threadpool

from coordinator import bodies, http
from coordinator.http import shown
from coordinator.jobs import schemas
from coordinator.telemetry import history, spans
from jobs import errors

routes = http.router()

_NAMES = (
    f"Comma-separated, at most {history.MAX_NAMES}; * stands for anything, at most {history.MAX_STARS} times in a name."
)


class Drain(BaseModel):
    """Whether a worker finishes what it has and takes nothing new."""

    model_config = ConfigDict(extra="forbid", strict=True)
    on: bool = True


@routes.get("/status", tags=["cluster"], **http.answers(schemas.Status))
def status(cluster: http.The) -> Response:
    """Workers, queues and jobs in numbers."""
    return shown(cluster.views.status())


@routes.get("/nodes", tags=["cluster"], **http.answers(schemas.Nodes))
def nodes(cluster: http.The) -> Response:
    """Workers that live, and those lost within the hour."""
    return shown({"nodes": cluster.views.nodes()})


@routes.post(
    "/nodes/{node_id}/drain", tags=["cluster"], openapi_extra=http.describes(Drain), **http.answers(schemas.Drained)
)
async def drain(
    request: Request, node_id: Annotated[str, Path(pattern=r"^[A-Za-z0-9._-]{1,64}$")], cluster: http.The
) -> Response:
    """A drained worker ends its leases and takes nothing new; {"on": false} lets it work again."""
    asked = http.parsed(Drain, await bodies.body(request, empty={}))
    if not await run_in_threadpool(cluster.book.drain, node_id, asked.on):
        raise errors.NotFound(f"no worker {node_id}; list them with GET /api/nodes", field="node_id")
    return shown({"id": node_id, "draining": asked.on})


@routes.get("/job-types", tags=["cluster"], **http.answers(schemas.Kinds))
def job_types(cluster: http.The) -> Response:
    """Every kind: summary, JSON Schema of its parameters, an example."""
    return shown({"kinds": cluster.kinds()})


@routes.get("/snapshot", tags=["cluster"], **http.answers(schemas.Snapshot))
def snapshot(cluster: http.The) -> Response:
    """The fleet at one moment and the stream's position from which /api/events goes on without a gap."""
    return shown({"stream": cluster.hub.last, **cluster.views.snapshot()})


@routes.get("/history", tags=["cluster"], **http.answers(schemas.History))
def read_history(
    cluster: http.The,
    names: Annotated[str, Query(max_length=2000, description=_NAMES)] = "*",
    seconds: Annotated[int, Query(ge=1, le=history.MAX_SECONDS)] = 600,
    points: Annotated[int, Query(ge=1, le=history.MAX_POINTS)] = 300,
) -> Response:
    """Figures of the last hour, sampled each second, in at most so many bins (one more at the edge), the same on any
    replica.

    Names: units.KIND (committed units/s), jobs.STATE, queue.QUEUE, wait.oldest (s), workers.live, lanes.total,
    lanes.busy, redis.memory (bytes), node.ID.cpu (0..1), .memory, .memory_total (bytes), .receive, .send (bytes/s),
    .busy_lanes, gpu.UUID.utilization, .sm_active (0..1), .memory, .memory_total (bytes), .temperature (Celsius),
    .power (W), .clock (Hz).
    """
    wanted = history.patterns(names)
    now, blocks = history.read(cluster.book, seconds)
    return shown(history.binned(now, blocks, wanted, seconds, points))


@routes.get("/stream", tags=["cluster"], **http.answers(schemas.Stream))
def read_stream(
    cluster: http.The,
    seconds: Annotated[int, Query(ge=1, le=spans.MAX_SECONDS)] = 600,
    most: Annotated[
        int, Query(alias="spans", ge=100, le=spans.MAX_SPANS, description="More than these are joined.")
    ] = 5000,
) -> Response:
    """Which lane computed which job from when to when, in the last hour and up to now."""
    return shown(spans.read(cluster.views, seconds, most))
