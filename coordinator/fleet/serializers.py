"""Serialize workers from their hashes in Redis. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from coordinator import decoding
from jobs.hosts.labels import split_labels
from jobs.models import Device
from threads_protocol.answers import fleet as answers

#: Integer fields, which workers omit if they do not know the value.
_INTEGERS = (
    "cpus",
    "memory_used_bytes",
    "memory_total_bytes",
    "network_receive_bytes_total",
    "network_transmit_bytes_total",
    "pid",
)
#: Number fields that workers can omit.
_NUMBERS = ("network_receive_bytes_per_second", "network_transmit_bytes_per_second", "load1")
#: JSON fields that workers can omit.
_PARSED = ("offer", "running", "disks", "versions", "cards")
#: Text fields, omitted from the response if empty.
_TEXTS = ("retired", "refused", "isolation", "cordoned", "cpu_level")
#: Maximum round-trip time in seconds of a clock comparison. The offset's error is at most half the round trip.
_LONGEST_ROUND_TRIP = 1.0


class WorkerReport(NamedTuple):
    """Last report of a worker about itself."""

    #: Response for the worker at the time of the report.
    row: answers.Worker
    #: Time of the report, in seconds since 1970 of the Redis clock.
    seen: float


def serialize_worker(report: WorkerReport, alive: bool, now: float) -> answers.Worker:
    """Return the response for a worker. `now` is Redis time in seconds since 1970."""
    row = report.row
    return {
        **row,
        "state": row["state"] if alive or row["state"] == "stopped" else "lost",
        "live": alive,
        "busy_lanes": row["busy_lanes"] if alive else 0,
        "seen_seconds_ago": round(max(0.0, now - report.seen), 1),
    }


def parse_report(name: str, row: Mapping[str, str]) -> WorkerReport:
    """Parse a worker's Redis hash. Raise LookupError or ValueError if the hash is invalid."""
    seen = int(row["seen"]) / 1000
    shown: answers.Worker = {
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
        "cpu_ratio": decoding.parse_finite(row.get("cpu_ratio", "0")),
        "rates": {
            kind: decoding.parse_finite(rate) for kind, rate in decoding.parse_json(row.get("rates", "{}")).items()
        },
    }
    return WorkerReport(cast(answers.Worker, {**shown, **_public_fields(row)}), seen)


def _public_fields(row: Mapping[str, str]) -> dict[str, Any]:
    """Return the optional fields of a worker that are public."""
    known: dict[str, Any] = {name: int(row[name]) for name in _INTEGERS if name in row}
    if "gpus" in row:
        known["gpus"] = [{**gpu, "uuid": str(gpu["uuid"])} for gpu in decoding.parse_json(row["gpus"])]
    known.update({name: decoding.parse_finite(row[name]) for name in _NUMBERS if name in row})
    known.update({name: decoding.parse_json(row[name]) for name in _PARSED if name in row})
    if (offset := _clock_offset(row)) is not None:
        known["clock_offset_seconds"] = offset
    known.update({name: row[name] for name in _TEXTS if row.get(name)})
    if row.get("compiling"):
        known["compiling"] = row["compiling"].split(",")
    if "labels" in row:
        known["labels"] = list(split_labels(row["labels"]))
    if row.get("reserved"):
        known["reserved_for"] = row["reserved"]
    if joules := row.get("cpu_energy_joules_total"):
        known["cpu_energy_joules_total"] = decoding.parse_finite(joules)
    return known


def _clock_offset(row: Mapping[str, str]) -> float | None:
    """Return how many seconds a worker's clock is ahead of Redis, or None if the measurement is not precise enough."""
    if "clock" not in row or "round_trip_seconds" not in row:
        return None
    took = decoding.parse_finite(row["round_trip_seconds"])
    if not 0 <= took <= _LONGEST_ROUND_TRIP:
        return None
    return round(decoding.parse_finite(row["clock"]) + took / 2 - int(row["seen"]) / 1000, 3)


def as_mapping(row: answers.Worker | answers.Gpu) -> Mapping[str, Any]:
    """Return the same record with a type that allows access by dynamic field names."""
    return row


def serialize_gpus(workers: Sequence[answers.Worker]) -> list[answers.FleetGpu]:
    """Return all GPUs that workers report, with the workers' names."""
    return [
        {
            **gpu,
            "worker": worker["id"],
            "live": worker["live"],
            "job": find_gpu_job(gpu, worker),
        }
        for worker in workers
        for gpu in worker.get("gpus", ())
    ]


def find_gpu_job(gpu: answers.ReportedGpu, worker: answers.Worker) -> str | None:
    """Return the job that uses a GPU. A runner executes several jobs, so it reports the job of each GPU."""
    if not worker["live"]:
        return None
    return gpu.get("job") if worker["device"] == Device.RUNNER else worker["job"]


def remove_repeated_gpus(workers: Sequence[answers.Worker]) -> list[answers.Worker]:
    """Keep each GPU only in the record of the worker that uses it: a live GPU worker, or else a live runner.

    A runner reports all GPUs that it can use, even while a GPU worker of its host uses them.
    """
    owners: dict[str, str] = {}
    reporting = [worker for worker in workers if "gpus" in worker]
    for worker in sorted(reporting, key=lambda one: (not one["live"], one["device"] != Device.GPU, one["id"])):
        for gpu in worker["gpus"]:
            owners.setdefault(gpu["uuid"], worker["id"])
    return [
        {**worker, "gpus": [gpu for gpu in worker["gpus"] if owners[gpu["uuid"]] == worker["id"]]}
        if "gpus" in worker
        else worker
        for worker in workers
    ]
