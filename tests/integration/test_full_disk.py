"""Tests programs that fill their runner's disk. The runner is root with a user per slot, or an ordinary user."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.live import Live, until
from tests.small_disk import mounted, used_mib

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="runners need Linux")

TOKEN = "t" * 40
#: Free space in bytes that a runner needs to start a program.
DISK_MIB = 260
#: User of a runner without root rights, and users of the slots of a root runner.
USER, SLOT_USERS = 61300, "61198-61199"
#: Program that writes until the disk is full.
FILL = "head -c 1G /dev/zero > big 2> /dev/null"
ENDS = ("done", "failed", "cancelled")


@dataclass
class Cluster:
    """A cluster with one runner with two slots on a small disk."""

    live: Live
    disk: Path
    #: The runner's user; None for the test's own user.
    user: int | None

    def start_runner(self) -> None:
        self.live.start_runner(0, 2, self.user, RUNNER_DIR=str(self.disk))

    def submit(self, command: str, **more: Any) -> str:
        return self.live.submit("command", {"command": command, "count": 1, **more})

    def ended(self, job: str) -> Any:
        """Return the record of a job's unit when the job has finished."""
        until(lambda: self.live.job(job)["state"] in ENDS, 60)
        [unit] = self.live.get(f"/api/jobs/{job}/units")["units"]
        return unit

    def echo(self) -> None:
        """Run an ordinary program."""
        assert self.ended(self.submit("echo y"))["state"] == "done"

    def is_full(self) -> bool:
        return used_mib(self.disk) >= DISK_MIB - 1


@pytest.fixture(scope="module", params=["root", "ordinary"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if os.geteuid() != 0 and request.param == "root":
        pytest.skip("this needs root")
    is_root = request.param == "root"
    folder = tmp_path_factory.mktemp("cluster")
    users: dict[str, Any] = {"RUNNER_UIDS": SLOT_USERS} if is_root else {}
    live = Live(
        folder, workers=0, CLUSTER_TOKEN=TOKEN, ARTIFACT_URL=f"file://{folder}/artifacts", RUNNER_LABELS="ssd", **users
    )
    with tempfile.TemporaryDirectory(prefix="runner-") as top:
        Path(top).chmod(0o711)
        with mounted(Path(top) / "disk", DISK_MIB) as disk:
            made = Cluster(live, disk, None if is_root else USER)
            if not is_root:
                os.chown(disk, USER, USER)
            try:
                live.start_redis()
                live.start_coordinator()
                made.start_runner()
                live.wait_ready(1)
                yield made
            finally:
                live.stop()


def test_a_unit_that_fills_the_disk_fails_and_anybodys_next_one_runs(cluster: Cluster) -> None:
    unit = cluster.ended(cluster.submit(f"{FILL}; echo x"))
    assert (unit["state"], unit["reason"]) == ("dead", "disk")
    assert unit["error"].startswith("disk full: ") and unit["artifact"], "its log is kept"
    until(lambda: used_mib(cluster.disk) == 0)
    cluster.echo()


def test_a_runner_whose_disk_is_full_is_named_with_its_reason_until_a_cancel_frees_the_disk(cluster: Cluster) -> None:
    large = cluster.submit(f"{FILL}; sleep 600")
    until(cluster.is_full)
    waits = cluster.submit("echo y", requirements={"labels": ["ssd"]})

    def reason() -> str:
        return str(cluster.live.job(waits)["waiting_because"])

    until(lambda: reason().startswith("runner-0 has label ssd, but accepts no work: the disk is full: "))
    assert cluster.live.post(f"/api/jobs/{large}/cancel").status_code == 200
    assert cluster.ended(waits)["state"] == "done"
    assert used_mib(cluster.disk) == 0


def test_a_runner_that_is_killed_on_a_full_disk_starts_and_goes_on(cluster: Cluster) -> None:
    large = cluster.submit(f"{FILL}; sleep 600", retries={"max": 0})
    until(cluster.is_full)
    cluster.live.kill("runner-0")
    assert cluster.live.post(f"/api/jobs/{large}/cancel").status_code == 200
    cluster.start_runner()
    cluster.echo()
    assert used_mib(cluster.disk) == 0
