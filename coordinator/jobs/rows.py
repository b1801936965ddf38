"""A job as the API shows it, from its hash in Redis. Pure."""

from __future__ import annotations

import time
from typing import Any

from coordinator import decoding
from coordinator.jobs import scheduler
from jobs.models import JobState
from jobs.numbers import exact

#: A rate older than this many seconds says nothing about now.
_STALE_SECONDS = 15


def sound(row: dict[str, str]) -> dict[str, str]:
    """The row itself. LookupError or ValueError without what all else asks for."""
    JobState(row["state"])
    if "queue" not in row or int(row["total"]) < 1:
        raise ValueError("it has no queue or no units")
    return row


def shown(job_id: str, row: dict[str, str], before: int | None, fleet: scheduler.Fleet) -> dict[str, Any]:
    state, done, total = row["state"], int(row["done"]), int(row["total"])
    rate = _rate(row) if state in ("running", "cancelling") else None
    started, ended = row.get("started"), row.get("ended")
    until = int(ended) / 1000 if ended else time.time()
    holders = int(row["holders"])
    return {
        "job_id": job_id,
        "type": row["kind"],
        "state": state,
        "priority": row["priority"],
        "device": row["device"],
        "queue": row["queue"],
        "parameters": decoding.parsed(row["parameters"]),
        "notes": decoding.parsed(row["notes"]),
        "created": decoding.optional_moment(row["created"]),
        "started": decoding.optional_moment(started),
        "ended": decoding.optional_moment(ended),
        "seconds": round(max(0.0, until - int(started) / 1000), 3) if started else None,
        "progress": done / total,
        "done": exact(done),
        "total": exact(total),
        "rate": rate,
        "eta_seconds": round((total - done) / rate, 1) if rate else None,
        "waiting_because": scheduler.waiting_because(
            state, row["queue"], None if before == -1 else before, holders, fleet, row["kind"], int(row["version"])
        ),
        "error": row.get("error"),
        "usage": _usage(row),
    }


def _rate(row: dict[str, str]) -> float | None:
    """Committed units/s: the smoothed rate, or the average so far while there is none."""
    now = time.time() * 1000
    if "rate" in row and now - int(row["mark_at"]) < _STALE_SECONDS * 1000:
        return decoding.finite(row["rate"])
    if "rate" in row or "started" not in row or int(row["done"]) == 0:
        return None
    return int(row["done"]) * 1000 / max(now - int(row["started"]), 1)


#: Names and units of what a job's hash counts for a worker.
_USED = {"ms": ("seconds", 1000), "device_ms": ("device_seconds", 1000), "mj": ("joules", 1000)}


def _usage(row: dict[str, str]) -> dict[str, Any]:
    """Who computed: units, seconds of lanes and leases, by device and worker."""
    workers: dict[str, dict[str, Any]] = {}
    for name, value in row.items():
        if name.startswith("use|"):
            _, device, worker, what = name.split("|")
            entry = workers.setdefault(worker, {"device": device})
            shown, unit = _USED.get(what, (what, 1))
            entry[shown] = int(value) / unit if unit > 1 else int(value)
    seconds = sum(entry["seconds"] for entry in workers.values())
    return {
        "lane_seconds": round(seconds, 3),
        **{
            name: round(sum(entry.get(name, 0) for entry in workers.values()), 3)
            for name in ("device_seconds", "joules")
            if any(name in entry for entry in workers.values())
        },
        "leases": sum(entry["leases"] for entry in workers.values()),
        "expired_leases": int(row.get("expired", 0)),
        "workers": workers,
    }
