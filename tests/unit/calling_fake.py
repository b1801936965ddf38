"""A fake in-memory cluster that runs jobs of persistent programs in a process on this machine."""

from __future__ import annotations

import json
import socket
import subprocess
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx

from tests.unit.artifact_bench import sha_of
from tests.unit.cluster_fake import job
from tests.unit.programs_fake import EVENTS, Ran, page, unit
from threads_cluster import Cluster
from threads_protocol import manifest

#: Maximum size in bytes of a value in the list of units.
_MOST_VALUE = 1024


class Process:
    """Persistent program that runs units. It has the socket that a runner would provide."""

    def __init__(self, command: list[str]) -> None:
        self._ours, theirs = socket.socketpair()
        self._folder = tempfile.TemporaryDirectory(prefix="calls-")
        with theirs:
            self._process = subprocess.Popen(command, stdin=theirs.fileno(), cwd=self._folder.name)
        self._lines = self._ours.makefile("rb")

    def run(self, message: dict[str, Any], *files: bytes) -> dict[str, Any] | None:
        """Return the answer to a unit, or None if the program has exited. Descriptors of files go with the unit."""
        text = json.dumps(message).encode() + b"\n"
        with ExitStack() as stack:
            opened = [stack.enter_context(tempfile.TemporaryFile()) for _ in files]
            for file, data in zip(opened, files, strict=True):
                file.write(data)
                file.flush()
            sent = socket.send_fds(self._ours, [text], [file.fileno() for file in opened])
            if sent < len(text):
                self._ours.sendall(text[sent:])
        line = self._lines.readline()
        answer: dict[str, Any] | None = json.loads(line) if line else None
        return answer

    def take(self, name: str) -> bytes:
        """Return and delete a file of the program."""
        path = Path(self._folder.name) / name
        data = path.read_bytes()
        path.unlink()
        return data

    def end(self) -> None:
        self._ours.shutdown(socket.SHUT_RDWR)
        self._lines.close()
        self._ours.close()
        self._process.wait()
        self._folder.cleanup()


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
        #: True if calls take longer than their timeout.
        self.is_slow = False
        self.cancelled: set[str] = set()
        #: Paths and hashes of the files of each artifact of calls, by its ID. A deleted artifact is missing.
        self.artifacts: dict[str, dict[str, str]] = {}
        #: Numbers of bytes of the uploaded files.
        self.uploaded: list[int] = []
        #: Values and output files of the units of each job.
        self.results: dict[str, list[tuple[Any, dict[str, bytes]]]] = {}
        #: True if runners ignore units in items. Error that runners return instead of reading results.
        self.is_old, self.lacks = False, ""
        #: True if a job on which another job depends was deleted.
        self.refuses_after = False
        #: Hashes of the files that the client has downloaded.
        self.downloaded: list[str] = []
        self._parts: dict[str, bytes] = {}
        self._process: tuple[list[str], Process] | None = None
        self._lock = threading.RLock()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        with self._lock:
            if request.method == "POST" and request.url.path == "/api/submit":
                return self._submit(json.loads(request.content))
            if request.method == "PUT" and request.url.path == "/api/file-bundle":
                self._store(request.content)
            if request.method == "PUT" and "/parts/" in request.url.path:
                return self._store_part(request)
            if request.method == "GET" and request.url.path.startswith("/api/files/"):
                self.downloaded.append(request.url.path.rpartition("/")[2])
            is_temporary = request.url.params.get("name", "").startswith(("put-", "calls-"))
            if request.method == "POST" and request.url.path == "/api/artifacts" and is_temporary:
                entries = manifest.entries(request.content)
                self.artifacts[sha_of(request.content)] = {each.path: each.sha for each in entries if each.is_file}
            if request.method == "DELETE" and request.url.path.startswith("/api/artifacts/"):
                self.artifacts.pop(request.url.path.rpartition("/")[2], None)
                return httpx.Response(204)
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
            self.uploaded.append(size)

    def _store_part(self, request: httpx.Request) -> httpx.Response:
        sha, size = request.url.path.split("/")[3], int(request.url.params["size"])
        self._parts[sha] = self._parts.get(sha, b"") + request.content
        if len(self._parts[sha]) == size:
            self.stored[sha] = self._parts.pop(sha)
            self.uploaded.append(size)
            self.on("POST", f"/api/files/{sha}/complete", httpx.Response(200, json={}))
        return httpx.Response(200, json={})

    def _submit(self, body: dict[str, Any]) -> httpx.Response:
        self.submitted.append(body)
        if body.get("after") and self.refuses_after:
            refusal = {"type": "urn:NotFound", "title": "", "status": 404, "detail": "after: no job", "field": "after"}
            return httpx.Response(404, json=refusal)
        job_id, parameters = f"j{len(self.submitted)}", body["parameters"]
        if self.holds:
            return self._hold(job_id, len(self._items(parameters)), "blocked" if body.get("after") else "queued")
        self.results[job_id] = []
        units = [self._run(job_id, number, item, parameters) for number, item in enumerate(self._items(parameters))]
        self.on("GET", f"/api/jobs/{job_id}", job("done", job_id=job_id, type="command"))
        self._answer_units(job_id, units)
        answer: dict[str, Any] = {"job_id": job_id, "status": "done", "estimated_wait_seconds": None, "notes": []}
        return httpx.Response(202, json=answer)

    def _hold(self, job_id: str, count: int, state: str) -> httpx.Response:
        def cancel(request: httpx.Request) -> dict[str, Any]:
            self.cancelled.add(job_id)
            return job("cancelled", job_id=job_id)

        self.on("POST", f"/api/jobs/{job_id}/cancel", cancel)
        self.on("GET", f"/api/jobs/{job_id}", job(state, job_id=job_id, type="command"))
        self._answer_units(job_id, [unit("waiting", number) for number in range(count)])
        answer: dict[str, Any] = {"job_id": job_id, "status": state, "estimated_wait_seconds": None, "notes": []}
        return httpx.Response(202, json=answer)

    def end_job(self, job_id: str, state: str) -> None:
        """End a job that waits."""
        self.on("GET", f"/api/jobs/{job_id}", job(state, job_id=job_id, type="command"))

    def _items(self, parameters: dict[str, Any]) -> list[Any]:
        if "items" in parameters:
            return list(parameters["items"])
        data = self._file(parameters, "items.jsonl")
        return [json.loads(line) for line in data.splitlines()]

    def _file(self, parameters: dict[str, Any], path: str) -> bytes:
        return self.stored[self.artifacts[parameters["items_artifact"]][path]]

    def _run(self, job_id: str, number: int, item: Any, parameters: dict[str, Any]) -> dict[str, Any]:
        if self.is_slow:
            return unit("dead", number, reason="timeout", error="the program ran longer than timeout_seconds, 2")
        command = [word if isinstance(word, str) else word["literal"] for word in parameters["command"]]
        if self._process is None or self._process[0] != command:
            self.end()
            self._process = (command, Process(command))
        message = {"job": job_id, "unit": number, "attempt": 1, "item": item}
        files = [self._file(parameters, name) for name in item["files"]] if isinstance(item, dict) else []
        if isinstance(item, dict) and "units" in item and not self.is_old:
            if self.lacks:
                return unit("dead", number, reason="not started", error=self.lacks)
            found = [self.results[parent][place] for parent, place in item["units"]]
            message["results"] = [{"value": value, "files": list(outputs)} for value, outputs in found]
            files += [data for _, outputs in found for data in outputs.values()]
        answer = self._process[1].run(message | ({} if number else {"input": parameters["input"]}), *files)
        if answer is None:
            self.end()
            self._process = None
            return unit("dead", number, exit=3, error="exit code 3")
        taken = {name: self._process[1].take(name) for name in answer.get("files", [])}
        self.results[job_id].append((answer.get("value"), taken))
        outputs = {f"outputs/{number}/{name}": data for name, data in taken.items()}
        return self._ended(number, answer, outputs)

    def _ended(self, number: int, answer: dict[str, Any], files: dict[str, bytes]) -> dict[str, Any]:
        value, artifact = answer.get("value"), None
        text = json.dumps(value).encode()
        if len(text) > _MOST_VALUE:
            value, files = {"artifact": True}, {**files, f"values/{number}.json": text}
        if files:
            rows = [["f", path, len(data), sha_of(data)] for path, data in sorted(files.items())]
            artifact = self.keeps_rows(*rows, data=tuple(files.values()))
            self.artifacts[artifact] = {path: sha_of(data) for path, data in files.items()}
            self.stored.update({sha_of(data): data for data in files.values()})
        if "error" in answer:
            failed = {"exit": 1, "reason": "error", "error": answer["error"]}
            return unit("dead", number, **failed, value=value, artifact=artifact)
        return unit("done", number, value=value, artifact=artifact)

    def _answer_units(self, job_id: str, units: list[dict[str, Any]]) -> None:
        def answer(request: httpx.Request) -> dict[str, Any]:
            first, limit = int(request.url.params["from"]), int(request.url.params["limit"])
            return page(*[each for each in units if each["unit"] >= first][:limit], total=len(units))

        runs = [(each["unit"], each["unit"] + 1, each["state"]) for each in units]
        self.on("GET", f"/api/jobs/{job_id}/units", answer)
        self.on("GET", f"/api/jobs/{job_id}/unit-states", {"total": len(units), "runs": runs})
