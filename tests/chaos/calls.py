"""Kill persistent programs, runners and coordinators during calls of Python functions, and check every result.

`python -m tests.chaos.calls` starts a cluster with two coordinators and two runners, and makes calls through an
executor. Meanwhile, it sends SIGKILL to random processes. Each call must return its own result, and each unit must
count once.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.integration.live import Live
from threads_cluster import Cluster

TOKEN = "an-admin-token-of-the-kill-test"
RUNNERS = 2
SLOTS = 2
#: Number of calls that are submitted at once.
BATCH = 500
#: Maximum number of retries of a call. Each kill of a program costs one call an attempt.
RETRIES = 30


def square_slowly(number: int) -> int:
    """Return the square of a number after some milliseconds, so that kills interrupt calls."""
    time.sleep(number % 5 / 1000)
    return number * number


@dataclass
class Killer:
    """Thread that kills a process every few seconds, and starts it again if nothing else does."""

    live: Live
    dice: random.Random
    pause_seconds: float
    kills: Counter[str] = field(default_factory=Counter)
    _over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Killer:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        choices = [self.kill_program] * 4 + [self.kill_guard, self.kill_runner, self.kill_coordinator]
        while not self._over.wait(self.dice.uniform(0.5, 1.5) * self.pause_seconds):
            self.dice.choice(choices)()

    def kill_program(self) -> None:
        self._kill_any("program", [child for guard in self._guards() for child in guard.children()])

    def kill_guard(self) -> None:
        self._kill_any("guard", self._guards())

    def kill_runner(self) -> None:
        number = self.dice.randrange(RUNNERS)
        self.live.kill(f"runner-{number}")
        self.kills["runner"] += 1
        start_runner(self.live, number)

    def kill_coordinator(self) -> None:
        number = self.dice.randrange(len(self.live.ports))
        self.live.kill(f"coordinator-{number}")
        self.kills["coordinator"] += 1
        self.live.start_coordinator(number)

    def _guards(self) -> list[psutil.Process]:
        found = []
        for number in range(RUNNERS):
            with contextlib.suppress(psutil.Error):
                found += psutil.Process(self.live.processes[f"runner-{number}"].pid).children()
        return found

    def _kill_any(self, name: str, processes: list[psutil.Process]) -> None:
        with contextlib.suppress(psutil.Error, IndexError):
            self.dice.choice(processes).kill()
            self.kills[name] += 1


def start_runner(live: Live, number: int) -> None:
    """Start a runner that uses its own coordinator, under the name that it had before."""
    live.start_runner(number, SLOTS, WORKER_API=live.url(number % len(live.ports)))


def make_calls(cluster: Cluster, count: int, futures: list[Future[int]]) -> None:
    """Make calls in batches, so that batches start and end during the whole run."""
    with cluster.executor(retries=RETRIES) as executor:
        for first in range(0, count, BATCH):
            futures += [executor.submit(square_slowly, number) for number in range(first, min(first + BATCH, count))]
            for future in futures[max(0, first - 3 * BATCH) : first - 2 * BATCH]:
                future.exception()


def check(futures: list[Future[int]], cluster: Cluster) -> tuple[list[str], int]:
    """Return what is wrong, and the number of attempts that kills and crashes have cost."""
    wrong, attempts = [], 0
    for number, future in enumerate(futures):
        error = future.exception()
        if error is not None or future.result() != number * number:
            wrong.append(f"call {number}: {error or future.result()!r}")
    units = Counter[tuple[str, int]]()
    for job in {future.job_id for future in futures}:  # type: ignore[attr-defined]
        for unit in cluster.programs.units(job):
            units[job, unit["unit"]] += 1
            attempts += unit["attempts"] - 1
    if len(units) != len(futures) or set(units.values()) != {1}:
        wrong.append(f"{len(futures)} calls have {sum(units.values())} units")
    return wrong, attempts


def run(count: int, seed: int, pause_seconds: float) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        live = Live(
            Path(folder), workers=0, coordinators=2, CLUSTER_TOKEN=TOKEN, ARTIFACT_URL=f"file://{folder}/artifacts"
        )
        try:
            live.start()
            for number in range(RUNNERS):
                start_runner(live, number)
            live.wait_ready(RUNNERS)
            return _run(live, count, seed, pause_seconds)
        finally:
            live.stop()


def _run(live: Live, count: int, seed: int, pause_seconds: float) -> list[str]:
    futures: list[Any] = []
    began = time.monotonic()
    with Cluster(live.url(), TOKEN) as cluster:
        with Killer(live, random.Random(seed), pause_seconds) as killer:
            make_calls(cluster, count, futures)
        wrong, attempts = check(futures, cluster)
    seconds = time.monotonic() - began
    kills = ", ".join(f"{number} x {name}" for name, number in sorted(killer.kills.items()))
    print(
        f"{len(futures)} calls in {seconds:.0f} s; killed: {kills}; repeated attempts: {attempts}; wrong: {len(wrong)}"
    )
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.calls", description=__doc__)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause", type=float, default=2.0, help="mean number of seconds between two kills")
    chosen = parser.parse_args()
    wrong = run(chosen.calls, chosen.seed, chosen.pause)
    print(*wrong[:20], sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
