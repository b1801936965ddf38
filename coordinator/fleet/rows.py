"""Workers and queues as the API shows them, and the making of a worker's row from its hash in Redis. Pure.

`schemas.py` describes the same rows to clients; a test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NotRequired, TypedDict, cast

from coordinator import decoding
from jobs.labels import parted


class GpuRow(TypedDict):
    """A GPU as its worker sees it. A newer worker may send more."""

    uuid: str
    index: NotRequired[int]
    name: NotRequired[str]
    utilization_ratio: NotRequired[float]
    sm_active_ratio: NotRequired[float]
    memory_used_bytes: NotRequired[int]
    memory_total_bytes: NotRequired[int]
    temperature_celsius: NotRequired[float]
    power_watts: NotRequired[float]
    energy_joules_total: NotRequired[float]
    clock_sm_hertz: NotRequired[float]
    clock_memory_hertz: NotRequired[float]
    pcie_receive_bytes_per_second: NotRequired[float]
    pcie_transmit_bytes_per_second: NotRequired[float]
    throttle_reasons: NotRequired[list[str]]


class FleetGpuRow(GpuRow):
    worker: str
    live: bool
    job: str | None


class OfferedGpuRow(TypedDict):
    name: NotRequired[str]
    memory_mib: int
    compute_capability: str


class OfferRow(TypedDict):
    cpus: float
    memory_mib: float
    gpus: list[OfferedGpuRow]
    host: str
    labels: list[str]
    tenant: NotRequired[str]


class DiskRow(TypedDict):
    disk: str
    places: list[str]
    free_bytes: int
    total_bytes: int


class CardRow(TypedDict):
    card: str
    name: str
    utilization_ratio: NotRequired[float]
    memory_used_bytes: NotRequired[int]
    memory_total_bytes: NotRequired[int]
    temperature_celsius: NotRequired[float]
    power_watts: NotRequired[float]
    clock_hertz: NotRequired[float]


class WorkerRow(TypedDict):
    id: str
    device: str | None
    state: str
    live: bool
    lanes: int
    busy_lanes: int
    job: str | None
    host: str | None
    network: str
    draining: bool
    seen_seconds_ago: float
    cpu_ratio: float
    rates: dict[str, float]
    cpus: NotRequired[int]
    memory_used_bytes: NotRequired[int]
    memory_total_bytes: NotRequired[int]
    network_receive_bytes_total: NotRequired[int]
    network_transmit_bytes_total: NotRequired[int]
    network_receive_bytes_per_second: NotRequired[float]
    network_transmit_bytes_per_second: NotRequired[float]
    load1: NotRequired[float]
    disks: NotRequired[list[DiskRow]]
    versions: NotRequired[dict[str, str]]
    clock_offset_seconds: NotRequired[float]
    pid: NotRequired[int]
    gpus: NotRequired[list[GpuRow]]
    retired: NotRequired[str]
    refused: NotRequired[str]
    cpu_energy_joules_total: NotRequired[float]
    cpu_level: NotRequired[str]
    offer: NotRequired[OfferRow]
    isolation: NotRequired[str]
    running: NotRequired[list[tuple[str, int]]]
    cordoned: NotRequired[str]
    reserved_for: NotRequired[str]
    labels: NotRequired[list[str]]
    cards: NotRequired[list[CardRow]]


class QueueRow(TypedDict):
    queue: str
    jobs: int
    bells: int
    oldest_wait_seconds: float


class WorkerCountsRow(TypedDict):
    live: int
    ready: int
    cpu: dict[str, int]
    gpu: dict[str, int]
    runner: dict[str, int]


class StatusRow(TypedDict):
    version: str
    cluster_size: int | None
    desired_workers: dict[str, int]
    workers: WorkerCountsRow
    lanes: int
    jobs: dict[str, int]
    queues: dict[str, int]
    oldest_wait_seconds: float
    units_per_second: dict[str, float]


#: Integers that a worker leaves out where it does not know them.
_INTEGERS = (
    "cpus", "memory_used_bytes", "memory_total_bytes", "network_receive_bytes_total", "network_transmit_bytes_total",
    "pid",
)  # fmt: skip
#: Numbers, likewise.
_NUMBERS = ("network_receive_bytes_per_second", "network_transmit_bytes_per_second", "load1")
#: JSON, likewise.
_PARSED = ("offer", "running", "disks", "versions", "cards")
#: Words, shown where there are any.
_TEXTS = ("retired", "refused", "isolation", "cordoned", "cpu_level")
#: A clock is compared with Redis' only where the answer came within this: the offset is off by a half of it at most.
_LONGEST_ROUND_TRIP = 1.0


class Stated(NamedTuple):
    """Last words of a worker about itself."""

    #: Its row as it was at that moment.
    row: WorkerRow
    #: The moment, in seconds since 1970 of Redis' clock.
    seen: float


def worker(stated: Stated, alive: bool, now: float) -> WorkerRow:
    """Return the row of a worker; `now` in seconds since 1970 of Redis' clock."""
    row = stated.row
    return {
        **row,
        "state": row["state"] if alive or row["state"] == "stopped" else "lost",
        "live": alive,
        "busy_lanes": row["busy_lanes"] if alive else 0,
        "seen_seconds_ago": round(max(0.0, now - stated.seen), 1),
    }


def stated(name: str, row: Mapping[str, str]) -> Stated:
    """Return what the worker whose hash is `row` said. LookupError or ValueError for a hash that cannot be read."""
    seen = int(row["seen"]) / 1000
    shown: WorkerRow = {
        "id": name,
        "device": row.get("device"),
        "state": row.get("state", "lost"),
        "live": True,
        "lanes": int(row.get("lanes", 0)),
        "busy_lanes": int(row.get("busy_lanes", 0)),
        "job": row.get("job") or None,
        "host": row.get("host"),
        "network": row.get("network", "0"),
        "draining": row.get("drain") == "1",
        "seen_seconds_ago": 0.0,
        "cpu_ratio": decoding.finite(row.get("cpu_ratio", "0")),
        "rates": {kind: decoding.finite(rate) for kind, rate in decoding.parsed(row.get("rates", "{}")).items()},
    }
    return Stated(cast(WorkerRow, {**shown, **_known(row)}), seen)


def _known(row: Mapping[str, str]) -> dict[str, Any]:
    """Return what this worker knows of what others may not."""
    known: dict[str, Any] = {name: int(row[name]) for name in _INTEGERS if name in row}
    if "gpus" in row:
        known["gpus"] = [{**gpu, "uuid": str(gpu["uuid"])} for gpu in decoding.parsed(row["gpus"])]
    known.update({name: decoding.finite(row[name]) for name in _NUMBERS if name in row})
    known.update({name: decoding.parsed(row[name]) for name in _PARSED if name in row})
    if (offset := _clock_offset(row)) is not None:
        known["clock_offset_seconds"] = offset
    known.update({name: row[name] for name in _TEXTS if row.get(name)})
    if "labels" in row:
        known["labels"] = list(parted(row["labels"]))
    if row.get("reserved"):
        known["reserved_for"] = row["reserved"]
    if joules := row.get("cpu_energy_joules_total"):
        known["cpu_energy_joules_total"] = decoding.finite(joules)
    return known


def _clock_offset(row: Mapping[str, str]) -> float | None:
    """Return by how much a worker's clock is ahead of Redis'; None where that is not known well enough."""
    if "clock" not in row or "round_trip_seconds" not in row:
        return None
    took = decoding.finite(row["round_trip_seconds"])
    if not 0 <= took <= _LONGEST_ROUND_TRIP:
        return None
    return round(decoding.finite(row["clock"]) + took / 2 - int(row["seen"]) / 1000, 3)


def by_name(row: WorkerRow | GpuRow) -> Mapping[str, Any]:
    """Return the same row for reading by names that come from the table of figures."""
    return row


def gpus(workers: Sequence[WorkerRow]) -> list[FleetGpuRow]:
    """Return every GPU that a worker reports, with the worker's name."""
    return [
        {
            **gpu,
            "worker": worker["id"],
            "live": worker["live"],
            "job": worker["job"] if worker["live"] else None,
        }
        for worker in workers
        for gpu in worker.get("gpus", ())
    ]
