"""The SimPy peers of P3: the default model of the thread kind, fifo, join none, as one would write it.

Both draw from `random`, in floats, and keep what a study wants: all waits. Neither counts per depth, hashes or keeps
histograms.
"""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import simpy

DISPATCH, SPAWN, WORK, CHANCE, CHILDREN = 1.0, 0.1, 100.0, 0.4, 2


def tuned(replicas: int, roots: int, max_depth: int, cores: int) -> int:
    """A process for each core and a plain queue; threads are tuples. Returns how many threads were simulated."""
    return sum(_tuned(random.Random(replica), roots, max_depth, cores) for replica in range(replicas))


def _tuned(dice: random.Random, roots: int, max_depth: int, cores: int) -> int:
    environment = simpy.Environment()
    ready = deque((0, 0.0) for _ in range(roots))
    idle: deque[Any] = deque()
    waits: list[float] = []
    exponential, chance, timeout = dice.expovariate, dice.random, environment.timeout

    def core() -> Any:
        while True:
            if not ready:
                event = environment.event()
                idle.append(event)
                yield event
                continue
            depth, since = ready.popleft()
            waits.append(environment.now - since)
            children = CHILDREN if depth < max_depth and chance() < CHANCE else 0
            yield timeout(DISPATCH + exponential(1 / WORK) + children * SPAWN)
            for _ in range(children):
                ready.append((depth + 1, environment.now))
            for _ in range(min(len(ready), len(idle))):
                idle.popleft().succeed()

    for _ in range(cores):
        environment.process(core())
    environment.run()
    return len(waits)


def idiomatic(replicas: int, roots: int, max_depth: int, cores: int) -> int:
    """A process for each thread and a Resource for the cores, as in SimPy's documentation."""
    return sum(_idiomatic(random.Random(replica), roots, max_depth, cores) for replica in range(replicas))


def _idiomatic(dice: random.Random, roots: int, max_depth: int, cores: int) -> int:
    environment = simpy.Environment()
    machine = simpy.Resource(environment, capacity=cores)
    waits: list[float] = []

    def thread(depth: int) -> Any:
        born = environment.now
        with machine.request() as request:
            yield request
            waits.append(environment.now - born)
            children = CHILDREN if depth < max_depth and dice.random() < CHANCE else 0
            yield environment.timeout(DISPATCH + dice.expovariate(1 / WORK) + children * SPAWN)
        for _ in range(children):
            environment.process(thread(depth + 1))

    for _ in range(roots):
        environment.process(thread(0))
    environment.run()
    return len(waits)
