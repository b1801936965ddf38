"""Tests a worker without Redis access next to one with access: equal results, whichever process is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import kernels
from tests.integration import held
from tests.integration.live import TOP, Live, until

AT_REDIS, REMOTE = "worker-0", "worker-1"
COLLATZ = {"start_number": 1, "number_count": 3_000_000, "density": True, "columns": 50}
#: A range in golden.json, whose sum of delays the reference computed.
GOLDEN, SUM = {"start_number": 3144228, "number_count": 68536}, 10447874


#: Name of the worker whose clock is an hour ahead.
AHEAD = "import time\nreal = time.time\ntime.time = lambda: real() + 3600\n"


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Start one worker with Redis access and one with API access, with two lanes each."""
    live = Live(tmp_path_factory.mktemp("mixed"), workers=0)
    (live.folder / "sitecustomize.py").write_text(AHEAD)
    try:
        live.start_redis()
        live.start_coordinator()
        live.start_worker(0)
        start_remote(live)
        live.wait_ready(2)
        yield live
    finally:
        live.stop()


def start_remote(cluster: Live) -> None:
    cluster.start_worker(1, over_api=True, PYTHONPATH=f"{cluster.folder}:{kernels.path(TOP)}")


def drain(cluster: Live, worker: str, on: bool) -> None:
    assert cluster.post(f"/api/workers/{worker}/drain", {"on": on}).status_code == 200
    states = {"drained"} if on else {"idle", "busy"}
    until(lambda: {row["id"]: row["state"] for row in cluster.get("/api/workers")["workers"]}[worker] in states)


def units(cluster: Live, job: str) -> dict[str, int]:
    """Return the number of a job's units by worker."""
    return {name: share["units"] for name, share in cluster.job(job)["usage"]["workers"].items()}


def test_each_alone_computes_the_same_result_to_the_bit(mixed: Live) -> None:
    results = []
    for away, computes in ((AT_REDIS, REMOTE), (REMOTE, AT_REDIS)):
        drain(mixed, away, on=True)
        jobs = [mixed.submit("collatz", parameters) for parameters in (COLLATZ, GOLDEN)]
        results.append([mixed.result(job) for job in jobs])
        assert all(units(mixed, job).keys() == {computes} for job in jobs)
        drain(mixed, away, on=False)
    assert results[0] == results[1]
    assert results[0][1]["delay"]["sum"] == SUM


def test_the_remote_worker_is_killed_in_mid_job_and_every_unit_counts_once(mixed: Live, tmp_path: Path) -> None:
    job = held.submit(mixed, tmp_path / "go_on", 1200)
    until(lambda: held.at_work(mixed, job) == {AT_REDIS, REMOTE})
    mixed.kill(REMOTE)
    start_remote(mixed)
    (tmp_path / "go_on").touch()
    assert mixed.result(job) == {"sum": sum(range(1200)), "count": 1200}
    assert sum(units(mixed, job).values()) == 1200


def test_the_coordinator_is_killed_in_mid_job_and_the_remote_worker_goes_on(mixed: Live, tmp_path: Path) -> None:
    mixed.wait_ready(2)  # one has just been started again
    drain(mixed, AT_REDIS, on=True)
    job = held.submit(mixed, tmp_path / "go_on", 500)
    until(lambda: mixed.job(job)["done"])
    mixed.kill("coordinator-0")
    mixed.start_coordinator()
    (tmp_path / "go_on").touch()
    assert mixed.result(job) == {"sum": sum(range(500)), "count": 500}
    assert units(mixed, job) == {REMOTE: 500}
    drain(mixed, AT_REDIS, on=False)


def test_a_coordinator_that_stops_ends_questions_that_wait_without_a_traceback(mixed: Live) -> None:
    until(lambda: mixed.get("/api/status")["workers"]["ready"] == len(mixed.processes) - 2, 60)
    mixed.kill("coordinator-0", signal.SIGTERM)
    mixed.start_coordinator()
    until(lambda: mixed.get("/api/status")["workers"]["ready"] == len(mixed.processes) - 2, 60)
    assert "Traceback" not in mixed.log("coordinator-0")


def test_a_worker_ends_at_once_while_it_waits_for_work_and_says_so(mixed: Live) -> None:
    mixed.start_worker(2, lanes=1, over_api=True)
    mixed.wait_ready(3)
    mixed.kill("worker-2", signal.SIGTERM)
    until(lambda: {row["id"]: row["state"] for row in mixed.get("/api/workers")["workers"]}["worker-2"] == "stopped")


def test_a_worker_without_a_token_that_counts_says_what_to_do(mixed: Live) -> None:
    given = {**kernels.ENVIRONMENT, "PYTHONPATH": kernels.path(TOP), "PATH": "/usr/bin:/bin", "METRICS_PORT": "0"}
    for token, words in (("", "WORKER_API requires WORKER_TOKEN"), ("tc_wrong", "denied access to this worker (401)")):
        environment = {**given, "WORKER_API": mixed.url(), "WORKER_TOKEN": token}
        ended = subprocess.run(
            [sys.executable, "-m", "cpu_worker"], cwd=TOP, env=environment, capture_output=True, text=True, timeout=60
        )
        assert ended.returncode == 2
        assert words in ended.stderr and "cluster token create NAME --scopes worker" in ended.stderr
