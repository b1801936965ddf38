"""The fleet and the newest jobs at one moment, from which a stream of events goes on."""

from __future__ import annotations

from typing import Any

from coordinator.fleet import rows
from coordinator.queries import Queries

#: Jobs in a snapshot.
_NEWEST = 100


def snapshot(queries: Queries) -> dict[str, Any]:
    """Return the fleet and the newest jobs, each read once."""
    workers, queues = queries.fleet.workers(), queries.fleet.queues()
    return {
        "status": queries.fleet.status(workers, queues), "queues": queues, "workers": workers,
        "nodes": workers,  # their name one version ago
        "gpus": rows.gpus(workers), "alerts": queries.telemetry.alerts(),
        **queries.jobs.page(None, None, None, _NEWEST),
    }  # fmt: skip
