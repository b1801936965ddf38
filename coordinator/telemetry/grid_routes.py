"""Route for metrics under the names of grid-cli, for users without Prometheus."""

from __future__ import annotations

from fastapi import Response

from coordinator.server import http
from coordinator.server.http import json_response
from coordinator.telemetry import grid
from threads_protocol.answers import telemetry as answers

routes = http.router(tag="cluster")


@routes.get("/metrics", **http.describe_response(answers.Metrics))
def get_grid_metrics(cluster: http.ClusterDep) -> Response:
    """Return job counts, job durations and host scores under the names of grid-cli. `cluster metrics` prints them.

    Prometheus can scrape these and all other metrics at METRICS_PORT.
    """
    return json_response({"metrics": grid.rows(cluster.queries)})
