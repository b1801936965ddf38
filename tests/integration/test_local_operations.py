"""Tests scale, report, backup and restore of a running local cluster, like a user."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.local import processes
from jobs.settings import usable_cores
from tests import kernels
from tests.integration.test_local_cluster import Checkout, copied, until

pytestmark = pytest.mark.slow

#: Numbers of a job that takes some seconds.
NUMBERS = 5 * 10**8


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    made = copied(tmp_path_factory.mktemp("operations") / "a 100% checkout")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NUMBA_CACHE_DIR", str(kernels.CACHE))
        yield made
    processes.stop_marked(f"@{made.folder}")


def ask(checkout: Checkout, path: str, body: Any = None) -> Any:
    """Return the response of the API to the owner of the cluster."""
    url, token = ((checkout.folder / name).read_text().strip() for name in ("url", "token"))
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/api/{path}", json.dumps(body).encode() if body else None, headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def submit(checkout: Checkout, kind: str, **parameters: Any) -> str:
    return str(ask(checkout, "submit", {"type": kind, "parameters": parameters})["job_id"])


def succeed(checkout: Checkout, *arguments: str) -> subprocess.CompletedProcess[str]:
    done = checkout.call(*arguments)
    assert done.returncode == 0, done.stderr
    return done


def test_a_cluster_is_scaled_reported_backed_up_and_restored(checkout: Checkout, tmp_path: Path) -> None:
    backup = str(tmp_path / "backup.tar.gz")
    with checkout.up("--workers", "2"):
        program = submit(checkout, "command", command=["sleep", "86400"], count=1)
        computed = submit(checkout, "collatz", start_number=1, number_count=NUMBERS)
        until(lambda: ask(checkout, f"jobs/{computed}")["done"])

        assert "The cluster now has 1 CPU worker with " in succeed(checkout, "scale", "1").stderr
        live = {each["id"]: each["lanes"] for each in ask(checkout, "workers")["workers"] if each["live"]}
        assert live.keys() == {"cpu-1", "runner-1"} and live["cpu-1"] == usable_cores()
        assert ask(checkout, "status")["cluster_size"] == 2
        succeed(checkout, "backup", backup)
        later = submit(checkout, "command", command=["true"], count=1)

        report = succeed(checkout, "report").stdout
        sections = ('"cluster_size": 2', "units collatz cpu", "## Alerts", "ports: API and pages ")
        for words in ("redis ", "runner-1         RUNNING", *sections):
            assert words in report
        for secret in ("token", "secrets_key"):
            assert (checkout.folder / secret).read_text().strip() not in report

        done = succeed(checkout, "restore", backup, "--yes")
        assert "Restored " in done.stderr and "Unfinished jobs would be lost: running:" in done.stderr
        assert {job["job_id"] for job in ask(checkout, "jobs")["jobs"]} == {program, computed} - {later}
        assert checkout.cluster("run", "--no-files", "--", "echo", "hello").stdout == "hello\n"
        until(lambda: ask(checkout, f"jobs/{computed}")["state"] == "done")
        assert ask(checkout, f"jobs/{computed}")["done"] == NUMBERS
        assert "worker-lost" not in {alert["rule"] for alert in ask(checkout, "snapshot")["alerts"]}
        until(lambda: ask(checkout, f"jobs/{program}")["state"] == "running")
        assert " exited and is being restarted" not in checkout.said()
    torn = tmp_path / "torn.tar.gz"
    torn.write_bytes(Path(backup).read_bytes()[:-500])
    done = checkout.call("restore", str(torn), "--yes")
    assert (done.returncode, f"{torn} is not a complete backup" in done.stderr) == (1, True)
    assert "Start the cluster: ./deploy-cluster.sh local" in succeed(checkout, "restore", backup, "--yes").stderr
