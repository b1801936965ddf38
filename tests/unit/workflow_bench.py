"""A coordinator application without a server, whose workflows advance and whose jobs finish when a test says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx

from coordinator.workflows.engine import Engine
from jobs.kinds import programs as program
from jobs.store.work import lease_tokens
from jobs.worker import execution
from tests.unit.artifact_bench import TOKEN, Bench

#: Number of rounds after which a workflow that still changes counts as endless.
LOOKS = 100


class Flows(Bench):
    """Workflows whose actions run programs with one unit unless specified otherwise."""

    def __init__(self, redis_url: str, folder: Path, **settings: Any) -> None:
        super().__init__(redis_url, folder, **{"secrets_key": "1" * 32, **settings})
        self.engine: Engine = self.app.state.coordinator.engine

    # -- workflows --------------------------------------------------------------------------------------------------

    def post(
        self, text: str | bytes, path: str = "/api/workflows", token: str = TOKEN, key: str = "", **more: str
    ) -> httpx.Response:
        octets = text.encode() if isinstance(text, str) else text
        headers = {"Content-Type": "application/yaml", **({"Idempotency-Key": key} if key else {}), **more}
        return self.ask("POST", path, octets=octets, token=token, **headers)

    def submit(self, *actions: str, name: str = "test", **more: Any) -> str:
        """Submit a workflow of these actions, each in YAML's flow style, and return its ID."""
        answer = self.post(workflow_text(*actions, name=name), **more)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["workflow_id"])

    def look(self, workflow: str) -> None:
        """Run rounds of the leader until nothing changes."""
        for _ in range(LOOKS):
            for due in self.store.workflows.take_due(1000):
                self.store.workflows.looked(due)
            while self.store.fleet.wake().more:
                pass
            if not self.engine.look(workflow).again:
                return
        raise AssertionError(f"workflow {workflow} changes for ever")

    def row(self, workflow: str) -> dict[str, Any]:
        answer = self.ask("GET", f"/api/workflows/{workflow}")
        assert answer.status_code == 200, answer.text
        row: dict[str, Any] = answer.json()
        return row

    def states(self, workflow: str) -> dict[str, str]:
        """Return the current state of each action."""
        return {action["action_id"]: action["state"] for action in self.row(workflow)["actions"]}

    def errors(self, workflow: str) -> dict[str, str]:
        return {one["action_id"]: one["error"] for one in self.row(workflow)["actions"] if one["error"]}

    def job_of(self, workflow: str, action: str) -> str:
        job = self.store.workflows.course(workflow)
        assert job is not None
        return job.jobs[action]

    def parameters(self, workflow: str, action: str) -> dict[str, Any]:
        """Return the parameters of an action's job."""
        parameters: dict[str, Any] = self.ask("GET", f"/api/jobs/{self.job_of(workflow, action)}").json()["parameters"]
        return parameters

    def steer(self, workflow: str, verb: str, **more: Any) -> httpx.Response:
        return self.ask("POST", f"/api/workflows/{workflow}/{verb}", **more)

    # -- jobs -------------------------------------------------------------------------------------------------------

    def done(self, workflow: str, *actions: str, value: Any = None) -> None:
        """Finish the jobs of these actions with a value per unit, and run the leader."""
        for action in actions:
            self.end(self.job_of(workflow, action), value)
        self.look(workflow)

    def failed(self, workflow: str, *actions: str) -> None:
        """Fail the jobs of these actions, and run the leader."""
        for action in actions:
            job = self.job_of(workflow, action)
            lease = self.lease_next(job)
            row = {
                "unit": 0,
                "exit": 3,
                "reason": "",
                "seconds": 0.1,
                "attempt": 1,
                "worker": "r",
                "error": "exit code 3",
            }
            assert self.store.leases.fail_unit(job, lease.token, "exit code 3", most=0, wait_ms=0, row=json.dumps(row))
        self.look(workflow)

    def end(self, job: str, value: Any = None) -> None:
        lease = self.lease_next(job)
        units = lease.hi - lease.lo
        part = program.finished_partial(lease.lo, "r", [10] * units, [1] * units, [value] * units)
        self.store.leases.commit(
            job, lease.token, lease.hi, execution.encode(part), ms=10, worker="r", device="runner", keep=False
        )
        gathered = self.store.results.gather(job)
        assert self.store.results.fold(job, gathered, execution.encode(part))
        gathered = self.store.results.gather(job)
        result = {
            "units": units,
            "seconds": {"sum": 1, "least": 1, "most": 1, "median": 1},
            "attempts": units,
            "workers": {"r": units},
        }
        assert self.store.results.finish(job, gathered, json.dumps(result).encode())

    def lease_next(self, job: str) -> Any:
        lease = self.store.leases.lease(job, lease_tokens.new(), want=1 << 40, worker="r", lane="r/0")
        assert not isinstance(lease, str), (job, lease)
        return lease

    def jobs(self) -> list[str]:
        """Return all jobs."""
        return sorted(name.decode() for name in self.store.client.zrange("ct:jobs", 0, -1))


def workflow_text(*actions: str, name: str = "test") -> str:
    """Return the text of a workflow; actions without a type run programs."""
    lines = [f"name: {name}", "actions:"]
    for action in actions:
        typed = action if "action_type" in action else f"{action}, action_type: command, command: [run]"
        lines.append(f"  - {{action_id: {typed}}}")
    return "\n".join(lines) + "\n"
