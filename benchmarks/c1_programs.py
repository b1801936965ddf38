"""C1: programs on two slots: 1,000 runs of `true` beside RQ and GNU parallel, 100 of one second beside the ideal."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import redis
import rq

from benchmarks.measure import Incomplete, Row, in_turns
from tests.integration.live import TOP, Live, until
from threads_cluster.client.api import Cluster

ADMIN = "an-admin-token-of-the-benchmarks"
UNITS, SECONDS, SLOTS, ROUNDS = 1000, 100, 2, 3


@contextlib.contextmanager
def _cluster(folder: Path) -> Iterator[tuple[Live, Cluster]]:
    """Give a cluster of one runner and a client of it."""
    live = Live(folder, workers=0, CLUSTER_TOKEN=ADMIN, AUTH="required", ARTIFACT_URL=f"file://{folder / 'artifacts'}")
    try:
        live.start_redis()
        live.start_coordinator()
        live.start_runner(slots=SLOTS)
        until(lambda: live.get("/api/status")["workers"]["ready"] == 1, 60)
        with Cluster(live.url(), token=ADMIN) as cluster:
            yield live, cluster
    finally:
        live.stop()


def _ours(cluster: Cluster, command: list[str], count: int) -> float:
    """Return the seconds from the submission until the result is there."""
    started = time.perf_counter()
    job = cluster.submit("command", {"command": command, "count": count})["job_id"]
    assert cluster.wait(job)["state"] == "done"
    assert cluster.result(job)["result"]["units"] == count
    return time.perf_counter() - started


def _parallel(command: list[str], count: int) -> float:
    """Return the seconds that GNU parallel takes for as many runs, `-N0`: without arguments."""
    started = time.perf_counter()
    rows = "\n".join(map(str, range(count)))
    subprocess.run(["parallel", f"-j{SLOTS}", "-N0", *command], input=rows, text=True, check=True)
    return time.perf_counter() - started


def _rq(queue: rq.Queue, command: list[str], count: int) -> float:
    """Return the seconds that two workers of RQ take for as many calls of `subprocess.check_call`."""
    started = time.perf_counter()
    jobs = queue.enqueue_many([rq.Queue.prepare_data(subprocess.check_call, (command,)) for _ in range(count)])
    while queue.count or queue.started_job_registry.count:
        time.sleep(0.02)
    assert all(job.get_status() == "finished" for job in jobs[:: max(1, count // 50)])
    return time.perf_counter() - started


@contextlib.contextmanager
def _rq_queue(live: Live) -> Iterator[rq.Queue]:
    """Give a queue that two workers of RQ serve, in a database of its own."""
    url = f"redis://127.0.0.1:{live.redis_port}/1"
    command = [sys.executable, "-m", "rq.cli", "worker", "--url", url, "--quiet", "peer"]
    with (live.folder / "rq.log").open("ab") as log:
        workers = [subprocess.Popen(command, cwd=TOP, stdout=log, stderr=log) for _ in range(SLOTS)]
    connection = redis.Redis.from_url(url)
    try:
        until(lambda: len(rq.Worker.all(connection=connection)) == SLOTS, 60)
        yield rq.Queue("peer", connection=connection)
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait(30)
        connection.close()


def run() -> list[Row]:
    if not shutil.which("parallel"):
        raise Incomplete("C1 without GNU parallel; install it: apt-get install parallel", [])
    true = ["true"]
    with tempfile.TemporaryDirectory() as folder, _cluster(Path(folder)) as (live, cluster), _rq_queue(live) as queue:
        _ours(cluster, true, 100), _parallel(true, 100), _rq(queue, true, 20)
        mine, parallel = in_turns(lambda: _ours(cluster, true, UNITS), lambda: _parallel(true, UNITS), ROUNDS, "C1")
        again, slow = in_turns(lambda: _ours(cluster, true, UNITS), lambda: _rq(queue, true, UNITS), ROUNDS, "C1 RQ")
        long = _ours(cluster, ["sleep", "1"], SECONDS)
    ideal = SECONDS / SLOTS
    return [
        Row(id="C1@true-parallel", ours=mine, peer=parallel, unit="s", peer_name="GNU parallel", less_is_better=True),
        Row(id="C1@true-rq", ours=again, peer=slow, unit="s", peer_name="RQ, 2 workers", less_is_better=True),
        Row(id="C1@1s-ideal", ours=long, peer=ideal, unit="s", peer_name="100 s over 2 slots", less_is_better=True),
    ]
