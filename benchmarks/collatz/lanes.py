"""The kernel in this process and in two, and loops in C compiled when they are needed: for P1 and P2."""

from __future__ import annotations

import multiprocessing
import subprocess
import tempfile
import time
from functools import lru_cache
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.measure import Row, gcc_target, in_turns
from jobs.kinds import registry
from jobs.models import Device, Spec

#: Where the loops in C lie.
PEERS = Path(__file__).parent
#: Seconds that a side's turn aims at.
TURN_SECONDS = 1.5


@lru_cache
def compiled(name: str) -> Path:
    """A program of PEERS, built for the level of the CPU that the kernels use."""
    target = Path(tempfile.mkdtemp(prefix="threads-cluster-bench-")) / name
    subprocess.run(["gcc", "-O3", gcc_target(), "-o", target, PEERS / f"{name}.c"], check=True)
    return target


def c_rate(name: str, start: int, count: int) -> float:
    """Numbers/s of a program of PEERS."""
    done = subprocess.run([compiled(name), str(start), str(count)], capture_output=True, text=True, check=True)
    return count / float(done.stdout.split()[0])


def spec(mode: str, start: int, count: int) -> Spec:
    definition = registry.definition("collatz")
    given = {"mode": mode, "start_number": str(start), "number_count": count}
    return definition.plan(definition.parameters.model_validate(given)).spec


def rate(mode: str, start: int, count: int) -> float:
    """Numbers/s of one lease of our kernel in this process."""
    kernel, task = registry.kernel("collatz", Device.CPU), spec(mode, start, count)
    started = time.perf_counter()
    upto, _ = kernel.run(task, 0, count, lambda upto: True)
    assert upto == count
    return count / (time.perf_counter() - started)


def lease(mode: str, start: int, grain: int) -> int:
    """Numbers of a lease of about TURN_SECONDS, whole grains."""
    registry.warm("collatz", Device.CPU)
    guess = max(rate(mode, start, 4 * grain) for _ in range(3))
    return max(1, round(guess * TURN_SECONDS / grain)) * grain


def _lane(pipe: Connection) -> None:
    registry.warm("collatz", Device.CPU)
    pipe.send(0.0)
    while (task := pipe.recv()) is not None:
        rate(*task)
        pipe.send(0.0)


class Lanes:
    """Child processes that compute at once, as those of a worker."""

    def __init__(self, lanes: int = 2) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipes = []
        for _ in range(lanes):
            ours, theirs = context.Pipe()
            context.Process(target=_lane, args=(theirs,), daemon=True).start()
            self.pipes.append(ours)
        for pipe in self.pipes:
            pipe.recv()

    def rate(self, mode: str, start: int, count: int) -> float:
        """Numbers/s of all together, each with a lease of its own."""
        started = time.perf_counter()
        for lane, pipe in enumerate(self.pipes):
            pipe.send((mode, start + lane * count, count))
        for pipe in self.pipes:
            pipe.recv()
        return len(self.pipes) * count / (time.perf_counter() - started)

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.send(None)


def two_lanes(goal: str, mode: str, start: int, count: int, rounds: int) -> Row:
    """A row: two lanes over one."""
    lanes = Lanes()
    ours, one = in_turns(
        lambda: lanes.rate(mode, start, count), lambda: rate(mode, start, count), rounds, f"{goal}@2-lanes"
    )
    lanes.close()
    return Row(id=f"{goal}@2-lanes", ours=ours, peer=one, unit="numbers/s", peer_name="one lane")
