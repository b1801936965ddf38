"""Choice of the worker that speaks for a host. Pure: rows of workers in, rows of workers out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from coordinator.fleet.rows import WorkerRow, by_name


def speakers(workers: Iterable[WorkerRow], fields: tuple[str, ...]) -> dict[tuple[str, ...], Mapping[str, Any]]:
    """Return the live worker that was heard of last by the values of these fields, such as host and network.

    The last, so that a counter of the host never falls when workers come and go.
    """
    live = [worker for worker in workers if worker["live"]]
    oldest_first = sorted(live, key=lambda worker: (-worker["seen_seconds_ago"], worker["id"]))
    return {tuple(str(row.get(field) or "") for field in fields): row for row in map(by_name, oldest_first)}
