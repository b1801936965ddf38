"""Figures of a host from what its workers say, and which of them speaks for it. Pure: rows of workers in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import Any

from coordinator.fleet.serializers import by_name
from threads_protocol.answers import fleet as answers

#: Weights of a score: load of 1 a core counts as much as a third of a GPU in use.
CPU_WEIGHT, GPU_WEIGHT = 1.0, 3.0


def speakers(workers: Iterable[answers.Worker], fields: tuple[str, ...]) -> dict[tuple[str, ...], Mapping[str, Any]]:
    """Return the live worker that was heard of last by the values of these fields, such as host and network.

    The last, so that a counter of the host never falls when workers come and go.
    """
    live = [worker for worker in workers if worker["live"]]
    oldest_first = sorted(live, key=lambda worker: (-worker["seen_seconds_ago"], worker["id"]))
    return {tuple(str(row.get(field) or "") for field in fields): row for row in map(by_name, oldest_first)}


def by_host(workers: Iterable[answers.Worker]) -> dict[str, list[answers.Worker]]:
    """Return the workers of each host; one that names none is left out."""
    found: dict[str, list[answers.Worker]] = defaultdict(list)
    for worker in workers:
        if worker["host"]:
            found[worker["host"]].append(worker)
    return found


def _latest(live: Sequence[answers.Worker], field: str) -> Any:
    """Return a figure as the worker says it that was heard of last of those that do; None where none does."""
    known = [by_name(row) for row in live if field in row]
    return min(known, key=lambda row: (row["seen_seconds_ago"], row["id"]))[field] if known else None


def load1(live: Sequence[answers.Worker]) -> float | None:
    """Return the load of a host over the last minute."""
    found = _latest(live, "load1")
    return None if found is None else float(found)


def clock_offset(live: Sequence[answers.Worker]) -> float | None:
    """Return by how many seconds a host's clock is ahead of Redis': the median of what its workers' beats show."""
    known = [row["clock_offset_seconds"] for row in live if "clock_offset_seconds" in row]
    return round(median(known), 3) if known else None


def disks(live: Sequence[answers.Worker]) -> list[answers.Disk]:
    """Return the disks of a host, each once with all that it is used for."""
    found: dict[str, answers.Disk] = {}
    for row in sorted(live, key=lambda row: -row["seen_seconds_ago"]):
        for disk in row.get("disks", []):
            before = found[disk["disk"]]["places"] if disk["disk"] in found else []
            found[disk["disk"]] = {**disk, "places": sorted({*before, *disk["places"]})}
    return [found[number] for number in sorted(found)]


def score(live: Sequence[answers.Worker]) -> float | None:
    """Return how busy a host is: 100 for a load of 1 a core, and 3 a percent of GPU in use; None: not known."""
    load, cpus = load1(live), _latest(live, "cpus")
    if load is None or not cpus:
        return None
    used = {gpu["uuid"]: gpu.get("utilization_ratio") for row in live for gpu in row.get("gpus", [])}
    known = [ratio for ratio in used.values() if ratio is not None]
    used_percent = 100 * fmean(known) if known else 0.0
    return round(CPU_WEIGHT * 100 * load / int(cpus) + GPU_WEIGHT * used_percent, 1)
