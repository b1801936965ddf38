"""P7: trivial jobs until every result is in the client's hand, beside Celery doing the same: 1,000 as a batch, and 8
clients at once that submit one after the other and wait for each.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks import guarded
from benchmarks.measure import Row, in_turns
from tests.integration.live import TOP, Live
from threads_cluster.api import Cluster

JOBS = 1000
#: Clients at once, threads of one process on both sides, and the jobs of each.
CLIENTS, EACH = 8, 50
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


def _at_once(call: Callable[[], None]) -> float:
    """Return jobs/s of CLIENTS threads that each make EACH calls, one after the other."""
    started = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as threads:
        for client in [threads.submit(_repeat, call) for _ in range(CLIENTS)]:
            client.result()
    return CLIENTS * EACH / (time.perf_counter() - started)


def _repeat(call: Callable[[], None]) -> None:
    for _ in range(EACH):
        call()


def _ours_single(live: Live) -> float:
    """Return the same of our client, of which each thread has one of its own."""
    own = threading.local()

    def call() -> None:
        if not hasattr(own, "cluster"):
            own.cluster = Cluster(live.url(), token="")
        assert own.cluster.run("collatz", BODY)["count"] == 10

    return _at_once(call)


def _celery_single(task: Any) -> float:
    def call() -> None:
        assert task.delay(BODY).get(timeout=120)["count"] == 10

    return _at_once(call)


def _start_celery(live: Live) -> subprocess.Popen[bytes]:
    os.environ["CELERY_REDIS_URL"] = f"redis://127.0.0.1:{live.redis_port}/1"
    command = [sys.executable, "-m", "celery", "-A", "benchmarks.celery_peer", "worker", "-c", "2", "-l", "warning"]
    with (live.folder / "celery.log").open("ab") as log:
        return subprocess.Popen(command, cwd=TOP, stdout=log, stderr=log)


def run() -> list[Row]:
    """Measure the batch, and the clients at once where the cluster is open."""
    with guarded.cluster() as (live, cluster):
        worker = _start_celery(live)
        from benchmarks.celery_peer import statistics

        try:
            statistics.delay(BODY).get(timeout=120)
            _ours(cluster), _celery(statistics)
            rows = [_row("P7@1000", *in_turns(lambda: _ours(cluster), lambda: _celery(statistics), 5, "P7"))]
            if not os.environ.get("GUARDED"):
                _ours_single(live), _celery_single(statistics)
                single = in_turns(lambda: _ours_single(live), lambda: _celery_single(statistics), 5, "P7 single")
                rows.append(_row("P7@8-clients", *single))
        finally:
            worker.terminate()
            worker.wait(30)
    return rows


def _row(name: str, ours: float, peer: float) -> Row:
    return Row(id=name, ours=ours, peer=peer, ratio=ours / peer, unit="jobs/s", peer_name="Celery, prefork 2")
