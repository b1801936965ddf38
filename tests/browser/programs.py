"""Fake in-memory coordinator for jobs with programs: one job with units, logs and outputs, and a runner."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

JOB = "5c7b3fb0a1d24e6f"
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
STATES = ("waiting", "running", "done", "retrying", "dead")


class Programs:
    """State of the fake coordinator, which tests change while the page is open."""

    def __init__(self, total: int, schema: dict[str, Any]) -> None:
        self.states = ["waiting"] * total
        self.logs: dict[int, bytes] = {}
        #: Output of running units as pieces of (stream, bytes), keyed by unit.
        self.live: dict[int, list[tuple[str, bytes]]] = {}
        self.outputs: dict[str, bytes] = {}
        self.artifacts: list[dict[str, Any]] = []
        self.schema = schema
        #: Token of the user, or None for an anonymous user, who may not run programs.
        self.token_id: str | None = "0123456789"
        self.submitted: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.number = 0
        self.changed = threading.Condition()
        #: If True, all requests are answered with 503 and all streams end, as without Redis.
        self.away = False

    def set(self, state: str, *units: int) -> None:
        with self.changed:
            for unit in units:
                self.states[unit] = state
            self.number += 1
            self.changed.notify_all()

    # -- answers ------------------------------------------------------------------------------------------------------

    def job(self) -> dict[str, Any]:
        done, total = self.states.count("done"), len(self.states)
        ends = all(state in ("done", "dead") for state in self.states)
        state = ("failed" if "dead" in self.states else "done") if ends else "running"
        return {
            "job_id": JOB,
            "tenant": "default",
            "type": "command",
            "state": state,
            "priority": "normal",
            "device": "runner",
            "queue": "runner.normal",
            "notes": [],
            "waiting_because": None,
            "parameters": {"command": ["./simulate", "--seed", "{unit}"], "count": total, "env": {}, "retries": None},
            "created": "2026-11-22T10:00:00.000Z",
            "started": "2026-11-22T10:00:01.000Z",
            "ended": "2026-11-22T10:03:00.000Z" if ends else None,
            "seconds": 179.0,
            "progress": done / total,
            "done": done,
            "total": total,
            "rate": None if ends else 12.5,
            "eta_seconds": None if ends else 40.0,
            "error": f"{self.states.count('dead')} of {total} units failed" if state == "failed" else None,
            "usage": {"lane_seconds": 512.0, "leases": 31, "expired_leases": 0, "workers": {}},
        }

    def unit(self, unit: int) -> dict[str, Any]:
        state = self.states[unit]
        ran, dead = state in ("done", "dead"), state == "dead"
        return {
            "unit": unit,
            "state": state,
            "exit": (137 if dead else 0) if ran else None,
            "reason": "timeout" if dead else None,
            "seconds": 1.25 + unit % 7 if ran else None,
            "attempts": (4 if dead else 1) if ran else None,
            "worker": "runner-1" if state != "waiting" else None,
            "value": {"loss": unit / 100} if state == "done" else None,
            "error": "ran for 60 s, its timeout; SIGKILL after 10 s of grace" if dead else None,
            "artifact": "a" * 64 if ran and self.outputs else None,
        }

    def units(self, start: int, limit: int, state: str) -> dict[str, Any]:
        numbers = [number for number in range(start, len(self.states)) if state in ("", self.states[number])][:limit]
        counts = {name: self.states.count(name) for name in STATES}
        return {"total": len(self.states), "counts": counts, "units": [self.unit(number) for number in numbers]}

    def excerpts(self, search: str) -> dict[str, Any]:
        lines = {
            unit: [{"stream": "stdout", "text": text} for text in log.decode().splitlines() if search in text]
            for unit, log in self.logs.items()
        }
        units = [
            {"unit": unit, "state": self.states[unit], "lines": found, "omitted": 0}
            for unit, found in lines.items()
            if found
        ]
        return {"units": units, "searched": len(self.logs), "next": None}

    def runs(self) -> dict[str, Any]:
        runs: list[list[Any]] = []
        for unit, state in enumerate(self.states):
            if runs and runs[-1][2] == state:
                runs[-1][1] = unit + 1
            else:
                runs.append([unit, unit + 1, state])
        return {"total": len(self.states), "runs": runs}

    def snapshot(self) -> dict[str, Any]:
        return {
            "jobs": [self.job()],
            "cursor": None,
            "stream": "1-0",
            "time": time.time(),
            "status": self.status(),
            "queues": [],
            "workers": [runner()],
            "gpus": [],
            "alerts": [],
        }

    def status(self) -> dict[str, Any]:
        return {
            "version": "0.16.0",
            "cluster_size": None,
            "desired_workers": {"cpu": 1},
            "lanes": 8,
            "workers": {"live": 1, "ready": 1, "cpu": {}, "gpu": {}},
            "jobs": {"running": 1},
            "queues": {},
            "oldest_wait_seconds": 0.0,
            "units_per_second": {"command": 12.5},
        }

    def manifest(self) -> bytes:
        rows = [["f", path, len(data), hashlib.sha256(data).hexdigest()] for path, data in sorted(self.outputs.items())]
        lines = ['{"artifact":1}', *(json.dumps(row, separators=(",", ":")) for row in rows)]
        return ("\n".join(lines) + "\n").encode()

    def begin(self) -> int:
        """Return the position at which an event stream starts."""
        return 0

    def events(self, place: int) -> tuple[list[dict[str, Any]], int]:
        """Return the events after a position, and the next position. Waits up to a second for a change."""
        return [self.event()], place + 1

    def event(self) -> dict[str, Any]:
        """Return the event that reports a change."""
        job = self.job()
        return {"type": "progress", "job": JOB, "state": job["state"], "done": job["done"], "total": job["total"]}

    def post(self, path: str, body: Any) -> tuple[int, Any]:
        """Return status and response of a POST request: a job, or the invalid parameter."""
        self.submitted.append(body)
        if body["parameters"].get("count") == 0:
            detail = "parameters.count: is 1 to 100000; got 0"
            return 422, {"title": "Invalid request", "status": 422, "detail": detail, "field": "parameters.count"}
        return 200, {"job_id": JOB, "status": "queued", "estimated_wait_seconds": 0.0, "notes": []}

    def answer(self, path: str, query: dict[str, str]) -> tuple[Any, dict[str, str]]:
        """Return the response to a GET request (JSON or bytes) and its headers. Raises KeyError for unknown paths."""
        if path.startswith(f"/api/jobs/{JOB}/logs/"):
            log = self.logs[int(path.rsplit("/", 1)[1])]
            start = int(query["from"])
            return log[start : start + int(query["limit"])], {"X-Log-Bytes": str(len(log))}
        if path == f"/api/jobs/{JOB}/logs":
            return self.excerpts(query.get("search", "")), {}
        if path == f"/api/jobs/{JOB}/units":
            return self.units(int(query["from"]), int(query["limit"]), query.get("state", "")), {}
        if path.startswith("/api/files/"):
            return {hashlib.sha256(data).hexdigest(): data for data in self.outputs.values()}[path[11:]], {}
        kind = {
            "type": "command",
            "summary": "Any program, with its files.",
            "model_version": 1,
            "schema": self.schema,
            "example": {"command": ["echo", "unit {unit}"], "count": 3},
            "questions": {},
            "binaries": {},
        }
        result = {"units": len(self.states), "seconds": {"sum": 12.5, "median": 1.25}, "attempts": len(self.states)}
        return {
            f"/api/jobs/{JOB}/result": lambda: {
                "job_id": JOB,
                "type": "command",
                "partial": False,
                "units": 1,
                "total": 1,
                "result": result,
            },
            "/api/jobs": lambda: {"jobs": [self.job()], "cursor": None},
            "/api/snapshot": self.snapshot,
            "/api/workflows": lambda: {"workflows": [], "cursor": None},
            "/api/status": self.status,
            f"/api/jobs/{JOB}": self.job,
            f"/api/jobs/{JOB}/unit-states": self.runs,
            f"/api/artifacts/{'a' * 64}/manifest": self.manifest,
            "/api/artifacts": lambda: {"artifacts": self.artifacts},
            "/api/job-types": lambda: {"kinds": [kind]},
            "/api/session": lambda: {
                "tenant": "default",
                "token_id": self.token_id,
                "token_name": None,
                "scopes": ["admin"],
                "by_cookie": False,
                "token_needed": False,
            },
            "/api/stream": lambda: {
                "from": 0,
                "to": 600,
                "lanes": [],
                "spans": [],
                "resolution_seconds": 0,
                "complete_since": 0,
            },
        }[path](), {}


def runner() -> dict[str, Any]:
    gpu = {"name": "NVIDIA H200", "memory_mib": 143_771, "compute_capability": "9.0"}
    return {
        "id": "runner-1",
        "device": "runner",
        "state": "busy",
        "live": True,
        "lanes": 8,
        "busy_lanes": 3,
        "job": JOB,
        "host": "host-1",
        "network": "0",
        "draining": False,
        "seen_seconds_ago": 0.4,
        "cpu_ratio": 0.35,
        "rates": {"command": 1.5},
        "memory_used_bytes": 9 << 30,
        "memory_total_bytes": 64 << 30,
        "gpus": [],
        "offer": {
            "cpus": 8,
            "memory_mib": 65_536,
            "gpus": [gpu, gpu],
            "host": "host-1",
            "labels": ["ssd", "zone-a"],
            "tenant": "",
        },
        "isolation": "uid",
        "running": [[JOB, 4], [JOB, 5], [JOB, 9]],
        "cordoned": "5 programs of 3 jobs failed at once; look at its disk",
    }


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, programs: Programs, dist: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.programs = programs
        self.dist = dist


class Handler(BaseHTTPRequestHandler):
    """Answers API requests from the server's `programs`, and requests for pages from its `dist`."""

    server: Server

    def log_message(self, *_: object) -> None:
        """Disable the request log."""

    def do_GET(self) -> None:
        split = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(split.query).items()}
        self.server.programs.asked.append(self.path)
        if self.server.programs.away and split.path.startswith("/api/"):
            problem = {"title": "Unavailable", "status": 503, "detail": "redis cannot be reached"}
            self._send(json.dumps(problem).encode(), "application/problem+json", 503)
        elif split.path == "/api/events":
            self._stream(self._events())
        elif split.path.endswith("/follow"):
            self._stream(self._followed(int(split.path.split("/")[-2])))
        elif split.path.startswith("/api/"):
            self._api(split.path, query)
        else:
            self._file(self.server.dist / split.path.strip("/"))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, answer = self.server.programs.post(urlsplit(self.path).path, self._parsed(body))
        self._send(json.dumps(answer).encode(), "application/json", status)

    def _parsed(self, body: bytes) -> Any:
        """Return the request body as parsed JSON, or else as text."""
        text = body.decode()
        return json.loads(text or "{}") if "json" in self.headers.get("Content-Type", "json") else text

    def _api(self, path: str, query: dict[str, str]) -> None:
        try:
            answer, headers = self.server.programs.answer(path, query)
        except KeyError:
            problem = {"title": "Not found", "status": 404, "detail": f"there is no {path}"}
            self._send(json.dumps(problem).encode(), "application/problem+json", 404)
            return
        raw = isinstance(answer, bytes)
        kind = "application/octet-stream" if raw else "application/json"
        self._send(answer if raw else json.dumps(answer).encode(), kind, 200, headers)

    def _file(self, path: Path) -> None:
        if path.is_file():
            self._send(path.read_bytes(), TYPES.get(path.suffix, "text/plain"))
        else:
            self._send(b"", "text/plain", 404)

    def _send(self, body: bytes, kind: str, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, frames: Iterator[str]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        try:
            for frame in frames:
                self.wfile.write(frame.encode())
                self.wfile.flush()
        except OSError:
            pass  # the page has disconnected

    def _events(self) -> Iterator[str]:
        told, at = 0, self.server.programs.begin()
        while not self.server.programs.away:
            with self.server.programs.changed:
                if self.server.programs.number == told:
                    self.server.programs.changed.wait(1)
                told = self.server.programs.number
                events, at = self.server.programs.events(at)
            for data in events:
                place, name = f"{int(time.time() * 1000)}-{told}", data["type"]
                yield f"id: {place}\nevent: {name}\ndata: {json.dumps(data)}\n\n"
            yield ": alive\n\n"

    def _followed(self, unit: int) -> Iterator[str]:
        sent = offset = 0
        while self.server.programs.states[unit] == "running":
            for stream, data in self.server.programs.live.get(unit, [])[sent:]:
                said = {
                    "unit": unit,
                    "attempt": 1,
                    "offset": offset,
                    "stream": stream,
                    "data": base64.b64encode(data).decode(),
                }
                sent, offset = sent + 1, offset + len(data)
                yield f"event: output\ndata: {json.dumps(said)}\n\n"
            with self.server.programs.changed:
                self.server.programs.changed.wait(0.2)
            yield ": alive\n\n"
        yield f'event: end\ndata: {{"state": "done", "exit": 0, "bytes": {offset}}}\n\n'


@contextmanager
def served(programs: Programs, dist: Path) -> Iterator[str]:
    """Serve the pages and the fake API on a free port, and return their URL."""
    server = Server(programs, dist)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
