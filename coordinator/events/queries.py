"""Snapshot of the fleet and the newest jobs, from which an event stream continues."""

from __future__ import annotations

from coordinator.fleet import serializers
from coordinator.jobs.index import Filter
from coordinator.queries import Queries
from threads_protocol.answers import events as answers

#: Number of jobs in a snapshot.
_NEWEST = 100


def snapshot(queries: Queries, stream: str, time: float, tenant: str | None) -> answers.Snapshot:
    """Return a snapshot of the fleet and the newest jobs. If `tenant` is not None, include only its jobs.

    `stream` is the ID of the last event before the snapshot. `time` is Redis time in seconds since 1970.
    """
    workers, queues = queries.fleet.workers(), queries.fleet.queues()
    page = queries.jobs.page(Filter(visible_to=tenant), None, _NEWEST)
    return {
        "stream": stream,
        "time": time,
        "status": queries.fleet.status(workers, queues, tenant=tenant),
        "queues": queues,
        "workers": workers,
        "gpus": serializers.serialize_gpus(workers),
        "alerts": queries.telemetry.alerts(),
        "jobs": page["jobs"],
        "cursor": page["cursor"],
    }
