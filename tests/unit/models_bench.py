"""Workflows with models and data, whose programs create the files that a test requires."""

from __future__ import annotations

import re
from typing import Any

from tests.unit.artifact_bench import TOKEN, manifest_of, sha_of
from tests.unit.workflow_bench import Flows

_ON_HOST = re.compile(r"[\w.-]+:(?:disk|dram|gpu\d+)")
WEIGHTS = b"GGUF: weights of a test"


class Pool(Flows):
    """Workflows whose programs create files before they finish."""

    def __init__(self, *given: Any, **settings: Any) -> None:
        super().__init__(*given, **settings)
        self._left: dict[str, bytes] = {}

    def put_model(self, name: str, data: bytes = WEIGHTS, path: str = "tiny.gguf", token: str = TOKEN) -> str:
        """Store a model like `cluster artifact put`, and return its artifact."""
        return self.put(name, {path: data}, token)

    def put(self, name: str, files: dict[str, bytes], token: str = TOKEN) -> str:
        for data in files.values():
            self.put_file(data, token=token)
        rows = [["f", path, len(data), sha_of(data)] for path, data in sorted(files.items())]
        answer = self.commit(*rows, name=name, token=token)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["artifact"]["artifact_id"])

    def leave(self, workflow: str, action: str, files: dict[str, bytes]) -> None:
        """Let the program of an action create these files and finish."""
        self._left = files
        self.done(workflow, action)
        self._left = {}

    def lease_next(self, job: str) -> Any:
        lease = super().lease_next(job)
        leased = self.store.outputs.leased(job, lease.token)
        if self._left and leased:
            rows = []
            for path, data in sorted(self._left.items()):
                self.put_file(data)
                rows.append(["f", f"outputs/0/{path}", len(data), sha_of(data)])
            how, _ = self.trees.commit_by(
                leased.tenant, manifest_of(*rows), lambda new: self.store.outputs.keep(leased, [(0, 1)], new)
            )
            assert how in ("new", "there")
        return lease

    def models(self, **more: Any) -> list[Any]:
        answer = self.ask("GET", "/api/v1/models", **more)
        assert answer.status_code == 200, answer.text
        rows: list[Any] = answer.json()["models"]
        return rows

    def model(self, name: str, **more: Any) -> Any:
        answer = self.ask("GET", f"/api/v1/models/{name}", **more)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def begin(self, path: str, body: Any, **more: Any) -> str:
        """Submit a workflow through the API and check it once. The hosts of its locations get a runner."""
        self.add_runners(*(text.partition(":")[0] for text in map(str, body.values()) if _ON_HOST.fullmatch(text)))
        answer = self.ask("POST", f"/api/v1/{path}", body, **more)
        assert answer.status_code == 202, answer.text
        workflow = str(answer.json()["task_id"])
        self.look(workflow)
        return workflow

    def add_runners(self, *hosts: str) -> None:
        """Send the heartbeat of a runner on each of these hosts."""
        for host in hosts:
            row: dict[str, Any] = {"device": "runner", "state": "idle", "lanes": 1, "host": host}
            self.store.fleet.heartbeat(f"{host}-runner", self.store.fleet.birth(), row)

    def files(self, artifact: str) -> list[str]:
        return sorted(one.path for one in self.trees.entries("default", self.trees.find("default", artifact)))
