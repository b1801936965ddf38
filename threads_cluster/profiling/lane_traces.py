"""Perfetto traces of jobs, built from the spans that the cluster keeps for an hour. A span is a time of work on a
lease.

The format is the JSON of chrome://tracing, which ui.perfetto.dev opens: `X` is a slice, `C` a counter, `M` a name, and
times are microseconds. Each worker is a process, each lane a thread, and the job a process above the workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]

#: Process ID that represents the job in a trace. Workers have the following IDs.
_JOB = 1


def spans_of(job_id: str, stream: Mapping[str, Any]) -> list[Json]:
    """Return the spans of one job from a response of /api/stream, ordered by their start."""
    return sorted((span for span in stream["spans"] if span["job_id"] == job_id), key=lambda span: span["start"])


def trace(job: Mapping[str, Any], stream: Mapping[str, Any]) -> Json:
    """Return the trace of a job. Time 0 is the submission of the job, or its first span if that is earlier."""
    spans = spans_of(job["job_id"], stream)
    begin = min([_seconds(job["created"]), *(span["start"] for span in spans)])
    end = max([_end(job, stream), *(span["end"] for span in spans)])
    lanes = _lanes(spans, stream["lanes"])
    events = [
        *_names(job, lanes),
        *_phases(job, begin, end),
        *_busy(spans, begin),
        *(_slice(span, lanes[span["lane"]], begin) for span in spans),
    ]
    about = {"job_id": job["job_id"], "type": job["type"], "state": job["state"], "begins": begin, "ends": end}
    kept = {name: stream[name] for name in ("complete_since", "resolution_seconds")}
    return {"displayTimeUnit": "ms", "otherData": about | kept, "traceEvents": events}


def totals(spans: Sequence[Mapping[str, Any]], lanes: Sequence[Mapping[str, Any]]) -> Json:
    """Return totals of a job's spans: `{lanes, workers, leases, busy_seconds, open}`. Open spans have no busy
    time yet.
    """
    places = {span["lane"] for span in spans}
    return {
        "lanes": len(places),
        "workers": len({lanes[place]["worker"] for place in places}),
        "leases": sum(span["leases"] for span in spans),
        "busy_seconds": sum(span["busy_seconds"] for span in spans),
        "open": sum(span["open"] for span in spans),
    }


class _Lane:
    """Process and thread that represent a lane in a trace."""

    def __init__(self, process: int, thread: int, row: Mapping[str, Any]) -> None:
        self.process, self.thread = process, thread
        self.worker: str = row["worker"]
        self.title: str = row["lane"] if row["device"] is None else f"{row['lane']} ({row['device']})"


def _lanes(spans: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> dict[int, _Lane]:
    """Return the lanes that computed a job, keyed by their index in the response. Workers are sorted by name."""
    used = sorted({span["lane"] for span in spans}, key=lambda number: rows[number]["lane"])
    workers = sorted({rows[number]["worker"] for number in used})
    return {
        number: _Lane(_JOB + 1 + workers.index(rows[number]["worker"]), thread, rows[number])
        for thread, number in enumerate(used, 1)
    }


def _names(job: Mapping[str, Any], lanes: Mapping[int, _Lane]) -> Iterator[Json]:
    yield _name_event("process_name", _JOB, 0, f"job {job['job_id']} ({job['type']})")
    yield {"ph": "M", "name": "process_sort_index", "pid": _JOB, "tid": 0, "args": {"sort_index": 0}}
    for process, worker in sorted({(lane.process, lane.worker) for lane in lanes.values()}):
        yield _name_event("process_name", process, 0, worker)
    for lane in lanes.values():
        yield _name_event("thread_name", lane.process, lane.thread, lane.title)


def _name_event(what: str, process: int, thread: int, name: str) -> Json:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}


def _phases(job: Mapping[str, Any], begin: float, end: float) -> Iterator[Json]:
    """Yield slices for the time in which the job waited and for the time in which it ran."""
    created = _seconds(job["created"])
    started = _seconds(job["started"]) if job.get("started") else None
    yield _phase("waits", created, end if started is None else started, begin)
    if started is not None:
        yield _phase("runs", started, end, begin)


def _phase(name: str, start: float, end: float, begin: float) -> Json:
    return {
        "ph": "X",
        "cat": "job",
        "name": name,
        "pid": _JOB,
        "tid": 0,
        "ts": _micros(start - begin),
        "dur": _micros(max(0.0, end - start)),
        "args": {},
    }


def _busy(spans: Sequence[Mapping[str, Any]], begin: float) -> Iterator[Json]:
    """Yield the number of busy lanes whenever this number changes."""
    changes: dict[float, int] = {}
    for span in spans:
        changes[span["start"]] = changes.get(span["start"], 0) + 1
        end = max(span["start"], span["end"])
        changes[end] = changes.get(end, 0) - 1
    busy = 0
    for moment, change in sorted(changes.items()):
        busy += change
        yield {
            "ph": "C",
            "name": "busy lanes",
            "pid": _JOB,
            "tid": 0,
            "ts": _micros(moment - begin),
            "args": {"lanes": busy},
        }


def _slice(span: Mapping[str, Any], lane: _Lane, begin: float) -> Json:
    seconds, units = span["end"] - span["start"], int(span["units"])
    busy = None if span["open"] else span["busy_seconds"]
    about: Json = {
        "leases": span["leases"],
        "units": str(units),
        "busy_seconds": busy,
        "units_per_second": round(units / busy, 3) if busy else None,
        "open": span["open"],
        "lost": bool(span.get("lost")),
    }
    many = f"{span['leases']} leases" if span["leases"] != 1 else "1 lease"
    return {
        "ph": "X",
        "cat": "lost" if about["lost"] else "leases",
        "name": f"{span['type']}: {many}",
        "pid": lane.process,
        "tid": lane.thread,
        "ts": _micros(span["start"] - begin),
        "dur": _micros(max(0.0, seconds)),
        "args": about,
    }


def _end(job: Mapping[str, Any], stream: Mapping[str, Any]) -> float:
    """Return the time when the job ended. For a running job, return the time of the response."""
    return _seconds(job["ended"]) if job.get("ended") else float(stream["to"])


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def _micros(seconds: float) -> float:
    return round(seconds * 1e6, 1)
