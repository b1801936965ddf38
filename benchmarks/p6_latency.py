"""P6: a trivial job on an idle cluster, from submit to the result in the client's hand."""

from __future__ import annotations

import sys
import time

from benchmarks import guarded
from benchmarks.measure import Row
from threads_cluster.client.api import Cluster

SAMPLES = 500
GOAL_MS = {"p50": 4.0, "p99": 10.0}


def _once(cluster: Cluster) -> float:
    started = time.perf_counter()
    assert cluster.run("collatz", {"start_number": 1, "number_count": 10})["count"] == 10
    return (time.perf_counter() - started) * 1000


def run() -> list[Row]:
    with guarded.cluster() as (_, cluster):
        for _ in range(50):
            _once(cluster)
        samples = []
        for _ in range(SAMPLES):
            samples.append(_once(cluster))
            time.sleep(0.01)
    samples.sort()
    reached = {"p50": samples[SAMPLES // 2], "p99": samples[int(SAMPLES * 0.99)]}
    print(f"P6: {reached}", file=sys.stderr)
    return [
        Row(id=f"P6@{name}", ours=reached[name], peer=goal, unit="ms", peer_name="the goal", less_is_better=True)
        for name, goal in GOAL_MS.items()
    ]
