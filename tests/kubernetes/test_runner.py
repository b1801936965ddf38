"""Tests a runner of programs on Kubernetes with an external client: exit codes, logs, shells and failures."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.cluster import Cluster
from tests.stack.stack import eventually

pytestmark = pytest.mark.timeout(600)
#: Grace period of the pods in seconds. A runner whose programs have exited needs only a few of them.
GRACE = 75
#: Program whose units print their number, wait, and return it.
SLOW = 'echo "unit $CLUSTER_UNIT"; sleep 3; echo "$CLUSTER_UNIT" >"$CLUSTER_RESULT"'


@pytest.fixture(scope="module", autouse=True)
def runner(cluster: Cluster) -> None:
    if not cluster.kubectl("get", "statefulset", "runner", "--ignore-not-found", "--output", "name"):
        pytest.skip("the overlay has no runner")
    alive(cluster)


def alive(cluster: Cluster) -> None:
    eventually(lambda: [row for row in runners(cluster) if row["live"]], 120, "a runner lives")


def runners(cluster: Cluster) -> list[dict[str, Any]]:
    return [row for row in cluster.get("/api/workers")["workers"] if row["device"] == "runner"]


def cli(cluster: Cluster, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Return the output of `cluster ARGUMENT...` in a folder with one file, given only the address and the token."""
    program = folder / "program"
    program.mkdir()
    (program / "file.txt").write_text("sent\n")
    token = cluster.headers["Authorization"].split()[1]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "CLUSTER_URL": cluster.url, "CLUSTER_TOKEN": token}
    command = [str(Path(sys.executable).with_name("cluster")), *arguments]
    return subprocess.run(
        command, cwd=program, env=environment, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL
    )


def submit(cluster: Cluster, script: str, count: int) -> str:
    job = cluster.submit("command", command=["sh", "-c", script], count=count)
    eventually(lambda: "running" in states(cluster, job), 60, "a unit runs")
    return job


def states(cluster: Cluster, job: str) -> list[str]:
    return [row["state"] for row in cluster.get(f"/api/jobs/{job}/units")["units"]]


def counted_once(cluster: Cluster, job: str, count: int) -> None:
    eventually(lambda: cluster.get(f"/api/jobs/{job}", wait_seconds=5)["state"] == "done", 150, f"job {job} is done")
    rows = cluster.get(f"/api/jobs/{job}/units")["units"]
    assert [(row["unit"], row["state"], row["value"]) for row in rows] == [
        (unit, "done", unit) for unit in range(count)
    ]
    assert int(cluster.get(f"/api/jobs/{job}")["done"]) == count


def test_a_program_gives_its_output_and_its_exit_code_and_sees_no_credential(cluster: Cluster, tmp_path: Path) -> None:
    done = cli(
        cluster, tmp_path, "run", "--", "sh", "-c", "cat file.txt; id -u; env; ls /run/secrets /var/run/secrets; exit 3"
    )
    assert done.returncode == 3, done.stderr
    assert done.stdout.startswith("sent\n10002\n") and "CLUSTER_JOB_ID=" in done.stdout
    assert "tc_" not in done.stdout and "KUBERNETES_" not in done.stdout and "redis" not in done.stdout.lower()


def test_a_shell_beside_a_program_is_in_its_pod(cluster: Cluster, tmp_path: Path) -> None:
    job = submit(cluster, "echo here >file; sleep 600", 1)
    done = cli(cluster, tmp_path, "attach", job, "--", "sh", "-c", "cat file; hostname; exit 7")
    assert (done.returncode, done.stdout) == (7, "here\nrunner-0\n"), done.stderr
    assert cluster.http.post(f"/api/jobs/{job}/cancel").is_success


def test_a_runner_that_is_told_to_end_does_so_at_once_and_its_units_are_counted_once(cluster: Cluster) -> None:
    job, began = submit(cluster, SLOW, 4), time.monotonic()
    cluster.kubectl("delete", "pod", "runner-0", "--wait=false")  # a node can list finished containers for a minute
    eventually(lambda: "runner-0" not in cluster.ending(), GRACE, "its containers have ended")
    assert time.monotonic() - began < GRACE / 2
    counted_once(cluster, job, 4)


def test_a_runner_that_is_killed_in_mid_unit_loses_none_and_counts_none_twice(cluster: Cluster) -> None:
    alive(cluster)
    job = submit(cluster, SLOW, 4)
    cluster.kill("runner-0")
    counted_once(cluster, job, 4)
