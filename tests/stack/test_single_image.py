"""Tests the image with a whole cluster: `make image-walk`."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator

import pytest

from jobs import VERSION
from tests import fetch
from tests.ports import free_port
from tests.stack.stack import eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not os.environ.get("IMAGE"), reason="the image is large: make image-walk"),
]
IMAGE = f"threads/cluster:{VERSION}"
NAME = f"threads-single-{os.getpid()}"
#: Seconds until the cluster of a container is ready. The first start compiles kernels in the background.
START_SECONDS = 180


def docker(*arguments: str) -> str:
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"docker {' '.join(arguments)}: {done.stdout}{done.stderr}"
    return done.stdout


def cluster(*arguments: str) -> str:
    return docker("exec", NAME, "cluster", *arguments)


def read_log() -> str:
    done = subprocess.run(["docker", "logs", NAME], capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def list_jobs() -> set[str]:
    return {json.loads(line)["job_id"] for line in cluster("jobs", "--json").splitlines()}


def wait_for_starts(count: int) -> None:
    eventually(lambda: read_log().count("\nReady after ") == count, START_SECONDS, f"start {count} of the container")


@pytest.fixture
def url() -> Iterator[str]:
    """Start a container without capabilities and with a read-only root file system, and return its URL."""
    address = f"127.0.0.1:{free_port()}"
    hardened = ("--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
    docker("run", "-d", "--name", NAME, "-p", f"{address}:3000", "-v", f"{NAME}:/data", *hardened, IMAGE)
    try:
        wait_for_starts(1)
        yield f"http://{address}"
    finally:
        print(read_log())
        docker("rm", "-f", NAME)
        docker("volume", "rm", NAME)


def test_one_container_is_a_whole_cluster_and_keeps_its_jobs(url: str) -> None:
    [token] = re.findall(r"Admin token, which this log contains only once: (\S+)", read_log())
    [link] = re.findall(r"Pages: http://127\.0\.0\.1:3000(/\S+)", read_log())
    assert "<title>" in fetch.get(url).text and link.startswith("/#login=")
    assert fetch.get(f"{url}/docs/operations.html").status_code == 200
    assert fetch.get(f"{url}/api/status").status_code == 401
    status = fetch.get(f"{url}/api/status", headers={"Authorization": f"Bearer {token}"}).json()
    assert status["workers"]["ready"] == 2

    assert cluster("run", "--no-files", "--", "id", "-u") == "10001\n"
    assert "1000000" in cluster("submit", "collatz", "--start-number", "1", "--number-count", "1e6", "--wait")
    eventually(lambda: docker("inspect", "-f", "{{.State.Health.Status}}", NAME) == "healthy\n", 30, "health check")
    jobs = list_jobs()

    docker("stop", "-t", "60", NAME)
    assert docker("inspect", "-f", "{{.State.ExitCode}}", NAME) == "0\n"
    assert read_log().rstrip().endswith("Stopped. Jobs and results remain in /data/.cluster for the next start.")
    docker("start", NAME)
    wait_for_starts(2)
    assert read_log().count("Admin token") == 1
    assert len(jobs) >= 2 and jobs <= list_jobs()
