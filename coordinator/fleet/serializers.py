"""Make the answer about a worker from its hash in Redis. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from coordinator import decoding
from jobs.hosts.labels import parted
from threads_protocol.answers import fleet as answers

#: Integers that a worker leaves out where it does not know them.
_INTEGERS = (
    "cpus",
    "memory_used_bytes",
    "memory_total_bytes",
    "network_receive_bytes_total",
    "network_transmit_bytes_total",
    "pid",
)
#: Numbers, likewise.
_NUMBERS = ("network_receive_bytes_per_second", "network_transmit_bytes_per_second", "load1")
#: JSON, likewise.
_PARSED = ("offer", "running", "disks", "versions", "cards")
#: Words, shown where there are any.
_TEXTS = ("retired", "refused", "isolation", "cordoned", "cpu_level")
#: A clock is compared with Redis' only where the answer came within this: the offset is off by a half of it at most.
_LONGEST_ROUND_TRIP = 1.0


class WorkerReport(NamedTuple):
    """Last words of a worker about itself."""

    #: Its row as it was at that moment.
    row: answers.Worker
    #: The moment, in seconds since 1970 of Redis' clock.
    seen: float


def serialize_worker(parse_report: WorkerReport, alive: bool, now: float) -> answers.Worker:
    """Return the row of a worker; `now` in seconds since 1970 of Redis' clock."""
    row = parse_report.row
    return {
        **row,
        "state": row["state"] if alive or row["state"] == "stopped" else "lost",
        "live": alive,
        "busy_lanes": row["busy_lanes"] if alive else 0,
        "seen_seconds_ago": round(max(0.0, now - parse_report.seen), 1),
    }


def parse_report(name: str, row: Mapping[str, str]) -> WorkerReport:
    """Return what the worker whose hash is `row` said. LookupError or ValueError for a hash that cannot be read."""
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
    """Return what this worker knows of what others may not."""
    known: dict[str, Any] = {name: int(row[name]) for name in _INTEGERS if name in row}
    if "gpus" in row:
        known["gpus"] = [{**gpu, "uuid": str(gpu["uuid"])} for gpu in decoding.parse_json(row["gpus"])]
    known.update({name: decoding.parse_finite(row[name]) for name in _NUMBERS if name in row})
    known.update({name: decoding.parse_json(row[name]) for name in _PARSED if name in row})
    if (offset := _clock_offset(row)) is not None:
        known["clock_offset_seconds"] = offset
    known.update({name: row[name] for name in _TEXTS if row.get(name)})
    if "labels" in row:
        known["labels"] = list(parted(row["labels"]))
    if row.get("reserved"):
        known["reserved_for"] = row["reserved"]
    if joules := row.get("cpu_energy_joules_total"):
        known["cpu_energy_joules_total"] = decoding.parse_finite(joules)
    return known


def _clock_offset(row: Mapping[str, str]) -> float | None:
    """Return by how much a worker's clock is ahead of Redis'; None where that is not known well enough."""
    if "clock" not in row or "round_trip_seconds" not in row:
        return None
    took = decoding.parse_finite(row["round_trip_seconds"])
    if not 0 <= took <= _LONGEST_ROUND_TRIP:
        return None
    return round(decoding.parse_finite(row["clock"]) + took / 2 - int(row["seen"]) / 1000, 3)


def by_name(row: answers.Worker | answers.Gpu) -> Mapping[str, Any]:
    """Return the same row for reading by names that come from the table of figures."""
    return row


def serialize_gpus(workers: Sequence[answers.Worker]) -> list[answers.FleetGpu]:
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
