"""Find hosts and calculate their measurements from their workers' reports. No I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import Any

from coordinator.fleet.serializers import as_mapping
from jobs import errors
from jobs.models import Device
from threads_protocol.answers import fleet as answers

#: Weights of the CPU load and of the GPU use in a host's score.
CPU_WEIGHT, GPU_WEIGHT = 1.0, 3.0
#: Maximum number of hosts that an error message names.
_NAMED = 20


def latest_workers(
    workers: Iterable[answers.Worker], fields: tuple[str, ...]
) -> dict[tuple[str, ...], Mapping[str, Any]]:
    """Return the most recently seen live worker for each combination of values of the fields.

    The most recent reports are used so that a host's counters never decrease when workers start or stop.
    """
    live = [worker for worker in workers if worker["live"]]
    oldest_first = sorted(live, key=lambda worker: (-worker["seen_seconds_ago"], worker["id"]))
    return {tuple(str(row.get(field) or "") for field in fields): row for row in map(as_mapping, oldest_first)}


def by_host(workers: Iterable[answers.Worker]) -> dict[str, list[answers.Worker]]:
    """Group workers by host. Workers without a host name are left out."""
    found: dict[str, list[answers.Worker]] = defaultdict(list)
    for worker in workers:
        if worker["host"]:
            found[worker["host"]].append(worker)
    return found


def require(workers: Iterable[answers.Worker], name: str, field: str) -> None:
    """Raise NotFound, which lists the existing hosts, if no worker of a host was seen within the last hour."""
    if name not in (known := by_host(workers)):
        raise errors.NotFound(f"host {name} does not exist; {_list_names(known)}", field=field)


def find_runner_host(workers: Iterable[answers.Worker], place: str, field: str) -> str:
    """Return the only host with a live runner. Raise InvalidRequest with a list of hosts if there are several or none.

    `place` is the location without a host, which the error message repeats.
    """
    known = by_host(row for row in workers if row["live"] and row["device"] == Device.RUNNER)
    if len(known) != 1:
        detail = f"must include a host, such as HOST:{place}; {_list_names(known, ' with a runner')}"
        raise errors.InvalidRequest(f"{field}: {detail}", field=field)
    return next(iter(known))


def _list_names(known: Iterable[str], which: str = "") -> str:
    names = sorted(known)
    if len(names) == 1:
        return f"the only host{which} is {names[0]}"
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"the hosts{which} are {', '.join(names[:_NAMED])}{more}" if names else f"the cluster has no host{which}"


def _latest(live: Sequence[answers.Worker], field: str) -> Any:
    """Return a field from the most recently seen worker that reports it, or None if no worker does."""
    known = [as_mapping(row) for row in live if field in row]
    return min(known, key=lambda row: (row["seen_seconds_ago"], row["id"]))[field] if known else None


def load1(live: Sequence[answers.Worker]) -> float | None:
    """Return the load average of a host over the last minute, or None if it is unknown."""
    found = _latest(live, "load1")
    return None if found is None else float(found)


def clock_offset(live: Sequence[answers.Worker]) -> float | None:
    """Return how many seconds a host's clock is ahead of Redis: the median over its workers, or None if unknown."""
    known = [row["clock_offset_seconds"] for row in live if "clock_offset_seconds" in row]
    return round(median(known), 3) if known else None


def disks(live: Sequence[answers.Worker]) -> list[answers.Disk]:
    """Return each disk of a host once, with all its uses."""
    found: dict[str, answers.Disk] = {}
    for row in sorted(live, key=lambda row: -row["seen_seconds_ago"]):
        for disk in row.get("disks", []):
            before = found[disk["disk"]]["places"] if disk["disk"] in found else []
            found[disk["disk"]] = {**disk, "places": sorted({*before, *disk["places"]})}
    return [found[number] for number in sorted(found)]


def score(live: Sequence[answers.Worker]) -> float | None:
    """Return how busy a host is, or None if that is unknown.

    A load of 1 per core counts as 100, and each percent of GPU use counts as 3.
    """
    load, cpus = load1(live), _latest(live, "cpus")
    if load is None or not cpus:
        return None
    used = {gpu["uuid"]: gpu.get("utilization_ratio") for row in live for gpu in row.get("gpus", [])}
    known = [ratio for ratio in used.values() if ratio is not None]
    used_percent = 100 * fmean(known) if known else 0.0
    return round(CPU_WEIGHT * 100 * load / int(cpus) + GPU_WEIGHT * used_percent, 1)
