"""Metrics under the names of grid-cli, for who has no Prometheus."""

from __future__ import annotations

from fastapi import Response

from coordinator.server import http
from coordinator.server.http import json_response
from coordinator.telemetry import grid
from threads_protocol.answers import telemetry as answers

routes = http.router(tag="cluster")


@routes.get("/metrics", **http.describe_response(answers.Metrics))
def grid_metrics(cluster: http.ClusterDep) -> Response:
    """Counts and durations of jobs, and scores of hosts, under the names of grid-cli; `cluster metrics` prints them.

    All figures of the cluster are scraped by Prometheus, at METRICS_PORT.
    """
    return json_response({"metrics": grid.rows(cluster.queries)})
