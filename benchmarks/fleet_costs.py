"""CPU time that reads of 1,000 workers take of a coordinator and of Redis: python -m benchmarks.fleet_costs [WORKERS]

Real Redis, real heartbeats of workers that do nothing else. A worker beats each second: at one read a second all have
beaten since the last one, at five a second a fifth have.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping

from prometheus_client import generate_latest

from benchmarks import placement
from coordinator.queries import Queries
from coordinator.telemetry.exporter import Exporter
from coordinator.telemetry.recorder import Recorder
from jobs.kinds import registry
from jobs.settings import Settings
from jobs.store import Store
from jobs.store.server.connection import Client

#: Reads that are measured, after one that is not.
_READS = 5
#: Workers of one host.
_A_HOST = 10


def _row(number: int, beats: int) -> Mapping[str, str | int | float]:
    """Return what a busy worker says of itself."""
    return {
        "device": "cpu",
        "state": "busy",
        "lanes": 2,
        "busy_lanes": 2,
        "job": f"{number:016x}",
        "pid": 1,
        "kinds": json.dumps(registry.versions()),
        "rates": json.dumps({"collatz": 1e9 + beats}),
        "network": "1",
        "host": f"host-{number // _A_HOST}",
        "cpu_ratio": "0.9",
        "cpus": 20,
        "memory_used_bytes": 10**9 + beats,
        "memory_total_bytes": 10**10,
        "network_receive_bytes_total": 10**9 + beats,
        "network_transmit_bytes_total": 10**9 + beats,
    }


class Fleet:
    """Workers whose heartbeats a coordinator reads."""

    def __init__(self, client: Client, workers: int) -> None:
        self._workers, self._beats, self._at = workers, 0, 0
        self._client = client
        self.store = Store(client)
        self.beat(workers)

    def beat(self, count: int) -> None:
        """Write the next heartbeats of this many workers, in turns."""
        for _ in range(count):
            number = self._at = (self._at + 1) % self._workers
            self._beats += 1
            row = _row(number, self._beats)
            self.store.fleet.heartbeat(f"worker-{number:04d}", "0000000000001-costs", row)

    def milliseconds(self, read: Callable[[], object], beats: int) -> tuple[float, float]:
        """Return the CPU time of a read after this many heartbeats: the caller's, and Redis'. Medians."""
        own, of_redis = [], []
        for _ in range(_READS + 1):
            self.beat(beats)
            before, began = self._redis_seconds(), time.process_time()
            read()
            own.append(time.process_time() - began)
            of_redis.append(self._redis_seconds() - before)
        return statistics.median(own[1:]) * 1000, statistics.median(of_redis[1:]) * 1000

    def _redis_seconds(self) -> float:
        used = self._client.info("cpu")
        return float(used["used_cpu_user"]) + float(used["used_cpu_sys"])


def main(workers: int) -> None:
    """Print the table of docs/scaling.md."""
    with placement.redis_on_socket() as client:
        place = client.connection_pool.connection_kwargs["path"]
        fleet = Fleet(client, workers)
        queries = Queries(Store(client), Settings(redis_url=f"unix://{place}?db=0"))
        exporter, recorder = Exporter(queries, lambda: True), Recorder(queries)

        def decisions() -> object:
            queries.fleet_cache.forget()
            return queries.fleet_cache.get()

        reads: dict[str, Callable[[], object]] = {
            "status": lambda: json.dumps(queries.fleet.status()),
            "workers": lambda: json.dumps({"workers": queries.fleet.workers()}),
            "metrics": lambda: generate_latest(exporter.registry),
            "record of a second": recorder.round,
            "decisions on submits": decisions,
        }
        print(f"| ms of CPU, {workers} workers | all have beaten | a fifth | none | Redis, all |")
        print("| --- | --- | --- | --- | --- |")
        for name, read in reads.items():
            cost = [fleet.milliseconds(read, beats) for beats in (workers, workers // 5, 0)]
            print(f"| {name} | {' | '.join(f'{own:.1f}' for own, _ in cost)} | {cost[0][1]:.1f} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
