"""Tests that jobs whose processes are killed give exactly the same result as without kills."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests import fetch
from tests.integration.live import Live, running, until, within
from tests.integration.test_worker import children
from tests.stuck_function import stuck

JOBS: dict[str, dict[str, Any]] = {
    "collatz": {"start_number": 1, "number_count": 2_000_000_000},
    "thread": {"replicas": 8_000, "seed": 7},
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Start two workers with one lane each, so that one can take over the other's range."""
    with running(tmp_path_factory.mktemp("cluster"), workers=2, lanes=1) as live:
        yield live


@pytest.fixture(scope="module")
def undisturbed(cluster: Live) -> dict[str, Any]:
    """Return each job's result without kills."""
    return {kind: cluster.result(cluster.submit(kind, parameters), 120) for kind, parameters in JOBS.items()}


def kill_child(cluster: Live) -> None:
    os.kill(until(lambda: children(cluster, "worker-0"))[0].pid, signal.SIGKILL)


def kill_worker(cluster: Live) -> None:
    cluster.kill("worker-0")
    cluster.start_worker(0)


def kill_coordinator(cluster: Live) -> None:
    cluster.kill("coordinator-0")
    time.sleep(0.5)
    cluster.start_coordinator(0)


def kill_redis(cluster: Live) -> None:
    # While its disk is slow, Redis keeps what it was told for up to two seconds before it writes it.
    until(lambda: cluster.redis().info("persistence")["aof_buffer_length"] == 0)
    cluster.kill("redis")
    time.sleep(1)
    cluster.start_redis()


def kill_function(cluster: Live) -> None:
    with stuck(cluster.redis_port):
        answer = fetch.post(f"{cluster.url()}/api/submit", json={"type": "collatz", "parameters": JOBS["collatz"]})
        assert answer.status_code == 503 and "stop it with FUNCTION KILL" in answer.text


def partly_done(cluster: Live, job: str) -> Any:
    row = cluster.job(job)
    return row["progress"] > 0.1 and row


def begun(cluster: Live, kind: str) -> str:
    """Return a partly finished job. A job that finishes too early is followed by another one."""
    for _ in range(5):
        job = cluster.submit(kind, JOBS[kind])
        row = until(partial(partly_done, cluster, job), every=0.05)
        if row["state"] == "running":
            return job
    raise AssertionError("each job was over before the kill")


@pytest.mark.parametrize("kill", [kill_child, kill_worker, kill_coordinator, kill_redis, kill_function])
@pytest.mark.parametrize("kind", sorted(JOBS))
def test_a_kill_in_mid_job_changes_nothing(cluster: Live, undisturbed: dict[str, Any], kind: str, kill: Any) -> None:
    cluster.wait_ready(2)
    job = begun(cluster, kind)
    kill(cluster)
    assert cluster.result(job, 120) == undisturbed[kind]
    after = cluster.job(job)
    assert after["done"] == after["total"]


@pytest.mark.alone
def test_a_dead_workers_range_is_leased_again_within_five_seconds(cluster: Live) -> None:
    assert within(lambda: seconds_to_take_over(cluster), 5.0)


def seconds_to_take_over(cluster: Live) -> float:
    """Kill a worker, and return the seconds until none of its ranges is waiting."""
    cluster.wait_ready(2)
    job = cluster.submit("faulty", {"units": 2800, "seconds_per_unit": 0.005})
    until(lambda: cluster.job(job)["progress"] > 0.1)
    lost = until(lambda: ranges(cluster, job, "worker-0"))
    cluster.kill("worker-0")
    died = time.monotonic()
    lost = ranges(cluster, job, "worker-0") or lost
    until(lambda: not ranges(cluster, job, "worker-0") and all(taken(cluster, job, lo) for lo, _ in lost), every=0.02)
    took = time.monotonic() - died
    cluster.start_worker(0)
    assert cluster.result(job) == {"sum": sum(range(2800)), "count": 2800}
    return took


@pytest.mark.alone
def test_a_killed_lanes_range_is_leased_by_a_lane_that_is_warm_within_five_seconds(cluster: Live) -> None:
    assert within(lambda: seconds_to_lease_again(cluster), 5.0)


def seconds_to_lease_again(cluster: Live) -> float:
    """Kill a lane, and return the seconds until its range is leased again."""
    cluster.wait_ready(2)
    job = cluster.submit("faulty", {"units": 4000, "seconds_per_unit": 0.005})
    until(lambda: cluster.job(job)["progress"] > 0.05)
    lane = children(cluster, "worker-0")[0]
    lane.suspend()
    time.sleep(0.5)  # what it ended before is committed meanwhile
    [(lo, _)] = until(lambda: ranges(cluster, job, "worker-0"))
    lane.kill()
    died = time.monotonic()
    until(lambda: not ranges(cluster, job, "worker-0"), every=0.02)
    # The other lane takes it, or the one in the killed one's place once that is warm: whichever is free first.
    workers = ("worker-0", "worker-1")
    until(lambda: any(low <= lo < high for name in workers for low, high in ranges(cluster, job, name)), every=0.02)
    took = time.monotonic() - died
    until(lambda: ranges(cluster, job, "worker-0"), 60)
    assert cluster.result(job) == {"sum": sum(range(4000)), "count": 4000}
    assert cluster.job(job)["usage"]["expired_leases"] == 0
    return took


def ranges(cluster: Live, job: str, worker: str) -> list[tuple[int, int]]:
    """Return the ranges currently leased to a worker."""
    found = [text.decode().split(":") for text in cluster.redis().hvals(f"ct:job:{job}:lease")]
    return [(int(lo), int(hi)) for lo, hi, *_, lane in found if lane.startswith(worker)]


def taken(cluster: Live, job: str, lo: int) -> bool:
    """Return True if a unit is leased again or done, because it is neither free nor waiting for a retry."""
    left = cluster.redis().lrange(f"ct:job:{job}:free", 0, -1) + cluster.redis().zrange(f"ct:job:{job}:retry", 0, -1)
    return not any(int(low) <= lo < int(high) for low, high, *_ in (piece.decode().split(":") for piece in left))


def test_the_coordinator_may_be_gone_while_a_job_ends(cluster: Live) -> None:
    cluster.wait_ready(2)
    job = cluster.submit("faulty", {"units": 400, "seconds_per_unit": 0.005})
    cluster.kill("coordinator-0")
    until(lambda: cluster.redis().hget(f"ct:job:{job}", "state") == b"done")
    cluster.start_coordinator(0)
    assert cluster.result(job) == {"sum": sum(range(400)), "count": 400}
