"""Tests a worker's error handling, with a kind that crashes, hangs and raises on request."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from jobs.store.server import connection
from tests.integration import held
from tests.integration.live import Live, running, until
from tests.lanes import lanes
from tests.redis_servers import any_server

SUM = {"sum": 4950, "count": 100}


def children(cluster: Live, worker: str = "worker-0") -> list[psutil.Process]:
    """Return a worker's lanes."""
    return lanes(cluster.processes[worker].pid)


def lives(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def test_a_job_is_computed_and_its_usage_says_by_whom(cluster: Live) -> None:
    job = cluster.submit("faulty", {"units": 100, "cpu_seconds": 1})
    assert cluster.result(job) == SUM
    usage = cluster.job(job)["usage"]
    assert usage["workers"]["worker-0"]["units"] == 100
    assert usage["workers"]["worker-0"]["device"] == "cpu"


def test_a_small_job_takes_the_fast_path_to_the_same_result(cluster: Live) -> None:
    job = cluster.submit("faulty", {"units": 100, "cpu_seconds": 0.001})
    assert cluster.result(job) == SUM
    assert cluster.job(job)["usage"]["leases"] == 1


def test_a_child_that_crashes_costs_one_try(cluster: Live, tmp_path: Path) -> None:
    job = cluster.submit(
        "faulty", {"units": 100, "seconds_per_unit": 0.01, "fault": "crash", "at": 60, "once": str(tmp_path / "once")}
    )
    assert cluster.result(job) == SUM
    until(lambda: len(children(cluster)) == 2)


def test_a_small_job_whose_child_crashes_is_tried_again(cluster: Live, tmp_path: Path) -> None:
    once = str(tmp_path / "once")
    job = cluster.submit("faulty", {"units": 100, "fault": "crash", "at": 60, "once": once, "cpu_seconds": 0.001})
    assert cluster.result(job) == SUM


def test_a_unit_that_always_crashes_is_isolated_and_named(cluster: Live) -> None:
    job = cluster.submit("faulty", {"units": 4, "fault": "crash", "at": 2, "cpu_seconds": 1})
    failed = until(lambda: (found := cluster.job(job))["state"] == "failed" and found, 180)
    assert failed["done"] == 3
    assert "unit 2" in failed["error"]


def test_a_child_that_hangs_is_killed_and_its_range_retried(cluster: Live, tmp_path: Path) -> None:
    parameters = {"units": 100, "seconds_per_unit": 0.01, "fault": "hang", "at": 60, "once": str(tmp_path / "once")}
    job = cluster.submit("faulty", {**parameters, "max_lease_seconds": 2})
    assert cluster.result(job) == SUM


def test_a_kernel_that_raises_fails_the_job_with_its_words_and_retry_goes_on(cluster: Live, tmp_path: Path) -> None:
    parameters = {"units": 10, "fault": "raise", "at": 5, "cpu_seconds": 1}
    job = cluster.submit("faulty", parameters)
    failed = cluster.wait_for(job, "failed", 60)
    assert "ZeroDivisionError: asked to" in failed["error"]
    assert cluster.post(f"/api/jobs/{job}/retry").json()["state"] in ("queued", "running")
    cluster.wait_for(job, "failed", 60)


def test_a_result_that_cannot_be_derived_fails_the_job(cluster: Live) -> None:
    for estimate in (0.001, 1):
        job = cluster.submit("faulty", {"units": 3, "fault": "result", "cpu_seconds": estimate})
        assert "asked to" in cluster.wait_for(job, "failed", 60)["error"]


@pytest.mark.alone
def test_cancel_stops_children_within_two_seconds(cluster: Live) -> None:
    job = cluster.submit("faulty", {"units": 100_000, "seconds_per_unit": 0.01})
    until(lambda: cluster.job(job)["done"])
    assert cluster.post(f"/api/jobs/{job}/cancel").status_code == 200
    asked = time.monotonic()
    cluster.wait_for(job, "cancelled", 5)
    assert time.monotonic() - asked <= 2.0


@pytest.mark.alone
def test_cancel_kills_a_child_that_does_not_listen_within_two_seconds(cluster: Live) -> None:
    job = cluster.submit("faulty", {"units": 2, "fault": "hang", "at": 0, "cpu_seconds": 1})
    cluster.wait_for(job, "running")
    time.sleep(0.3)
    assert cluster.post(f"/api/jobs/{job}/cancel").status_code == 200
    asked = time.monotonic()
    cluster.wait_for(job, "cancelled", 5)
    assert time.monotonic() - asked <= 2.0
    assert cluster.result(cluster.submit("faulty", {"units": 100})) == SUM


def test_retry_of_a_cancelled_job_goes_on_where_it_stopped(cluster: Live, tmp_path: Path) -> None:
    job = held.submit(cluster, tmp_path / "go_on", 400)
    until(lambda: cluster.job(job)["done"] > 50)
    cluster.post(f"/api/jobs/{job}/cancel")
    stopped = cluster.wait_for(job, "cancelled")
    assert 50 < stopped["done"] < 400
    (tmp_path / "go_on").touch()
    assert cluster.post(f"/api/jobs/{job}/retry").status_code == 200
    assert cluster.result(job) == {"sum": sum(range(400)), "count": 400}
    assert sum(worker["units"] for worker in cluster.job(job)["usage"]["workers"].values()) == 400


def test_pause_keeps_what_is_done_and_resume_goes_on(cluster: Live, tmp_path: Path) -> None:
    job = held.submit(cluster, tmp_path / "go_on", 400)
    until(lambda: cluster.job(job)["done"] > 20)
    assert cluster.post(f"/api/jobs/{job}/pause").json()["state"] == "paused"
    until(lambda: cluster.redis().zcard(f"ct:job:{job}:leases") == 0)
    at = cluster.job(job)["done"]
    time.sleep(0.7)
    assert cluster.job(job)["done"] == at < 400
    (tmp_path / "go_on").touch()
    assert cluster.post(f"/api/jobs/{job}/resume").status_code == 200
    assert cluster.result(job)["count"] == 400


@pytest.mark.alone
def test_a_high_job_overtakes_within_one_lease(cluster: Live) -> None:
    normal = cluster.submit("faulty", {"units": 1200, "seconds_per_unit": 0.01}, priority="normal")
    until(lambda: cluster.job(normal)["done"] > 100)
    high = cluster.submit("faulty", {"units": 200, "seconds_per_unit": 0.01}, priority="high")
    asked = time.monotonic()
    until(lambda: cluster.job(high)["state"] != "queued", every=0.01)
    assert time.monotonic() - asked < 1.5, "a lease takes about a second"
    assert cluster.result(high)["count"] == 200
    behind = cluster.job(normal)
    assert behind["state"] == "running" and behind["done"] < 1200
    assert cluster.result(normal) == {"sum": sum(range(1200)), "count": 1200}


def test_sigterm_commits_what_is_done_and_hands_back_the_rest(tmp_path: Path) -> None:
    with running(tmp_path, lanes=1) as cluster:
        job = cluster.submit("faulty", {"units": 2000, "seconds_per_unit": 0.01})
        until(lambda: cluster.job(job)["done"] > 10)
        before = cluster.job(job)["done"]
        time.sleep(0.4)
        cluster.kill("worker-0", signal.SIGTERM)
        after = cluster.job(job)
        assert after["done"] > before, "the lease in hand was not committed"
        assert cluster.redis().zcard(f"ct:job:{job}:leases") == 0
        assert cluster.redis().llen("rq:queue:cpu.normal") == 1
        until(lambda: cluster.get("/api/workers")["workers"][0]["state"] == "stopped")


@pytest.mark.parametrize("over_api", [False, True], ids=["redis", "api"])
def test_a_worker_that_is_stopped_while_its_kernels_compile_leaves_and_is_not_lost(
    cluster: Live, tmp_path: Path, over_api: bool
) -> None:
    name = "worker-8" if over_api else "worker-9"
    cluster.start_worker(int(name[-1]), over_api=over_api, NUMBA_CACHE_DIR=str(tmp_path))
    until(lambda: cluster.redis().zscore("ct:workers", name) and children(cluster, name), 120)
    started = children(cluster, name)
    cluster.kill(name, signal.SIGTERM)
    assert cluster.redis().zscore("ct:workers", name) is None, "the next sweep would report it as lost"
    assert cluster.redis().hget(f"ct:worker:{name}", "state") == b"stopped"
    events = [fields for _, fields in cluster.redis().xrange("ct:events") if fields.get(b"worker") == name.encode()]
    assert [fields[b"state"] for fields in events] == [b"joined", b"left"]
    until(lambda: not any(map(lives, started)))


def test_children_of_a_killed_worker_end(tmp_path: Path) -> None:
    with running(tmp_path) as cluster:
        orphans = children(cluster)
        assert len(orphans) == 2
        cluster.kill("worker-0")
        until(lambda: not any(map(lives, orphans)))


def test_a_drained_worker_takes_nothing_until_it_is_told_to(cluster: Live) -> None:
    assert cluster.post("/api/workers/worker-0/drain", {"on": True}).status_code == 200
    until(lambda: cluster.get("/api/workers")["workers"][0]["state"] == "drained")
    job = cluster.submit("faulty", {"units": 100})
    time.sleep(2.5)
    assert cluster.job(job)["state"] == "queued"
    because = "the only worker that serves the queue cpu.normal is drained"
    until(lambda: (cluster.job(job)["waiting_because"] or "").startswith(because))
    assert cluster.redis().llen("rq:queue:cpu.normal") == 1
    assert cluster.post("/api/workers/worker-0/drain", {"on": False}).status_code == 200
    assert cluster.result(job) == SUM


def test_a_lost_bell_is_heard_all_the_same(cluster: Live) -> None:
    job = cluster.submit("faulty", {"units": 1_000_000, "seconds_per_unit": 0.001})
    cluster.wait_for(job, "running")
    for client in range(5):
        cluster.redis().delete("rq:queue:cpu.normal")
        assert cluster.result(cluster.submit("faulty", {"units": 100}, priority="high")) == SUM, client
    cluster.post(f"/api/jobs/{job}/cancel")
    cluster.wait_for(job, "cancelled")


def test_a_bell_that_names_another_function_is_dropped(cluster: Live, tmp_path: Path) -> None:
    from rq import Queue
    from rq.serializers import JSONSerializer

    witness = tmp_path / "ran"
    Queue("cpu.normal", connection=cluster.redis(), serializer=JSONSerializer).enqueue(os.mkdir, str(witness))
    until(lambda: cluster.redis().llen("rq:queue:cpu.normal") == 0)
    assert cluster.result(cluster.submit("faulty", {"units": 100})) == SUM
    assert not witness.exists()
    until(lambda: "Dropped an unknown job" in cluster.log("worker-0"))


def test_redis_behind_a_unix_socket_is_reached(tmp_path: Path) -> None:
    socket = tmp_path / "redis.sock"
    live = Live(tmp_path, workers=0)
    binary = any_server()
    assert binary
    live.processes["redis"] = subprocess.Popen([binary, "--port", "0", "--unixsocket", str(socket), "--save", ""])
    try:
        until(socket.is_socket)
        client = connection.connect(f"unix://{socket}?db=0")
        assert until(client.ping), "it listens some time after there is its file"
        client.close()
    finally:
        live.stop()


def test_a_child_that_dies_while_idle_is_replaced(cluster: Live) -> None:
    cluster.result(cluster.submit("faulty", {"units": 100}))
    for child in children(cluster):
        child.kill()
    small = cluster.submit("faulty", {"units": 100, "cpu_seconds": 0.001})
    assert cluster.result(small) == SUM
    assert cluster.job(small)["usage"]["expired_leases"] == 0
    slow = cluster.submit("faulty", {"units": 600, "seconds_per_unit": 0.005})
    assert cluster.result(slow)["count"] == 600
    assert cluster.job(slow)["usage"]["expired_leases"] == 0
    until(lambda: len(children(cluster)) == 2)
