"""R1: kill -9 of a worker and of a lane's child with every core busy, until the range they held is leased again.

Each kill is in the middle of a job, whose result must be exact; processes that only count keep the cores busy besides.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from benchmarks.measure import Row
from tests.chaos import work
from tests.chaos.bench import Bench
from tests.integration.live import until
from tests.redis_servers import VERSIONS, server_of

KILLS = 20
GOAL_SECONDS = 5.0
JOB = ("collatz", {"start_number": 1, "number_count": 3_000_000_000})


@contextmanager
def busy_cores() -> Iterator[None]:
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def kill_worker(bench: Bench) -> None:
    bench.kill("worker-1")


def kill_child(bench: Bench) -> None:
    os.kill(bench.lanes_of("worker-1")[0], signal.SIGKILL)


def held(bench: Bench, job: str) -> dict[str, tuple[int, int, str]]:
    """Leases of a job: token -> first unit, end, lane."""
    leases = cast(dict[bytes, bytes], bench.redis().hgetall(f"ct:job:{job}:lease"))
    rows = {token.decode(): text.decode().split(":", 6) for token, text in leases.items()}
    return {token: (int(row[0]), int(row[1]), row[6]) for token, row in rows.items()}


def mine(bench: Bench, job: str) -> dict[str, tuple[int, int, str]]:
    """Leases of the worker that is to die."""
    return {token: lease for token, lease in held(bench, job).items() if lease[2].startswith("worker-1")}


def measure(bench: Bench, kill: Callable[[Bench], None]) -> float | None:
    """Seconds from a kill until somebody leases the range; None when nothing was leased at that moment."""
    job = bench.submit(*JOB)
    until(lambda: bench.job(job)["progress"] > 0.1 and mine(bench, job))
    kill(bench)
    died = time.monotonic()
    lost = mine(bench, job)
    taken = None
    if lost:
        first = min(lo for lo, _, _ in lost.values())
        until(lambda: taken_over(bench, job, first, set(lost)), 60, every=0.005)
        taken = time.monotonic() - died
    if "worker-1" not in bench.processes:
        bench.start_worker(1)
    assert bench.result(job, 120) == work.undisturbed(*JOB)
    until(lambda: bench.get("/api/status")["workers"]["ready"] == 2, 120)
    return taken


def taken_over(bench: Bench, job: str, unit: int, old: set[str]) -> bool:
    return any(lo <= unit < hi and token not in old for token, (lo, hi, _) in held(bench, job).items())


def times_of(bench: Bench, name: str, kill: Callable[[Bench], None]) -> list[float]:
    """Seconds of KILLS takeovers."""
    seconds: list[float] = []
    while len(seconds) < KILLS:
        taken = measure(bench, kill)
        if taken is not None:
            seconds.append(taken)
            print(f"R1 {name} {len(seconds)}: {taken:.2f} s", file=sys.stderr)
    return seconds


def rows_of(name: str, seconds: list[float]) -> Iterator[Row]:
    for what, reached in (("median", statistics.median(seconds)), ("max", max(seconds))):
        yield Row(
            id=f"R1@{name}-{what}", ours=reached, peer=GOAL_SECONDS, unit="s", peer_name="the goal", less_is_better=True
        )


def run() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="recovery-") as folder, busy_cores():
        bench = Bench(Path(folder), version=next(filter(server_of, VERSIONS)), workers=2)
        try:
            bench.start()
            victims = (("child", kill_child), ("worker", kill_worker))
            return [row for name, kill in victims for row in rows_of(name, times_of(bench, name, kill))]
        finally:
            bench.stop()
