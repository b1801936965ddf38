"""The cost of SUBMIT_DURABLE: milliseconds of a submit with and without, by appendfsync.

python -m benchmarks.durable_submits redis://127.0.0.1:PORT/0     # an empty Redis 7.2 or later, with appendonly yes
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import Literal

from coordinator import cluster
from coordinator.access.principal import ANYONE
from coordinator.events import hub
from jobs import errors
from jobs.settings import Settings
from jobs.store import Store
from jobs.store.server import connection
from jobs.store.work import bells

BODY = {"type": "collatz", "parameters": {"start_number": 1, "number_count": 3}}
ROUNDS = 30
CHOICES: tuple[Literal["true", "false"], ...] = ("false", "true")


def milliseconds(url: str, durable: Literal["true", "false"], jobs: int) -> list[float]:
    """Return the milliseconds of each of ROUNDS submits of `jobs` jobs."""
    store = Store(connection.connect(url, retries=1, timeout=3))
    settings = Settings(redis_url=url, submit_durable=durable)
    submitting = cluster.Cluster(store, hub.Hub(store.events), settings)
    took = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        answers = submitting.submit([BODY] * jobs, ANYONE)
        assert not any(isinstance(answer, errors.ClusterError) for answer in answers)
        took.append((time.perf_counter() - began) * 1000)
    return took


def main(url: str) -> None:
    client = connection.connect(url)
    bells.place_bells(Store(client))
    print("| appendfsync | SUBMIT_DURABLE | jobs | median ms | greatest ms |\n| --- | --- | --- | --- | --- |")
    for fsync in ("everysec", "always"):
        client.config_set("appendfsync", fsync)
        for durable in CHOICES:
            for jobs in (1, 100):
                took = milliseconds(url, durable, jobs)
                row = (fsync, durable, str(jobs), f"{statistics.median(took):.1f}", f"{max(took):.1f}")
                print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
