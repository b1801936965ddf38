"""Rows of hosts, made from those of their workers. Pure; `schemas.py` describes the same rows to clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from coordinator.fleet.rows import WorkerRow


class HostRow(TypedDict):
    host: str
    live: bool
    workers: list[str]
    lanes: int
    busy_lanes: int
    draining: bool
    seen_seconds_ago: float
    cpus: int | None
    cpu_ratio: float | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    gpus: list[str]
    labels: list[str]


def host_row(name: str, workers: Sequence[WorkerRow]) -> HostRow:
    """Return the row of a host from those of its workers, of which there is at least one."""
    latest_first = sorted(workers, key=lambda row: (not row["live"], row["seen_seconds_ago"], row["id"]))
    live = [row for row in latest_first if row["live"]]
    latest = latest_first[0]
    return {
        "host": name, "live": bool(live), "workers": [row["id"] for row in latest_first],
        "lanes": sum(row["lanes"] for row in live), "busy_lanes": sum(row["busy_lanes"] for row in live),
        "draining": bool(live) and all(row["draining"] for row in live), "seen_seconds_ago": latest["seen_seconds_ago"],
        "cpus": latest.get("cpus"), "cpu_ratio": latest["cpu_ratio"] if live else None,
        "memory_used_bytes": latest.get("memory_used_bytes") if live else None,
        "memory_total_bytes": latest.get("memory_total_bytes"), "gpus": _gpus(live), "labels": _labels(live),
    }  # fmt: skip


def _gpus(workers: Sequence[WorkerRow]) -> list[str]:
    """Return the models of the GPUs, each GPU once whoever reports it, by its place."""
    seen = {gpu["uuid"]: gpu for row in workers for gpu in row.get("gpus", [])}
    by_place = sorted(seen.values(), key=lambda gpu: (gpu.get("index", 0), gpu["uuid"]))
    return [gpu.get("name", "GPU") for gpu in by_place]


def _labels(workers: Sequence[WorkerRow]) -> list[str]:
    return sorted({label for row in workers for label in (row["offer"]["labels"] if "offer" in row else [])})
