"""P7: trivial jobs until every result is in the client's hand, beside Celery, Dramatiq and Huey doing the same.

1,000 as a batch, and 8 clients at once that submit one after the other and wait for each.

`P7_PEERS=huey` measures beside those named alone. With `P7_CPU=1` it prints what each side's processes took of the
processor for a job, the client's own apart: the load of the machine changes that little.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks import guarded
from benchmarks.measure import Row, in_turns
from tests.integration.live import TOP, Live
from threads_cluster.client.api import Cluster

JOBS = 1000
#: Clients at once, threads of one process on both sides, and the jobs of each.
CLIENTS, EACH = 8, 50
BODY = {"start_number": 1, "number_count": 10}


@dataclass(frozen=True)
class Peer:
    """Another queue with two processes of workers and results in a database of the same Redis."""

    name: str
    variable: str
    database: int
    worker: tuple[str, ...]
    #: Return the result of one call of the task.
    one: Callable[[Any], Any]
    #: Return the results of so many calls, submitted as a batch where there is one.
    many: Callable[[Any, int], list[Any]]

    @property
    def task(self) -> Any:
        """Import the task, once the address of Redis is set."""
        module = __import__(f"benchmarks.peers.{self.name}_peer", fromlist=["statistics"])
        return module.statistics


def _celery_batch(task: Any, count: int) -> list[Any]:
    from celery import group

    results: list[Any] = group(task.s(BODY) for _ in range(count)).apply_async().get(timeout=120)
    return results


def _dramatiq_batch(task: Any, count: int) -> list[Any]:
    from dramatiq import group

    return list(group(task.message(BODY) for _ in range(count)).run().get_results(block=True, timeout=120_000))


PEERS = (
    Peer(
        name="celery",
        variable="CELERY_REDIS_URL",
        database=1,
        worker=("celery", "-A", "benchmarks.peers.celery_peer", "worker", "-c", "2", "-l", "warning"),
        one=lambda task: task.delay(BODY).get(timeout=120),
        many=_celery_batch,
    ),
    Peer(
        name="dramatiq",
        variable="DRAMATIQ_REDIS_URL",
        database=2,
        worker=("dramatiq", "benchmarks.peers.dramatiq_peer", "--processes", "2", "--threads", "1"),
        one=lambda task: task.send(BODY).get_result(block=True, timeout=120_000),
        many=_dramatiq_batch,
    ),
    Peer(
        name="huey",
        variable="HUEY_REDIS_URL",
        database=3,
        worker=("huey.bin.huey_consumer", "benchmarks.peers.huey_peer.huey", "-w", "2", "-k", "process"),
        one=lambda task: task(BODY).get(blocking=True, timeout=120),
        many=lambda task, count: task.map([BODY] * count).get(blocking=True, timeout=120),
    ),
)


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


def _theirs(peer: Peer) -> float:
    started = time.perf_counter()
    results = peer.many(peer.task, JOBS)
    assert len(results) == JOBS and all(result["count"] == 10 for result in results)
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


def _theirs_single(peer: Peer) -> float:
    task = peer.task

    def call() -> None:
        assert peer.one(task)["count"] == 10

    return _at_once(call)


@contextlib.contextmanager
def _started(peer: Peer, live: Live) -> Iterator[subprocess.Popen[bytes]]:
    """Give the process of a peer's workers, once they have computed a job."""
    os.environ[peer.variable] = f"redis://127.0.0.1:{live.redis_port}/{peer.database}"
    with (live.folder / f"{peer.name}.log").open("ab") as log:
        process = subprocess.Popen([sys.executable, "-m", *peer.worker], cwd=TOP, stdout=log, stderr=log)
    try:
        with _explained(live.folder / f"{peer.name}.log"):
            peer.one(peer.task)
        yield process
    finally:
        process.terminate()
        process.wait(30)


@contextlib.contextmanager
def _explained(log: Path) -> Iterator[None]:
    """Print what a peer's workers said where they do not compute."""
    try:
        yield
    except Exception:
        print(log.read_text(errors="replace")[-4000:], file=sys.stderr)
        raise


class _Meter:
    """CPU time of the processes of one side, by name, each with those that it has started."""

    def __init__(self, processes: dict[str, int]) -> None:
        roots = {name: psutil.Process(pid) for name, pid in processes.items()}
        self._trees = {name: [root, *root.children(recursive=True)] for name, root in roots.items()}
        self._trees["client"] = [psutil.Process()]

    def _seconds(self) -> dict[str, float]:
        return {
            name: sum(times.user + times.system for times in (one.cpu_times() for one in tree))
            for name, tree in self._trees.items()
        }

    def measured(self, call: Callable[[], float], jobs: int, what: str) -> float:
        """Return what the call returns, and print the milliseconds a job."""
        before, answer, after = self._seconds(), call(), self._seconds()
        took = {name: 1000 * (after[name] - before[name]) / jobs for name in before}
        shown = ", ".join(f"{name} {took[name]:.2f}" for name in took)
        print(f"{what}: {sum(took.values()):.2f} ms of CPU a job: {shown}", file=sys.stderr)
        return answer


def _metered(live: Live, peer: Peer, worker: subprocess.Popen[bytes]) -> Callable[..., Callable[[], float]]:
    """Return what makes a measured call of a call: of ours, or of the peer's where its name is given."""
    if not os.environ.get("P7_CPU"):
        return lambda call, jobs, name="": call
    redis = {"redis": live.processes["redis"].pid}
    ours = _Meter({name: process.pid for name, process in live.processes.items()})
    theirs = _Meter({"worker": worker.pid, **redis})
    return lambda call, jobs, name="": lambda: (theirs if name else ours).measured(call, jobs, name or "ours")


def run() -> list[Row]:
    """Measure the batch, and the clients at once where the cluster is open."""
    wanted = os.environ.get("P7_PEERS", "").split(",")
    rows: list[Row] = []
    with guarded.cluster() as (live, cluster):
        for peer in PEERS:
            if wanted == [""] or peer.name in wanted:
                with _started(peer, live) as worker:
                    rows += _beside(peer, live, cluster, _metered(live, peer, worker))
    return rows


def _beside(peer: Peer, live: Live, cluster: Cluster, metered: Callable[..., Callable[[], float]]) -> list[Row]:
    _ours(cluster), _theirs(peer)
    ours, theirs = metered(lambda: _ours(cluster), JOBS), metered(lambda: _theirs(peer), JOBS, peer.name)
    rows = [_row("P7@1000", peer, *in_turns(ours, theirs, 5, f"P7 {peer.name}"))]
    if not os.environ.get("GUARDED"):
        _ours_single(live), _theirs_single(peer)
        jobs = CLIENTS * EACH
        ours = metered(lambda: _ours_single(live), jobs)
        theirs = metered(lambda: _theirs_single(peer), jobs, peer.name)
        rows.append(_row("P7@8-clients", peer, *in_turns(ours, theirs, 5, f"P7 {peer.name}, single")))
    return rows


def _row(name: str, peer: Peer, ours: float, theirs: float) -> Row:
    names = {"celery": "Celery, prefork 2", "dramatiq": "Dramatiq, 2 processes", "huey": "Huey, 2 processes"}
    # The rows beside Celery keep the names that they had when it was the only peer.
    where = name if peer.name == "celery" else f"{name}/{peer.name}"
    return Row(id=where, ours=ours, peer=theirs, unit="jobs/s", peer_name=names[peer.name])
