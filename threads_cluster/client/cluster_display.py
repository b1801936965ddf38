"""Display of a cluster in notebooks: its jobs, its load in the last ten minutes, and its workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from threads_cluster.client import display
from threads_cluster.client.records import Records
from threads_cluster.errors import ClientError
from threads_protocol.answers import telemetry

if TYPE_CHECKING:
    from threads_cluster.client.api import Cluster

#: Length in seconds of the displayed history, and its number of bins.
_HISTORY_SECONDS, _BINS = 600, 100


def describe(cluster: Cluster) -> str:
    """Return the HTML of a cluster's status, or of the error if the cluster does not respond."""
    try:
        status, workers = cluster.status(), cluster.workers()
        load = _load(cluster)
    except ClientError as error:
        return display.block(display.heading("Cluster", "unreachable", cluster.url), display.problem(str(error)))
    jobs = status["jobs"]
    return display.block(
        display.heading("Cluster", "ready" if status["workers"]["live"] else "without workers", cluster.url),
        display.note(
            f"version {status['version']}",
            f"{status['lanes']:,} lanes",
            *(f"{jobs[name]:,} {name}" for name in ("running", "queued", "failed") if jobs.get(name)),
        ),
        load,
        Records(workers).to_html(),
    )


def _load(cluster: Cluster) -> str:
    """Return a chart of the busy lanes in the last ten minutes."""
    query = {"names": "lanes.busy", "seconds": _HISTORY_SECONDS, "points": _BINS}
    history = cluster.connection.ask("GET", "/api/history", telemetry.History, patience=cluster.patience, **query)
    busy = [value or 0.0 for value in history["series"].get("lanes.busy", {"mean": ()})["mean"]]
    if not any(busy):
        return ""
    return f"<div>{display.sparkline(busy)} {display.text(f'up to {max(busy):.3g} busy lanes in ten minutes')}</div>"
