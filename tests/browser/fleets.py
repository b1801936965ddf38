"""Fake in-memory coordinator for the Cluster page, with workers, jobs, queues and spans that tests change."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

from tests.browser.programs import Programs

#: Units/s of each kind. The magnitudes differ, so that charts need separate axes.
SPEEDS = {"collatz": 81.2e6, "thread": 5.2e3}
TITLES = {
    "collatz": "Collatz 10¹³ numbers from 10¹⁵, statistics",
    "thread": "Threads: 8 cores, work stealing with half of the victim's tasks, 2,000 replicas",
}


EXAMPLES = {"collatz": {}, "thread": {}, "command": {"command": ["echo", "unit {unit}"], "count": 3}}


def kind_row(name: str, example: dict[str, Any]) -> dict[str, Any]:
    """Return a kind's record as in GET /api/job-types."""
    return {
        "type": name,
        "summary": f"All that {name} does.",
        "model_version": 1,
        "schema": {},
        "example": example,
        "devices": ["cpu"],
        "questions": {},
        "binaries": {},
    }


def moment(seconds: float) -> str:
    """Format a time in seconds since 1970 like the API."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def job(name: str, state: str = "running", kind: str = "collatz", age: float = 60, **more: Any) -> dict[str, Any]:
    """Return the record of a job submitted `age` seconds ago, as in GET /api/jobs."""
    runs, now = state == "running", time.time()
    waits = state in ("queued", "blocked")
    over = state in ("done", "failed", "cancelled")
    return {
        "job_id": name,
        "tenant": "default",
        "type": kind,
        "title": TITLES.get(kind, kind),
        "state": state,
        "priority": "normal",
        "device": "any",
        "queue": "any.normal",
        "parameters": {"start_number": 1},
        "notes": [],
        "created": moment(now - age),
        "started": None if waits else moment(now - age + 1),
        "ended": moment(now - 2) if over else None,
        "seconds": None if waits else age - 1,
        "progress": 0.42,
        "done": 4_200_000,
        "total": 10_000_000,
        "rate": SPEEDS.get(kind) if runs else None,
        "eta_seconds": 75.0 if runs else None,
        "waiting_because": None,
        "error": None,
        "usage": {"lane_seconds": 512.0, "leases": 31, "expired_leases": 0, "workers": {}},
        **more,
    }


def worker(name: str, state: str = "busy", device: str = "cpu", **more: Any) -> dict[str, Any]:
    """Return the record of a worker with four lanes, as in the snapshot."""
    live = state not in ("lost", "stopped")
    return {
        "id": name,
        "device": device,
        "state": state,
        "live": live,
        "lanes": 4,
        "busy_lanes": 4 if state == "busy" else 0,
        "job": None,
        "host": "host-1",
        "network": "0",
        "draining": state in ("draining", "drained"),
        "seen_seconds_ago": 0.4 if live else 75.0,
        "cpu_ratio": 0.35,
        "rates": {},
        "memory_used_bytes": 9 << 30,
        "memory_total_bytes": 64 << 30,
        "gpus": [],
        **more,
    }


def host(name: str, workers: list[str], **more: Any) -> dict[str, Any]:
    """Return a host's record as in GET /api/hosts."""
    return {
        "host": name,
        "live": True,
        "workers": workers,
        "lanes": 8,
        "busy_lanes": 4,
        "draining": False,
        "seen_seconds_ago": 0.4,
        "cpus": 8,
        "cpu_ratio": 0.5,
        "load1": 3.9,
        "memory_used_bytes": 9 << 30,
        "memory_total_bytes": 64 << 30,
        "network_receive_bytes_per_second": 1.5e6,
        "network_transmit_bytes_per_second": 2e4,
        "gpus": [],
        "devices": [],
        "labels": ["ssd", "trusted"],
        "given_labels": [],
        "cards": [],
        "disks": [{"disk": "8:1", "places": ["data", "temporary"], "free_bytes": 80 << 30, "total_bytes": 500 << 30}],
        "versions": {"threads_cluster": ["0.17.0"], "python": ["3.11.9"]},
        "clock_offset_seconds": 0.012,
        "score": 48.8,
        **more,
    }


def span(lane: int, name: str | None, start: float, end: float | None = None, **more: Any) -> dict[str, Any]:
    """Return a span of work from `start` to `end` seconds ago, or until now. Without a name, the span stands for
    several small jobs.
    """
    now = time.time()
    return {
        "lane": lane,
        "job_id": name,
        "type": "collatz",
        "jobs": 1 if name else 9,
        "start": now - start,
        "end": now if end is None else now - end,
        "busy_seconds": 1.0,
        "units": 1000,
        "leases": 3,
        "open": end is None,
        **more,
    }


class Fleet(Programs):
    """State of the fake coordinator. `move` sends a test's changes to the page."""

    def __init__(self, jobs: list[dict[str, Any]], workers: list[dict[str, Any]]) -> None:
        super().__init__(1, {})
        self.token_id = None
        self.jobs = {row["job_id"]: row for row in jobs}
        self.workers = {row["id"]: row for row in workers}
        self.queues: list[dict[str, Any]] = []
        self.hosts: list[dict[str, Any]] = []
        self.spans: list[dict[str, Any]] = []
        self.silent: dict[str, float] = {}
        self.series: dict[str, list[float]] = {}
        #: ID of a job whose /events stream contains only its current state, as for jobs without stored events.
        self.present = ""
        self._frames: list[dict[str, Any]] = []
        #: Number of events contained in the last snapshot. Streams start after these events.
        self._begins = 0

    def move(self, *frames: dict[str, Any]) -> None:
        """Send these events of jobs. The types fleet, queue and alert send the record of that name."""
        with self.changed:
            self._frames += frames
            self.number += 1
            self.changed.notify_all()

    def set_worker(self, row: dict[str, Any]) -> None:
        self.workers[row["id"]] = row
        self.move({"type": "fleet", **row})

    # -- answers ------------------------------------------------------------------------------------------------------

    def begin(self) -> int:
        return self._begins

    def events(self, place: int) -> tuple[list[dict[str, Any]], int]:
        with self.changed:
            return self._frames[place:], len(self._frames)

    def status(self) -> dict[str, Any]:
        live = [row for row in self.workers.values() if row["live"]]
        states = [row["state"] for row in self.jobs.values()]
        counts = {state: states.count(state) for state in ("queued", "running", "done", "failed", "cancelled")}
        return {
            "version": "0.17.0",
            "cluster_size": len(self.workers),
            "desired_workers": {"cpu": 2},
            "lanes": sum(row["lanes"] for row in live),
            "workers": {"live": len(live), "ready": len(live), "cpu": {}, "gpu": {}, "runner": {}},
            "jobs": counts,
            "queues": {},
            "oldest_wait_seconds": 0.0,
            "units_per_second": {row["type"]: row["rate"] for row in self.jobs.values() if row["rate"]},
        }

    def snapshot(self) -> dict[str, Any]:
        self._begins = len(self._frames)
        return {
            "jobs": [*self.jobs.values()],
            "cursor": None,
            "stream": "1-0",
            "time": time.time(),
            "status": self.status(),
            "queues": self.queues,
            "workers": [*self.workers.values()],
            "gpus": [],
            "alerts": [],
        }

    def stream(self) -> dict[str, Any]:
        now = time.time()
        names = sorted(f"{row['id']}/{lane}" for row in self.workers.values() for lane in range(row["lanes"]))
        lanes: list[dict[str, Any]] = [{"lane": name, "worker": name.split("/")[0], "device": "cpu"} for name in names]
        for lane in lanes:
            if lane["worker"] in self.silent:
                lane["silent_since"] = self.silent[lane["worker"]]
        spans = [each | ({"end": now} if each["open"] else {}) for each in self.spans]
        return {
            "from": now - 600,
            "to": now,
            "complete_since": now - 3600,
            "resolution_seconds": 0,
            "lanes": lanes if spans else [],
            "spans": spans,
        }

    def history(self) -> dict[str, Any]:
        now = int(time.time())
        points = max([len(values) for values in self.series.values()], default=1)
        step = max(1, 600 // points)
        return {
            "from": now - 600,
            "to": now,
            "step_seconds": step,
            "names": [*self.series],
            "times": [now - 600 + step * place for place in range(points)],
            "series": {name: {"min": each, "mean": each, "max": each} for name, each in self.series.items()},
        }

    def answer(self, path: str, query: dict[str, str]) -> tuple[Any, dict[str, str]]:
        if path == "/api/job-types":
            return {"kinds": [kind_row(name, example) for name, example in EXAMPLES.items()]}, {}
        if path == "/api/stream":
            return self.stream(), {}
        if path == "/api/history":
            return self.history(), {}
        if path == "/api/jobs":
            rows = [row for row in self.jobs.values() if row["state"] == query.get("state", row["state"])]
            return {"jobs": rows, "cursor": None}, {}
        if path == "/api/hosts":
            return {"hosts": self.hosts}, {}
        if path == "/api/usage":
            return {"usage": []}, {}
        if path.startswith("/api/jobs/"):
            _, _, _, name, *rest = path.split("/")
            if rest == ["events"]:
                return self.state_of(name), {"Content-Type": "text/event-stream"}
            if rest:
                return {
                    "job_id": name,
                    "result": {},
                    "parents": [],
                    "children": [],
                    "children_count": 0,
                    "skipped": [],
                    "skipped_count": 0,
                }, {}
            return self.jobs[name], {}
        return super().answer(path, query)

    def state_of(self, name: str) -> bytes:
        """Return the frames of a job's own event stream."""
        if name != self.present:
            return b": nothing\n\n"
        row = self.jobs[name]
        told = {"job": name, "kind": row["type"], "type": row["state"], "state": row["state"], "done": 0, "total": 1}
        data = json.dumps({**told, "present": "true"})
        return f"id: {int(time.time() * 1000)}-0\nevent: {row['state']}\ndata: {data}\n\n".encode()

    def post(self, path: str, body: Any) -> tuple[int, Any]:
        self.submitted.append(json.loads(json.dumps(body)))
        name = f"{len(self.submitted):016x}"
        self.jobs[name] = job(name, "queued", body["type"], age=0)
        self.move({"type": "queued", "job": name, "kind": body["type"], "state": "queued", "done": 0, "total": 10})
        return 200, {"job_id": name, "status": "queued", "estimated_wait_seconds": 0.0, "notes": []}


def busy() -> Fleet:
    """Return a busy cluster: two kinds, four jobs that take turns, a lost worker and a draining worker."""
    jobs = [
        job("5c7b3fb0a1d24e6f", age=240, progress=0.62),
        job("81d2c3b4a5968778", kind="thread", age=90),
        job(
            "0aa1b2c3d4e5f607",
            age=200,
            rate=None,
            eta_seconds=None,
            waiting_because="3 jobs are ahead in the queue any.normal",
        ),
        job(
            "77e6d5c4b3a29180",
            "queued",
            age=30,
            waiting_because="starts when a worker of the queue any.normal is free",
        ),
        job("1f2e3d4c5b6a7988", "done", age=500, progress=1.0),
        job(
            "99aabbccddeeff00",
            "failed",
            "thread",
            age=400,
            error="parameters.cores: is 1 to 1024; got 4096; the unit 17 of 2,000 raised it again after 4 attempts",
        ),
    ]
    workers = [
        worker("cpu-1", job="5c7b3fb0a1d24e6f"),
        worker("cpu-2", job="81d2c3b4a5968778", busy_lanes=3),
        worker("cpu-3", "drained"),
        worker("cpu-4", "lost"),
    ]
    fleet = Fleet(jobs, workers)
    fleet.queues = [{"queue": "any.normal", "jobs": 2, "bells": 0, "oldest_wait_seconds": 25.0}]
    for lane in range(4):
        fleet.spans += [
            span(lane, "1f2e3d4c5b6a7988", 560 - lane, 300 + 2 * lane),
            span(lane, "0aa1b2c3d4e5f607", 298 - lane, 205 + lane),
            span(lane, "5c7b3fb0a1d24e6f", 200 - lane),
        ]
    for lane in range(4, 8):
        fleet.spans += [span(lane, None, 600, 420, type="thread"), span(lane, "81d2c3b4a5968778", 85, None)]
    for lane in range(12, 16):
        fleet.spans.append(span(lane, "0aa1b2c3d4e5f607", 150, 75, lost=True))
    fleet.spans.sort(key=lambda each: (each["lane"], each["start"]))
    wave = [0.3 + 0.7 * abs((place % 20) - 10) / 10 for place in range(60)]
    fleet.series = {
        **{f"units.{kind}": [speed * each for each in wave] for kind, speed in SPEEDS.items()},
        "jobs.running": [round(3 * each) for each in wave],
        "jobs.queued": [round(4 * each) for each in wave],
        "lanes.busy": [round(8 * each) for each in wave],
        "lanes.total": [12.0] * 60,
    }
    return fleet
