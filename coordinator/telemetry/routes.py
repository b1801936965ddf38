"""The fleet over the last hour: figures, and spans of work."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Annotated

from fastapi import Query, Response

from coordinator.server import http
from coordinator.server.http import json_response
from coordinator.telemetry import history, spans
from jobs.hosts import figures
from jobs.hosts.figures import Figure
from threads_protocol.answers import telemetry as answers

routes = http.router(tag="cluster")

_NAMES = (
    f"Comma-separated, at most {history.MAX_NAMES}; * stands for anything, at most {history.MAX_STARS} times in a name."
)


def _parts(table: Iterable[Figure]) -> str:
    """Last parts of the names of these figures, with their units."""
    kept = [figure for figure in table if figure.history]
    return ", ".join(f".{figure.history} ({figure.unit}{'/s' * figure.counts})" for figure in kept)


FIGURES = f"""Figures of the last hour, sampled each second, the same on any replica, in at most `points` + 1 bins.

Names: units.KIND (committed units/s), jobs.STATE, queue.QUEUE, wait.oldest (s), workers.live, lanes.total, lanes.busy,
redis.memory (bytes), worker.ID.busy_lanes; of a host.HOST: {_parts(figures.HOST)};
of a gpu.UUID: {_parts(figures.GPU)}."""


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
        int, Query(alias="spans", ge=100, le=spans.MAX_SPANS, description="More than these are joined.")
    ] = 5000,
) -> Response:
    """Spans of work: the lane that computed a job, from when to when, in the last hour and up to now.

    Of other tenants' jobs the time is shown and nothing else, unless the token has the scope operate.
    """
    tenant = principal.only_tenant
    hidden = partial(cluster.queries.jobs.hidden, tenant=tenant) if tenant else None
    return json_response(spans.read(cluster.queries.store, seconds, most, hidden))
