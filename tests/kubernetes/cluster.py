"""Deploys a copy of the checkout with ./deploy-cluster.sh on the Kubernetes cluster that KUBECONFIG names."""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import httpx

from tests import fetch
from tests.stack.stack import eventually

NAMESPACE = "threads-cluster-test"
#: Name of an overlay of this checkout.
OVERLAY = os.environ.get("KUBERNETES_TEST_OVERLAY", "dev")
#: True if images are built and loaded into the nodes first; otherwise the nodes pull them.
LOAD = os.environ.get("KUBERNETES_TEST_LOAD") == "true"
#: True if the namespace is deleted at the end, which is unnecessary on a temporary node.
CLEANUP = os.environ.get("KUBERNETES_TEST_CLEANUP", "true") == "true"
#: Seconds by test and command, for all clusters of this run.
SECONDS: dict[tuple[str, str], float] = defaultdict(float)


class Cluster:
    """One deployment, with methods that send commands and requests to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.http = fetch.client()

    # -- commands -----------------------------------------------------------------------------------------------------

    def run(self, *command: str, timeout: float = 900, check: bool = True) -> subprocess.CompletedProcess[str]:
        environment, began = {**os.environ, "START_SECONDS": "600"}, time.monotonic()
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
        )
        _count(command, time.monotonic() - began)
        if check and done.returncode:
            raise AssertionError(
                f"{' '.join(command)}: {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-8000:]}"
            )
        return done

    def deploy(self, command: str, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = self.run("./deploy-cluster.sh", command, *arguments, "--namespace", NAMESPACE, check=check)
        if command in ("kubernetes", "restore") and check:
            self.connect()
        return done

    def start(self, workers: int, *, load: bool = False) -> None:
        options = ["--load"] if load else []
        self.deploy("kubernetes", str(workers), "0", "--overlay", OVERLAY, *options)

    def kubectl(self, *arguments: str, check: bool = True) -> str:
        return self.run("kubectl", "--namespace", NAMESPACE, *arguments, timeout=180, check=check).stdout

    def pods(self, name: str) -> list[str]:
        """Return the pods of a workload, without terminating ones."""
        found = self._pods("-l", f"app.kubernetes.io/name={name}")
        return [pod["metadata"]["name"] for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def ending(self) -> list[str]:
        """Return the terminating pods that are still running."""
        return [
            pod["metadata"]["name"]
            for pod in self._pods()
            if "deletionTimestamp" in pod["metadata"]
            and any("running" in one["state"] for one in pod["status"].get("containerStatuses", []))
        ]

    def _pods(self, *selector: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.kubectl("get", "pods", *selector, "-o", "json"))["items"]
        return found

    def kill(self, *pods: str) -> None:
        """Delete pods immediately, without a signal to their processes."""
        self.kubectl("delete", "pod", *pods, "--force", "--grace-period=0")

    def settle(self) -> None:
        for workload in ("statefulset/redis", "deployment/coordinator", "deployment/nginx", "deployment/cpu-workers"):
            self.kubectl("rollout", "status", workload, "--timeout=150s")

    def leader(self) -> str:
        """Return the pod of the leading coordinator."""
        read = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9090/metrics').read().decode())"
        for pod in self.pods("coordinator"):
            if "\ncluster_leader 1.0" in self.kubectl("exec", pod, "--", "python3", "-c", read, check=False):
                return pod
        return ""

    # -- over HTTP ----------------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Use the cluster's token and the address of load-balancer-service, which this machine must reach."""
        self.http.close()
        service = json.loads(self.kubectl("get", "service", "load-balancer-service", "-o", "json"))
        ingress = (service["status"].get("loadBalancer") or {}).get("ingress") or [{}]
        address = ingress[0].get("ip") or ingress[0].get("hostname") or service["spec"]["clusterIP"]
        with socket.create_connection((address, 80), timeout=10):
            self.url = f"http://{address}"
        secret = json.loads(self.kubectl("get", "secret", "passwords", "-o", "json"))["data"]["cluster_token"]
        self.headers = {"Authorization": f"Bearer {base64.b64decode(secret).decode().strip()}"}
        self.http = httpx.Client(base_url=self.url, headers=self.headers, timeout=40)

    def get(self, path: str, **query: Any) -> Any:
        answer = self.http.get(path, params=query)
        answer.raise_for_status()
        return answer.json()

    def submit(self, kind: str, **parameters: Any) -> str:
        key = {"Idempotency-Key": os.urandom(8).hex()}
        answer = self.http.post("/api/submit", json={"type": kind, "parameters": parameters}, headers=key)
        answer.raise_for_status()
        return str(answer.json()["job_id"])

    def result(self, job_id: str, seconds: float = 150) -> dict[str, Any]:
        def ended() -> bool:
            job = self.get(f"/api/jobs/{job_id}", wait_seconds=5)
            assert job["state"] not in ("failed", "cancelled"), job
            return bool(job["state"] == "done")

        eventually(ended, seconds, f"job {job_id} ends")
        found: dict[str, Any] = self.get(f"/api/jobs/{job_id}/result")["result"]
        return found

    def await_progress(self, job_id: str) -> None:
        eventually(
            lambda: int(self.get(f"/api/jobs/{job_id}")["done"]) > 0, 60, f"job {job_id} has committed something"
        )

    def live_workers(self) -> int:
        """Return the number of live CPU workers, without the overlay's runner."""
        rows = self.get("/api/workers")["workers"]
        return len([row for row in rows if row["live"] and row["device"] == "cpu" and row["state"] != "starting"])


def _count(command: tuple[str, ...], seconds: float) -> None:
    """Add seconds to the total of `deploy-cluster.sh COMMAND` or `kubectl VERB` in the current test."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition("::")[2]
    verb = next(word for word in command[1:] if not word.startswith("-") and word != NAMESPACE)
    SECONDS[test, f"{Path(command[0]).name} {verb}"] += seconds
