"""Serialize hosts from the records of their workers. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from coordinator.fleet import hosts
from coordinator.fleet import serializers as fleet_serializers
from jobs.models import Device
from threads_protocol.answers import fleet as fleet_answers
from threads_protocol.answers import hosts as host_answers


def serialize_host(name: str, workers: Sequence[fleet_answers.Worker]) -> host_answers.Host:
    """Return the response for a host, from the records of its workers."""
    latest_first = sorted(workers, key=lambda row: (not row["live"], row["seen_seconds_ago"], row["id"]))
    live = [row for row in latest_first if row["live"]]
    latest = latest_first[0]
    devices = _devices(live)
    return {
        "host": name,
        "live": bool(live),
        "workers": [row["id"] for row in latest_first],
        "lanes": sum(row["lanes"] for row in live),
        "busy_lanes": sum(row["busy_lanes"] for row in live),
        "draining": bool(live) and all(row["draining"] for row in live),
        "seen_seconds_ago": latest["seen_seconds_ago"],
        "cpus": latest.get("cpus"),
        "cpu_ratio": latest["cpu_ratio"] if live else None,
        "load1": hosts.load1(live),
        "memory_used_bytes": latest.get("memory_used_bytes") if live else None,
        "memory_total_bytes": latest.get("memory_total_bytes"),
        "network_receive_bytes_per_second": _sum_speeds(live, "network_receive_bytes_per_second"),
        "network_transmit_bytes_per_second": _sum_speeds(live, "network_transmit_bytes_per_second"),
        "disks": hosts.disks(live),
        "gpus": [device["name"] for device in devices],
        "devices": devices,
        "labels": _labels(live),
        "given_labels": _common_labels(live),
        "cards": _cards(latest_first),
        "versions": _versions(live),
        "clock_offset_seconds": hosts.clock_offset(live),
        "score": hosts.score(live),
    }


def serialize_details(row: host_answers.Host, workers: Sequence[fleet_answers.Worker]) -> host_answers.HostDetail:
    """Return a host with the records of its workers, live ones first."""
    by_id = {worker["id"]: worker for worker in workers}
    return {**row, "worker_rows": [by_id[name] for name in row["workers"]]}


def _sum_speeds(live: Iterable[fleet_answers.Worker], figure: str) -> float | None:
    """Return the total speed of a host's networks, or None if no worker reports it.

    For each network, the report of the worker seen last is used.
    """
    reports = hosts.latest_workers(live, ("network",)).values()
    known = [row[figure] for row in reports if row.get(figure) is not None]
    return sum(known) if known else None


def _devices(live: Iterable[fleet_answers.Worker]) -> list[host_answers.Device]:
    """Return each GPU of the host once, sorted by index."""
    seen = {gpu["uuid"]: _device(gpu, row) for row in live for gpu in row.get("gpus", [])}
    return sorted(seen.values(), key=lambda one: (one["index"] or 0, one["uuid"]))


def _device(gpu: fleet_answers.ReportedGpu, worker: fleet_answers.Worker) -> host_answers.Device:
    used, job = gpu.get("utilization_ratio"), fleet_serializers.find_gpu_job(gpu, worker)
    is_leased = bool(job or (worker["busy_lanes"] and worker["device"] != Device.RUNNER))
    return {
        "uuid": gpu["uuid"],
        "index": gpu.get("index"),
        "name": gpu.get("name", "GPU"),
        "worker": worker["id"],
        "job": job,
        "idle": not (is_leased or worker.get("cordoned")) and used == 0,
        "utilization_ratio": used,
        "memory_used_bytes": gpu.get("memory_used_bytes"),
        "memory_total_bytes": gpu.get("memory_total_bytes"),
        "temperature_celsius": gpu.get("temperature_celsius"),
        "power_watts": gpu.get("power_watts"),
        "cordoned": worker.get("cordoned"),
    }


def _labels(live: Iterable[fleet_answers.Worker]) -> list[str]:
    return sorted({label for row in live for label in (row["offer"]["labels"] if "offer" in row else [])})


def _cards(latest_first: Iterable[fleet_answers.Worker]) -> list[fleet_answers.Card]:
    """Return the GPUs that no worker uses, as reported by the most recently seen live worker."""
    return next((row["cards"] for row in latest_first if row["live"] and "cards" in row), [])


def _common_labels(live: Iterable[fleet_answers.Worker]) -> list[str]:
    """Return the operator's labels that all workers of a host have in common."""
    several = [set(row.get("labels", ())) for row in live]
    return sorted(set.intersection(*several)) if several else []


def _versions(live: Iterable[fleet_answers.Worker]) -> dict[str, list[str]]:
    """Return the sorted versions of each component, as reported by the host's workers."""
    found: dict[str, set[str]] = {}
    for row in live:
        for part, version in row.get("versions", {}).items():
            found.setdefault(part, set()).add(version)
    return {part: sorted(several) for part, several in sorted(found.items())}
