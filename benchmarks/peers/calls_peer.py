"""`python calls_peer.py dask | ray | pool`: calls functions with another system, on two workers.

It reads the name of a case per line, and prints the seconds that the case took. It runs in an environment with only the
packages of the peers, so it imports nothing of this project.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np

CALLS, SLEEPS, ARRAYS, SINGLE, WORKERS = 10_000, 1_000, 50, 100, 2
#: 100 MB of random numbers.
ARRAY = np.random.default_rng(1).random(12_500_000)
Cases = dict[str, Callable[[], list[Any]]]


def add(number: int) -> int:
    return number + 1


def rest(_number: int) -> None:
    time.sleep(0.01)


def read(number: int, array: Any) -> float:
    return float(array[number])


EXPECTED: dict[str, list[Any]] = {
    "single": list(range(1, SINGLE + 1)),
    "trivial": list(range(1, CALLS + 1)),
    "10ms": [None] * SLEEPS,
    "array": ARRAY[:ARRAYS].tolist(),
    "put": ARRAY[:ARRAYS].tolist(),
}


def measure(case: str, cases: Cases) -> float:
    """Return the seconds that a case takes. Raises AssertionError if its results are wrong."""
    started = time.perf_counter()
    found = cases[case]()
    seconds = time.perf_counter() - started
    assert found == EXPECTED[case], case
    return seconds


@contextlib.contextmanager
def pool() -> Iterator[Cases]:
    with ProcessPoolExecutor(WORKERS) as executor:
        yield {
            "single": lambda: [executor.submit(add, number).result() for number in range(SINGLE)],
            "trivial": lambda: list(executor.map(add, range(CALLS))),
            "10ms": lambda: list(executor.map(rest, range(SLEEPS))),
            "array": lambda: list(executor.map(read, range(ARRAYS), [ARRAY] * ARRAYS)),
        }


@contextlib.contextmanager
def dask() -> Iterator[Cases]:
    system: Any = importlib.import_module("distributed")
    with (
        system.LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None) as cluster,
        system.Client(cluster) as client,
    ):

        def gather(function: Any, *values: Any) -> list[Any]:
            return list(client.gather(client.map(function, *values, pure=False)))

        yield {
            "single": lambda: [client.submit(add, number, pure=False).result() for number in range(SINGLE)],
            "trivial": lambda: gather(add, range(CALLS)),
            "10ms": lambda: gather(rest, range(SLEEPS)),
            "array": lambda: gather(read, range(ARRAYS), [ARRAY] * ARRAYS),
            "put": lambda: gather(read, range(ARRAYS), [client.scatter(ARRAY, hash=False)] * ARRAYS),
        }


@contextlib.contextmanager
def ray() -> Iterator[Cases]:
    system: Any = importlib.import_module("ray")

    system.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False)
    remote = {function: system.remote(function) for function in (add, rest, read)}

    def gather(function: Any, *values: Any) -> list[Any]:
        return list(system.get([remote[function].remote(*each) for each in zip(*values, strict=True)]))

    try:
        yield {
            "single": lambda: [system.get(remote[add].remote(number)) for number in range(SINGLE)],
            "trivial": lambda: gather(add, range(CALLS)),
            "10ms": lambda: gather(rest, range(SLEEPS)),
            "array": lambda: gather(read, range(ARRAYS), [ARRAY] * ARRAYS),
            "put": lambda: gather(read, range(ARRAYS), [system.put(ARRAY)] * ARRAYS),
        }
    finally:
        system.shutdown()


def main(name: str) -> None:
    with {"dask": dask, "ray": ray, "pool": pool}[name]() as cases:
        print(" ".join(cases), flush=True)
        for line in sys.stdin:
            print(measure(line.strip(), cases), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
