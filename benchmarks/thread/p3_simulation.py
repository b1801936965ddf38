"""P3: threads simulated per second of one core, beside SimPy and beside the same algorithm in C, on the default model.

Processor time, since neighbours on a shared machine take wall time; every side simulates whole replicas. C's digest
must be ours: it computed the same.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.measure import Row, in_turns
from benchmarks.thread import peer_c, peer_simpy
from jobs.kinds import registry
from jobs.kinds.thread import rows
from jobs.models import Device

CORES = (1, 8, 32, 64)
ROUNDS = 5
REPLICAS = 1500
#: Replicas that a peer written in Python gets, about a second.
TUNED, IDIOMATIC = 120, 25
UNIT = "threads/s"


def _planned(**parameters: Any) -> Any:
    definition = registry.definition("thread")
    return definition.plan(definition.parameters.model_validate({"seed": 1, "replicas": REPLICAS, **parameters})).spec


def _rate(simulate: Callable[[], int]) -> float:
    started = time.process_time()
    threads = simulate()
    return threads / (time.process_time() - started)


def _ours(spec: Any) -> tuple[int, int]:
    """(threads, sum of digests)"""
    kernel = registry.kernel("thread", Device.CPU)
    cell = kernel.run(spec, 0, spec["replicas"], lambda _: True)[1]["cells"]["0"]
    return cell["sum"][rows.COLUMNS.index("threads")], cell["digest"]


def _beside(spec: Any, peer: Callable[[], int], point: str, name: str) -> Row:
    ours, theirs = in_turns(lambda: _rate(lambda: _ours(spec)[0]), lambda: _rate(peer), ROUNDS, f"P3 {point}")
    return Row(id=f"P3@{point}", ours=ours, peer=theirs, unit=UNIT, peer_name=name)


def _beside_c(cores: int, scheduler: str, join: str, library: Any) -> Row:
    spec = _planned(cores=cores, scheduler=scheduler, join=join)
    run = peer_c.runner(library, spec)
    assert run() == _ours(spec), "C simulated something else"
    return _beside(spec, lambda: run()[0], f"{scheduler}-{cores}/c", f"gcc -O3, join {join}")


def _beside_simpy(cores: int, write: Any, replicas: int, name: str) -> Row:
    spec = _planned(cores=cores, scheduler="fifo", join="none")
    peer = functools.partial(write, replicas, spec["thread_count"], spec["max_depth"], cores)
    return _beside(spec, peer, f"fifo-{cores}/{name}", f"SimPy, {write.__name__}")


def _beside_ciw() -> list[Row]:
    """M/M/4 at load 0.8, where Ciw is installed."""
    if importlib.util.find_spec("ciw") is None:
        print("P3 mmc-4/ciw skipped: Ciw is not installed (.venv/bin/pip install ciw)", file=sys.stderr)
        return []
    from benchmarks.thread import peer_ciw

    arrival = {"process": "poisson", "rate_per_ms": 32}
    spec = _planned(
        cores=4, scheduler="fifo", join="none", max_depth=0, thread_count=5000, dispatch_cost_us=0, arrival=arrival
    )
    return [_beside(spec, functools.partial(peer_ciw.queue, 4, 0.8, 20_000), "mmc-4/ciw", "Ciw, M/M/4")]


def run() -> list[Row]:
    registry.warm("thread", Device.CPU)
    measured = [_beside_simpy(cores, peer_simpy.tuned, TUNED, "simpy") for cores in CORES]
    measured.append(_beside_simpy(8, peer_simpy.idiomatic, IDIOMATIC, "simpy-idiomatic"))
    for scheduler, join in (("fifo", "none"), ("work_stealing", "suspend")):
        library = peer_c.compiled(scheduler == "work_stealing")
        measured += [_beside_c(cores, scheduler, join, library) for cores in CORES]
    return measured + _beside_ciw()
