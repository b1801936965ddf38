"""The fleet and the newest jobs at one moment, from which a stream of events goes on."""

from __future__ import annotations

from coordinator.fleet import serializers
from coordinator.queries import Queries
from threads_protocol.answers import events as answers

#: Jobs in a snapshot.
_NEWEST = 100


def snapshot(queries: Queries, stream: str, time: float, tenant: str | None) -> answers.Snapshot:
    """Return the fleet and the newest jobs of one tenant, or of all, each read once.

    `stream` is the place of the last event read before, `time` Redis' in seconds since 1970.
    """
    workers, queues = queries.fleet.workers(), queries.fleet.queues()
    page = queries.jobs.page(None, None, None, _NEWEST, tenant)
    return {
        "stream": stream,
        "time": time,
        "status": queries.fleet.status(workers, queues),
        "queues": queues,
        "workers": workers,
        "gpus": serializers.serialize_gpus(workers),
        "alerts": queries.telemetry.alerts(),
        "jobs": page["jobs"],
        "cursor": page["cursor"],
    }
