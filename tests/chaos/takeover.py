"""How soon a range is leased again whose worker, or whose lane, got kill -9: `python -m tests.chaos.takeover`.

Both cores are kept busy by processes that only count. Each kill is in the middle of a job, whose result must be exact.
"""

from __future__ import annotations

import argparse
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

from tests.chaos import work
from tests.chaos.bench import Bench, redis_of
from tests.integration.live import until

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
    found = bench.redis().hgetall(f"ct:job:{job}:lease").items()
    rows = {token.decode(): text.decode().split(":", 6) for token, text in found}
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


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.takeover", description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="kills of each sort")
    kills = parser.parse_args().kills
    slowest = 0.0
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder, busy_cores():
        bench = Bench(Path(folder), version="7" if redis_of("7") else "6.2", workers=2)
        try:
            bench.start()
            for name, kill in (("worker", kill_worker), ("child", kill_child)):
                times = []
                while len(times) < kills:
                    seconds = measure(bench, kill)
                    times += [] if seconds is None else [seconds]
                slowest = max(slowest, *times)
                told = f"median {statistics.median(times):.2f} s, most {max(times):.2f} s, every result exact"
                print(f"kill -9 of a {name}, {len(times)} times: {told}", flush=True)
        finally:
            bench.stop()
    return 1 if slowest > 5.0 else 0


if __name__ == "__main__":
    sys.exit(main())
