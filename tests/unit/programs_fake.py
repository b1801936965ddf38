"""A fake in-memory cluster that has run a program: a job, its unit, live output, and artifacts of its files."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import partial
from typing import Any

import httpx

from tests.unit.artifact_bench import manifest_of, sha_of
from tests.unit.cluster_fake import Fake, complete, job, problem
from threads_protocol.answers.artifacts import Artifact

EVENTS = {"Content-Type": "text/event-stream"}
FOLLOW, UNITS = "/api/jobs/j1/logs/0/follow", "/api/jobs/j1/units"


def unit(state: str = "done", number: int = 0, **more: Any) -> dict[str, Any]:
    """Return a unit as in the API."""
    return {
        "unit": number,
        "state": state,
        "exit": 0 if state == "done" else None,
        "reason": "",
        "seconds": 0.5,
        "attempts": 1,
        "worker": "runner-1",
        "value": None,
        "error": "",
        "artifact": None,
        **more,
    }


def page(*units: dict[str, Any], total: int | None = None) -> dict[str, Any]:
    counts: dict[str, int] = {}
    for each in units:
        counts[each["state"]] = counts.get(each["state"], 0) + 1
    return {"total": len(units) if total is None else total, "counts": counts, "units": list(units)}


def event(stream: str, offset: int, data: bytes, run: str = "aa", attempt: int = 1) -> str:
    """Return live output as an event of the API."""
    fields = {
        "unit": 0,
        "attempt": attempt,
        "offset": offset,
        "stream": stream,
        "run": run,
        "text": data.decode(errors="replace"),
        "data": base64.b64encode(data).decode(),
    }
    return f"id: 1-{offset}\nevent: output\ndata: {json.dumps(fields)}\n\n"


END = 'event: end\ndata: {"state": "done", "exit": 0, "bytes": 0}\n\n'


class Ran(Fake):
    """Fake cluster whose replies `on` can replace."""

    def __init__(self) -> None:
        super().__init__()
        accepted: dict[str, Any] = {"job_id": "j1", "status": "queued", "estimated_wait_seconds": None, "notes": []}
        self.on("POST", "/api/submit", httpx.Response(202, json=accepted))
        self.fits()
        self.on("GET", "/api/jobs/j1", self.job("running"), self.job("done"))
        self.on("POST", "/api/jobs/j1/cancel", self.job("cancelling"))
        self.live(END)
        self.units(unit())

    def fits(self, unschedulable: str | None = None) -> None:
        """Reply to estimates that a runner can take the program, or why none could."""
        estimate: dict[str, Any] = {"queue": "runner.normal", "estimated_wait_seconds": None, "notes": []}
        self.on("POST", "/api/estimate", estimate | {"unschedulable": unschedulable})

    @staticmethod
    def job(state: str, **more: Any) -> dict[str, Any]:
        return job(state, **({"type": "command", "done": 0, "total": 1} | more))

    def live(self, *parts: str) -> None:
        """Send these events to clients that follow the output."""
        self.on("GET", FOLLOW, httpx.Response(200, headers=EVENTS, text="".join(parts)))

    def units(self, *units: dict[str, Any]) -> None:
        """Return pages with these units."""

        def answer(request: httpx.Request) -> dict[str, Any]:
            first, limit = int(request.url.params["from"]), int(request.url.params["limit"])
            state = request.url.params.get("state")
            rows = [each for each in units if each["unit"] >= first and state in (None, each["state"])]
            return page(*rows[:limit], total=len(units)) | {"counts": page(*units)["counts"]}

        self.on("GET", UNITS, answer)

    def keeps(self, **files: bytes) -> str:
        """Store an artifact and return its ID. Slashes in paths are written as __."""
        named = {path.replace("__", "/"): data for path, data in files.items()}
        return self.keeps_rows(
            *(["f", path, len(data), sha_of(data)] for path, data in sorted(named.items())), data=tuple(named.values())
        )

    def keeps_rows(self, *rows: list[Any], data: tuple[bytes, ...] = ()) -> str:
        text = manifest_of(*rows)
        artifact = hashlib.sha256(text).hexdigest()
        self.on("GET", f"/api/artifacts/{artifact}/manifest", httpx.Response(200, content=text))
        for each in data:
            self.on("GET", f"/api/files/{sha_of(each)}", partial(ranged, each))
        self.files = {**getattr(self, "files", {}), **{sha_of(each): each for each in data}}
        self.on("POST", "/api/file-bundle", self._bundle)
        return artifact

    def _bundle(self, request: httpx.Request) -> httpx.Response:
        found = [(sha, self.files[sha]) for sha in json.loads(request.content)["hashes"]]
        head = json.dumps([[sha, len(data)] for sha, data in found]).encode()
        return httpx.Response(200, content=b"\n".join([head, b"".join(data for _, data in found)]))

    def takes_files(self) -> None:
        """Accept uploads; files that were already sent are known."""
        known: set[str] = set()

        def missing(request: httpx.Request) -> dict[str, Any]:
            hashes = json.loads(request.content)["hashes"]
            lacking = [sha for sha in hashes if sha not in known]
            known.update(hashes)
            return {
                "missing": lacking,
                "parts": {},
                "part_bytes": 8 << 20,
                "bundle_files": 1000,
                "bundle_bytes": 8 << 20,
            }

        def commit(request: httpx.Request) -> dict[str, Any]:
            self.committed = (request.url.params.get("name"), request.content)
            files = request.content.count(b"\n") - 1
            row = complete(Artifact, artifact_id=hashlib.sha256(request.content).hexdigest(), files=files, bytes=1)
            return {"artifact": row, "new": True}

        self.on("POST", "/api/missing-files", missing)
        self.on("PUT", "/api/file-bundle", lambda request: httpx.Response(200, json={}))
        self.on("POST", "/api/artifacts", commit)


def ranged(data: bytes, request: httpx.Request) -> httpx.Response:
    """Return the bytes of a file, or from the start of a requested range on."""
    asked = request.headers.get("Range", "")
    start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
    if start >= len(data) and asked:
        return problem(416, "there are not so many bytes")
    return httpx.Response(206 if asked else 200, content=data[start:])
