"""P7: 1,000 trivial jobs as a batch, until every result is in the client's hand, beside Celery doing the same."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any

from benchmarks import guarded
from benchmarks.measure import Row, in_turns
from tests.integration.live import TOP, Live
from threads_cluster.api import Cluster

JOBS = 1000
BODY = {"start_number": 1, "number_count": 10}


def _ours(cluster: Cluster) -> float:
    started = time.perf_counter()
    answers = cluster.submit_batch([{"type": "collatz", "parameters": BODY}] * JOBS)
    waiting = [answer["job_id"] for answer in answers]
    while True:
        answers = cluster.results(waiting, wait_seconds=30)
        if all(answer["state"] == "done" for answer in answers):
            break
    assert all(answer["result"]["count"] == 10 for answer in answers)
    return JOBS / (time.perf_counter() - started)


def _celery(task: Any) -> float:
    from celery import group

    started = time.perf_counter()
    results = group(task.s(BODY) for _ in range(JOBS)).apply_async().get(timeout=120)
    assert all(result["count"] == 10 for result in results)
    return JOBS / (time.perf_counter() - started)


def _start_celery(live: Live) -> subprocess.Popen[bytes]:
    os.environ["CELERY_REDIS_URL"] = f"redis://127.0.0.1:{live.redis_port}/1"
    command = [sys.executable, "-m", "celery", "-A", "benchmarks.celery_peer", "worker", "-c", "2", "-l", "warning"]
    with (live.folder / "celery.log").open("ab") as log:
        return subprocess.Popen(command, cwd=TOP, stdout=log, stderr=log)


def run() -> list[Row]:
    with guarded.cluster() as (live, cluster):
        worker = _start_celery(live)
        from benchmarks.celery_peer import statistics

        try:
            statistics.delay(BODY).get(timeout=120)
            _ours(cluster), _celery(statistics)
            ours, peer = in_turns(lambda: _ours(cluster), lambda: _celery(statistics), 5, "P7")
        finally:
            worker.terminate()
            worker.wait(30)
    return [Row(id="P7@1000", ours=ours, peer=peer, ratio=ours / peer, unit="jobs/s", peer_name="Celery, prefork 2")]
