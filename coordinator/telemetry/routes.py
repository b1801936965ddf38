"""Routes for the history of the last hour, and for spans of work."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Annotated

from fastapi import Query, Response

from coordinator.server import http
from coordinator.server.http import json_response
from coordinator.telemetry import history, spans
from jobs.hosts import measurements
from jobs.hosts.measurements import Measurement
from threads_protocol.answers import telemetry as answers

routes = http.router(tag="cluster")

_NAMES = (
    f"Comma-separated names, at most {history.MAX_NAMES}. * matches any characters, at most {history.MAX_STARS} times"
    " in a name."
)


def _parts(table: Iterable[Measurement]) -> str:
    """Return the suffixes of these metrics' names, with their units."""
    kept = [figure for figure in table if figure.history]
    return ", ".join(f".{figure.history} ({figure.unit}{'/s' * figure.counts})" for figure in kept)


FIGURES = f"""Return the history of the last hour in at most `points` + 1 bins, the same on every replica.
It is sampled every second.

Names: units.KIND (committed units/s), jobs.STATE, queue.QUEUE, wait.oldest (s), workers.live, lanes.total, lanes.busy,
redis.memory (bytes), worker.ID.busy_lanes; after host.HOST: {_parts(measurements.HOST)};
after gpu.UUID: {_parts(measurements.GPU)}."""


@routes.get("/history", description=FIGURES, **http.describe_response(answers.History))
def get_history(
    cluster: http.ClusterDep,
    names: Annotated[str, Query(max_length=2000, description=_NAMES)] = "*",
    seconds: Annotated[int, Query(ge=1, le=history.MAX_SECONDS)] = 600,
    points: Annotated[int, Query(ge=1, le=history.MAX_POINTS)] = 300,
) -> Response:
    wanted = history.patterns(names)
    now, blocks = history.read(cluster.store, seconds)
    return json_response(history.fill_bins(now, blocks, wanted, seconds, points))


@routes.get("/stream", **http.describe_response(answers.Spans))
def read_stream(
    cluster: http.ClusterDep,
    principal: http.PrincipalDep,
    seconds: Annotated[int, Query(ge=1, le=spans.MAX_SECONDS)] = 600,
    most: Annotated[
        int,
        Query(
            alias="spans",
            ge=100,
            le=spans.MAX_SPANS,
            description="Maximum number of spans. If there are more, spans are joined.",
        ),
    ] = 5000,
) -> Response:
    """Return spans of work: which lane computed which job, and when.

    For jobs of other tenants, only the times are returned, unless the token has the scope operate.
    """
    tenant = principal.only_tenant
    hidden = partial(cluster.queries.jobs.hidden, tenant=tenant) if tenant else None
    return json_response(spans.read(cluster.queries.store, seconds, most, hidden))
