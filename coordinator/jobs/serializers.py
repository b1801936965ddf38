"""Build the API response about a job from its hash in Redis. Functions here are pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from coordinator import decoding, destinations, tracing
from coordinator.jobs import scheduler, titles
from jobs.models import DeadRange, QueuePosition
from threads_protocol.answers import jobs as answers
from threads_protocol.numbers import exact
from threads_protocol.states import JobState

#: Maximum age of a rate in seconds.
_STALE_SECONDS = 15


#: Fields that determine a job's queue position.
_PLACED = frozenset({"queue", "kind", "tenant"})


def check_record(row: dict[str, str]) -> dict[str, str]:
    """Return the record if its required fields are valid. Raises LookupError or ValueError otherwise."""
    JobState(row["state"])
    if not row.keys() >= _PLACED or int(row["total"]) < 1:
        raise ValueError("the job lacks a queue, kind, tenant or units")
    return row


def serialize_job(
    job_id: str, row: dict[str, str], place: QueuePosition, fleet: scheduler.Fleet, now: float
) -> answers.Job:
    """Return the response about a job. `place` is its queue position, and `now` Redis' time in seconds since 1970."""
    state, done, total = row["state"], int(row["done"]), int(row["total"])
    holders = int(row["holders"])
    # A job that returned to its queue has an old rate, which does not predict its end.
    has_leases = (
        state == "running" and (holders > 0 or place.leases > 0) and fleet.of(row["tenant"]).knows(row["queue"])
    )
    computed = state == "cancelling" or has_leases
    rate = _rate(row, now * 1000) if computed else None
    started, ended = row.get("started"), row.get("ended")
    until = int(ended) / 1000 if ended else now
    needed = decoding.parse_json(row.get("requirements", "{}"))
    parameters = decoding.parse_json(row["parameters"])
    answer: answers.Job = {
        "job_id": job_id,
        "tenant": row["tenant"],
        "type": row["kind"],
        "title": row.get("name") or titles.title(row["kind"], parameters),
        "state": state,
        "priority": row["priority"],
        "device": row["device"],
        "queue": row["queue"],
        "parameters": parameters,
        "notes": decoding.parse_json(row["notes"]),
        "created": decoding.format_ms(row["created"]),
        "started": decoding.format_optional_ms(started),
        "ended": decoding.format_optional_ms(ended),
        "seconds": round(max(0.0, until - int(started) / 1000), 3) if started else None,
        "progress": done / total,
        "done": exact(done),
        "total": exact(total),
        "rate": rate,
        "eta_seconds": round((total - done) / rate, 1) if rate else None,
        "waiting_because": scheduler.waiting_because(
            state,
            row["queue"],
            place,
            holders,
            fleet,
            row["kind"],
            int(row["version"]),
            max_running=int(row.get("max_running", 0)),
            needed=needed,
            left=total - int(row["cursor"]),
        ),
        "error": None if state == JobState.DONE.value else row.get("error"),  # from an earlier attempt of the job
        "usage": _usage(row),
    }
    if state == JobState.QUEUED.value:
        answer["estimated_wait_seconds"] = scheduler.estimate_start(
            row["queue"], fleet, row["tenant"], row["kind"], int(row["version"]), needed, place
        )
    _add_options(answer, row)
    return answer


def serialize_dead(job: answers.Job, ranges: Sequence[DeadRange], count: int) -> answers.Dead:
    """Return the response about the dead ranges of a job. `count` is the total number of dead ranges."""
    row: answers.Dead = {
        "job_id": job["job_id"],
        "type": job["type"],
        "state": job["state"],
        "tenant": job["tenant"],
        "ranges": [_dead_range(each) for each in sorted(ranges)],
    }
    if count > len(ranges):
        row["more_ranges"] = count - len(ranges)
    return row


def _dead_range(given_up: DeadRange) -> answers.DeadRange:
    return {
        "first": exact(given_up.lo),
        "last": exact(given_up.hi - 1),
        "deaths": given_up.deaths,
        "errors": given_up.errors,
        "error": given_up.error,
    }


def _add_options(answer: answers.Job, row: dict[str, str]) -> None:
    """Add the submitter's options, the backlog flag, and the reason why a job was skipped."""
    if row["state"] == JobState.SKIPPED.value and "root" in row:
        answer["root"] = row["root"]
    if row.get("backlog") == "1":
        answer["in_backlog"] = True
    if "max_running" in row:
        answer["max_running"] = int(row["max_running"])
    if "timeout_ms" in row:
        answer["timeout_seconds"] = int(row["timeout_ms"]) / 1000
    if "name" in row:
        answer["name"] = row["name"]
    if "tags" in row:
        answer["tags"] = decoding.parse_json(row["tags"])
    if "notify" in row:
        answer["notify"] = destinations.redact_path(row["notify"])
    if place := tracing.parse_traceparent(row.get("traceparent", "")):
        answer["trace_id"] = place.trace_id


def _rate(row: Mapping[str, str], now: float) -> float | None:
    """Return the smoothed rate of committed units per second, or the average so far if there is none."""
    if "rate" in row and now - int(row["mark_at"]) < _STALE_SECONDS * 1000:
        return decoding.parse_finite(row["rate"])
    if "rate" in row or "started" not in row or int(row["done"]) == 0:
        return None
    return int(row["done"]) * 1000 / max(now - int(row["started"]), 1)


#: Fields of a job's hash that determine its rate.
RATED = ("kind", "state", "rate", "mark_at", "started", "done", "queue", "tenant")


def read_rate(stored: Mapping[str, bytes | None], fleet: scheduler.Fleet, now: float) -> tuple[str, float]:
    """Return a job's kind, and its rate in units per second (0 if unknown, or if no worker of its queue is live).

    `stored` contains the RATED fields. Raises LookupError or ValueError.
    """
    row = {name: value.decode() for name, value in stored.items() if value is not None}
    running = row.get("state") == JobState.RUNNING.value and fleet.of(row["tenant"]).knows(row["queue"])
    return row["kind"], (_rate(row, now * 1000) or 0.0) if running else 0.0


#: Response name and divisor of each usage counter in a job's hash.
_USED = {"ms": ("seconds", 1000), "device_ms": ("device_seconds", 1000), "mj": ("joules", 1000)}


def _usage(row: dict[str, str]) -> answers.Usage:
    """Return the usage of a job in total and by worker: units, lane seconds and leases."""
    workers: dict[str, dict[str, Any]] = {}
    for name, value in row.items():
        if name.startswith("use|"):
            _, device, worker, what = name.split("|")
            share = workers.setdefault(worker, {"device": device})
            column, unit = _USED.get(what, (what, 1))
            share[column] = int(value) / unit if unit > 1 else int(value)
    seconds = sum(share["seconds"] for share in workers.values())
    usage = {
        "lane_seconds": round(seconds, 3),
        **{
            name: round(sum(share.get(name, 0) for share in workers.values()), 3)
            for name in ("device_seconds", "joules")
            if any(name in share for share in workers.values())
        },
        "leases": sum(share["leases"] for share in workers.values()),
        "expired_leases": int(row.get("expired", 0)),
        "workers": workers,
    }
    return cast(answers.Usage, usage)
