"""A fake in-memory cluster that runs jobs of persistent programs in a process on this machine."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from typing import Any

import httpx

from tests.unit.artifact_bench import sha_of
from tests.unit.cluster_fake import job
from tests.unit.programs_fake import EVENTS, Ran, page, unit
from threads_cluster import Cluster

#: Maximum size in bytes of a value in the list of units.
_MOST_VALUE = 1024


class Process:
    """Persistent program that runs units. It has the socket that a runner would provide."""

    def __init__(self, command: list[str]) -> None:
        self._ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(command, stdin=theirs.fileno())
        self._lines = self._ours.makefile("rb")

    def run(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """Return the answer to a unit, or None if the program has exited."""
        self._ours.sendall(json.dumps(message).encode() + b"\n")
        line = self._lines.readline()
        answer: dict[str, Any] | None = json.loads(line) if line else None
        return answer

    def end(self) -> None:
        self._ours.shutdown(socket.SHUT_RDWR)
        self._lines.close()
        self._ours.close()
        self._process.wait()


class Calling(Ran):
    """Fake cluster that runs each submitted job at once, in a process that stays alive between jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.takes_files()
        self.on("GET", "/api/events", httpx.Response(200, headers=EVENTS, text="retry: 2000\n\n"))
        self.replies.pop(("POST", "/api/submit"))
        self.stored: dict[str, bytes] = {}
        self.submitted: list[dict[str, Any]] = []
        #: True if submitted jobs wait until `end_job`.
        self.holds = False
        self.cancelled: set[str] = set()
        self._process: tuple[list[str], Process] | None = None
        self._lock = threading.RLock()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        with self._lock:
            if request.method == "POST" and request.url.path == "/api/submit":
                return self._submit(json.loads(request.content))
            if request.method == "PUT" and request.url.path == "/api/file-bundle":
                self._store(request.content)
            return super().__call__(request)

    def cluster(self, url: str = "http://127.0.0.1:1") -> Cluster:
        return Cluster(url, "", transport=httpx.MockTransport(self))

    def end(self) -> None:
        if self._process is not None:
            self._process[1].end()

    def _store(self, bundle: bytes) -> None:
        head, _, rest = bundle.partition(b"\n")
        for sha, size in json.loads(head):
            self.stored[sha], rest = rest[:size], rest[size:]

    def _submit(self, body: dict[str, Any]) -> httpx.Response:
        self.submitted.append(body)
        job_id, parameters = f"j{len(self.submitted)}", body["parameters"]
        if self.holds:
            return self._hold(job_id, len(parameters["items"]))
        units = [self._run(job_id, number, item, parameters) for number, item in enumerate(self._items(parameters))]
        self.on("GET", f"/api/jobs/{job_id}", job("done", job_id=job_id, type="command"))
        self._answer_units(job_id, units)
        answer: dict[str, Any] = {"job_id": job_id, "status": "done", "estimated_wait_seconds": None, "notes": []}
        return httpx.Response(202, json=answer)

    def _hold(self, job_id: str, count: int) -> httpx.Response:
        def cancel(request: httpx.Request) -> dict[str, Any]:
            self.cancelled.add(job_id)
            return job("cancelled", job_id=job_id)

        self.on("POST", f"/api/jobs/{job_id}/cancel", cancel)
        self.on("GET", f"/api/jobs/{job_id}", job("queued", job_id=job_id, type="command"))
        self._answer_units(job_id, [unit("waiting", number) for number in range(count)])
        answer: dict[str, Any] = {"job_id": job_id, "status": "queued", "estimated_wait_seconds": None, "notes": []}
        return httpx.Response(202, json=answer)

    def end_job(self, job_id: str, state: str) -> None:
        """End a job that waits."""
        self.on("GET", f"/api/jobs/{job_id}", job(state, job_id=job_id, type="command"))

    def _items(self, parameters: dict[str, Any]) -> list[Any]:
        if "items" in parameters:
            return list(parameters["items"])
        (data,) = (
            data for data in self.stored.values() if data[:1] == b'"' and data.count(b"\n") == parameters["count"]
        )
        return [json.loads(line) for line in data.splitlines()]

    def _run(self, job_id: str, number: int, item: Any, parameters: dict[str, Any]) -> dict[str, Any]:
        command = [word if isinstance(word, str) else word["literal"] for word in parameters["command"]]
        if self._process is None or self._process[0] != command:
            self.end()
            self._process = (command, Process(command))
        message = {"job": job_id, "unit": number, "attempt": 1, "item": item}
        answer = self._process[1].run(message | ({} if number else {"input": parameters["input"]}))
        if answer is None:
            self.end()
            self._process = None
            return unit("dead", number, exit=3, error="exit code 3")
        return self._ended(number, answer)

    def _ended(self, number: int, answer: dict[str, Any]) -> dict[str, Any]:
        text = json.dumps(answer.get("value")).encode()
        value = answer.get("value")
        artifact = None
        if "error" in answer or len(text) > _MOST_VALUE:
            value, artifact = (
                {"artifact": True},
                self.keeps_rows(["f", f"values/{number}.json", len(text), sha_of(text)], data=(text,)),
            )
        if "error" in answer:
            return unit("dead", number, exit=1, reason="error", error=answer["error"], artifact=artifact)
        return unit("done", number, value=value, artifact=artifact)

    def _answer_units(self, job_id: str, units: list[dict[str, Any]]) -> None:
        def answer(request: httpx.Request) -> dict[str, Any]:
            first, limit = int(request.url.params["from"]), int(request.url.params["limit"])
            return page(*[each for each in units if each["unit"] >= first][:limit], total=len(units))

        runs = [(each["unit"], each["unit"] + 1, each["state"]) for each in units]
        self.on("GET", f"/api/jobs/{job_id}/units", answer)
        self.on("GET", f"/api/jobs/{job_id}/unit-states", {"total": len(units), "runs": runs})
