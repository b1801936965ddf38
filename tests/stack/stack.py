"""Deploys a copy of the checkout with ./deploy-cluster.sh, with a separate project name and separate ports."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from tests import fetch
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
STATELESS = ("coordinator", "web")


def copy_of_the_checkout(folder: Path) -> None:
    """Copy all tracked and untracked files, without secrets and caches."""
    list_files = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(list_files, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)


def eventually(check: Callable[[], Any], seconds: float, what: str, every: float = 0.3) -> Any:
    """Return the first true result of `check`, or fail with a message about the awaited condition."""
    deadline, seen = time.monotonic() + seconds, None
    while time.monotonic() < deadline:
        try:
            seen = check()
        except httpx.HTTPError as error:
            seen = error
        else:
            if seen:
                return seen
        time.sleep(every)
    raise AssertionError(f"{what}: not within {seconds} s; last seen: {seen!r}")


class Stack:
    """One deployment. Commands run in its folder with an environment that contains its project name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = f"threads-test-{os.getpid()}"
        ports = {name: free_port() for name in ("HTTP_PORT", "COORDINATOR_PORT", "PROMETHEUS_PORT", "GRAFANA_PORT")}
        self.url = f"http://127.0.0.1:{ports['HTTP_PORT']}"
        self.api_url = f"http://127.0.0.1:{ports['COORDINATOR_PORT']}"
        self.prometheus = f"http://127.0.0.1:{ports['PROMETHEUS_PORT']}"
        lines = [f"{name}={port}" for name, port in ports.items()]
        lines += ["# a line of the user's own", "COMPOSE_FILE=docker-compose.yml:deploy/air-gapped.yml"]
        (folder / ".env").write_text("\n".join(lines) + "\n")
        self.environment = {**os.environ, "COMPOSE_PROJECT_NAME": self.project}
        self.environment.pop("CLUSTER_TOKEN", None)

    # -- commands -----------------------------------------------------------------------------------------------------

    def run(self, *command: str, timeout: float = 600, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
        )
        if check and done.returncode:
            told = f"{done.stdout[-4000:]}\n{done.stderr[-8000:]}"
            raise AssertionError(f"{' '.join(command)}: exit {done.returncode}\n{told}")
        return done

    def deploy(self, *arguments: str, timeout: float = 900, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.run("./deploy-cluster.sh", *arguments, timeout=timeout, check=check)

    def compose(self, *arguments: str, timeout: float = 300) -> str:
        return self.run("docker", "compose", *arguments, timeout=timeout).stdout

    def ids(self, service: str) -> list[str]:
        return self.compose("ps", "--quiet", service).split()

    def inspect(self, *ids: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.run("docker", "inspect", *ids).stdout)
        return found

    def kill_hard(self, container: str) -> None:
        """Kill the first process of a container with SIGKILL from outside, like the kernel's out-of-memory killer."""
        self.run("kill", "-9", str(self.inspect(container)[0]["State"]["Pid"]))

    def set(self, name: str, value: str) -> None:
        """Set a variable in .env."""
        path = self.folder / ".env"
        lines = [line for line in path.read_text().splitlines() if not line.startswith(f"{name}=")]
        path.write_text("\n".join([*lines, f"{name}={value}"]) + "\n")

    # -- over HTTP ----------------------------------------------------------------------------------------------------

    def get(self, path: str, **query: Any) -> Any:
        answer = fetch.get(f"{self.url}{path}", params=query, timeout=40)
        answer.raise_for_status()
        return answer.json()

    def submit(self, kind: str, **parameters: Any) -> str:
        answer = fetch.post(
            f"{self.url}/api/submit",
            json={"type": kind, "parameters": parameters},
            headers={"Idempotency-Key": os.urandom(8).hex()},
            timeout=60,
        )
        answer.raise_for_status()
        return str(answer.json()["job_id"])

    def job(self, job_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.get(f"/api/jobs/{job_id}")
        return found

    def result(self, job_id: str, seconds: float = 240) -> dict[str, Any]:
        def ended() -> dict[str, Any] | None:
            job = self.get(f"/api/jobs/{job_id}", wait_seconds=5)
            assert job["state"] not in ("failed", "cancelled"), job
            return job if job["state"] == "done" else None

        eventually(ended, seconds, f"job {job_id} ends")
        found: dict[str, Any] = self.get(f"/api/jobs/{job_id}/result")["result"]
        return found

    def await_progress(self, job_id: str) -> None:
        eventually(lambda: int(self.job(job_id)["done"]) > 0, 180, f"job {job_id} has committed something")

    def live_workers(self) -> list[dict[str, Any]]:
        rows = self.get("/api/workers")["workers"]
        return [node for node in rows if node["live"] and node["state"] != "starting"]

    def targets(self) -> list[tuple[str, str]]:
        """Return the job and health of every Prometheus target."""
        answer = fetch.get(f"{self.prometheus}/api/v1/targets", params={"state": "active"}, timeout=60)
        return sorted((row["labels"]["job"], row["health"]) for row in answer.json()["data"]["activeTargets"])

    def query(self, expression: str) -> list[dict[str, Any]]:
        answer = fetch.get(f"{self.prometheus}/api/v1/query", params={"query": expression}, timeout=60)
        body = answer.json()
        assert body["status"] == "success", f"{expression}: {body}"
        found: list[dict[str, Any]] = body["data"]["result"]
        return found
