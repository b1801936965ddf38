"""P5: units/s of a job of half a minute through API, Redis, RQ and workers, over the same kernel called directly.

And how much of the processors' time went to the lanes, which compute, rather than to all that serves them: a figure
that other users of a machine change less than they change seconds.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from multiprocessing.connection import Connection
from typing import Any

import psutil

from benchmarks import guarded
from benchmarks.measure import Row, in_turns
from jobs.kinds import registry
from jobs.models import Device
from tests.integration.live import Live
from threads_cluster.client.api import Cluster

LANES = 2
SECONDS = 32.0
START = 10**9


def _parameters(count: int) -> dict[str, Any]:
    return {"mode": "statistics", "start_number": START, "number_count": count}


def _direct(pipe: Connection) -> None:
    """Run the kernel in a bare process on the tasks that the pipe brings."""
    registry.warm("collatz", Device.CPU)
    kernel = registry.kernel("collatz", Device.CPU)
    pipe.send("warm")
    while (task := pipe.recv()) is not None:
        spec, lo, hi = task
        kernel.run(spec, lo, hi, lambda upto: True)
        pipe.send("done")


class Bare:
    """Bare processes, one for each lane of the cluster, each given its share at once."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipes = []
        for _ in range(LANES):
            ours, theirs = context.Pipe()
            context.Process(target=_direct, args=(theirs,), daemon=True).start()
            self.pipes.append(ours)
        for pipe in self.pipes:
            pipe.recv()

    def rate(self, count: int) -> float:
        definition = registry.definition("collatz")
        spec = definition.plan(definition.parameters.model_validate(_parameters(count))).spec
        cuts = [count * number // LANES for number in range(LANES + 1)]
        started = time.perf_counter()
        for pipe, lo, hi in zip(self.pipes, cuts, cuts[1:], strict=False):
            pipe.send((spec, lo, hi))
        for pipe in self.pipes:
            pipe.recv()
        return count / (time.perf_counter() - started)

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.send(None)


def _through(cluster: Cluster, count: int) -> float:
    started = time.perf_counter()
    job = cluster.submit("collatz", _parameters(count))["job_id"]
    ended = cluster.wait(job)
    assert ended["state"] == "done", ended
    return count / (time.perf_counter() - started)


def _seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _processor_seconds(live: Live) -> tuple[float, float]:
    """Seconds of the processors that the lanes, and that all processes of the cluster have had."""
    lanes = all_of_them = 0.0
    for name, started in live.processes.items():
        process = psutil.Process(started.pid)
        children = sum(_seconds(child) for child in process.children(recursive=True))
        lanes += children if name.startswith("worker") else 0.0
        all_of_them += _seconds(process) + children
    return lanes, all_of_them


def run() -> list[Row]:
    bare = Bare()
    count = int(bare.rate(2 * 10**9) * SECONDS)
    spent: list[tuple[float, float]] = []
    with guarded.cluster(lanes=LANES) as (live, api):

        def through() -> float:
            before = _processor_seconds(live)
            rate = _through(api, count)
            after = _processor_seconds(live)
            spent.append((after[0] - before[0], after[1] - before[1]))
            return rate

        _through(api, count // 20)
        ours, peer = in_turns(through, lambda: bare.rate(count), 3, "P5")
    bare.close()
    lanes, everything = (statistics.median(column) for column in zip(*spent, strict=True))
    return [
        Row(id=f"P5@{LANES}-lanes", ours=ours, peer=peer, unit="numbers/s", peer_name="bare kernel"),
        Row(
            id="P5@processors",
            ours=lanes,
            peer=everything,
            unit="s of the processors, lanes",
            peer_name="all processes",
        ),
    ]
