"""The fleet over the last hour: figures, and spans of work."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response

from coordinator import http
from coordinator.http import shown
from coordinator.telemetry import history, schemas, spans

routes = http.router()

_NAMES = (
    f"Comma-separated, at most {history.MAX_NAMES}; * stands for anything, at most {history.MAX_STARS} times in a name."
)


@routes.get("/history", tags=["cluster"], **http.answers(schemas.History))
def read_history(
    cluster: http.ClusterDep,
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
    now, blocks = history.read(cluster.store, seconds)
    return shown(history.binned(now, blocks, wanted, seconds, points))


@routes.get("/stream", tags=["cluster"], **http.answers(schemas.Stream))
def read_stream(
    cluster: http.ClusterDep,
    seconds: Annotated[int, Query(ge=1, le=spans.MAX_SECONDS)] = 600,
    most: Annotated[
        int, Query(alias="spans", ge=100, le=spans.MAX_SPANS, description="More than these are joined.")
    ] = 5000,
) -> Response:
    """Which lane computed which job from when to when, in the last hour and up to now."""
    return shown(spans.read(cluster.queries.store, seconds, most))
