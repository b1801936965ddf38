"""The simulation on one CPU core: replicas in chunks, summed as they come."""

from __future__ import annotations

import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from jobs.kinds.thread import cpu_reduction as reduction
from jobs.kinds.thread import cpu_simulation as sim
from jobs.kinds.thread import rows, streams, tables
from jobs.kinds.thread.cpu_draws import JIT, LAWS, mix, sub
from jobs.kinds.thread.merging import merge
from jobs.models import Partial, Spec
from jobs.registry import Tick

#: A chunk is sized to take this long; ticks come between chunks.
_CHUNK_SECONDS = 0.1
#: Rough nanoseconds of a thread, for the first chunk only.
_GUESS_NS = 100
#: Steal attempts stepped through in a replica: far more than 64 cores can need for each thread.
_ATTEMPTS_PER_THREAD, _ATTEMPTS = 4096, 10_000_000


def _sources() -> int:
    """Checksum of all code that is compiled into `_chunk`."""
    here = Path(__file__).parent
    names = ("cpu_draws.py", "cpu_simulation.py", "cpu_reduction.py", "rows.py", "streams.py")
    return zlib.crc32(b"".join((here / name).read_bytes() for name in names))


def _compiled(sources: int) -> Any:
    """The compiled function. numba looks only at this file to tell whether its cache is stale, and at what a
    closure holds; so the other files' checksum is in the closure, and only this function is cached.
    """

    @njit(cache=True, **JIT)
    def chunk(first, count, cell, seed, model, machine, measured, columns, limbs, totals):
        """Replicas first..first+count-1 of a cell. Returns (replicas done, sum of digests); fewer done: a bug."""
        numbers = model[0]
        row, high, by_depth, _, _ = measured
        cores = numbers[sim.CORES]
        greedy = numbers[sim.STEALS_WORK] == 0
        master = mix(np.uint64(seed))
        hashes = np.uint64(0 * sources)
        for replica in range(first, first + count):
            if not sim.simulate(sub(master, replica), model, machine, measured):
                return replica - first, hashes
            hashes += reduction.digest(cell, replica, row, high, by_depth)
            reduction.accumulate(row, high, by_depth, cores, greedy, columns, limbs, totals)
        return count, hashes

    return chunk


_chunk = _compiled(_sources())


@dataclass
class _Cell:
    """One cell of a spec as arrays."""

    spec: Spec
    cell: int

    def __post_init__(self) -> None:
        self.cores, self.scheduler = self.spec["cells"][self.cell]
        self.depths = self.spec["max_depth"] + 1
        offspring = self.spec["offspring"]
        tabled = (self._numbers(), self.spec["work"]["numbers"], tables.logarithms(), offspring["values"])
        self.model = (*(np.array(each, np.int64) for each in tabled), np.array(offspring["thresholds"], np.int64))
        self.machine = self._machine()
        self.columns, self.limbs = np.empty(len(rows.COLUMNS), np.int64), np.empty(reduction.LIMBS, np.int64)

    def _numbers(self) -> list[int]:
        spec = self.spec
        return [
            spec["thread_count"],
            spec["max_depth"],
            spec["max_threads"],
            int(spec["join"] == "suspend"),
            spec["dispatch_ns"],
            spec["spawn_ns"],
            spec["join_ns"],
            spec["steal_ns"],
            LAWS.index(spec["work"]["law"]),
            self.cores,
            int(self.scheduler == "work_stealing"),
            _ATTEMPTS_PER_THREAD * spec["most_threads"] + _ATTEMPTS,
        ]

    def _machine(self) -> tuple[np.ndarray, ...]:
        # A family has a member, so there are at most most_threads - thread_count of them besides the roots.
        # Pages of the array that no family reaches are never touched.
        most = self.spec["most_threads"] - self.spec["thread_count"] + 2
        return (
            np.empty((most, sim.FAMILY), np.int64),
            np.empty((self.cores, sim.CORE), np.int64),
            np.empty(self.cores, np.int64),
            np.empty((self.cores, self.depths, 3), np.int64),
            np.empty((self.cores, 4), np.int64),
        )

    def _measured(self) -> tuple[np.ndarray, ...]:
        return tuple(np.zeros(size, np.int64) for size in (len(rows.ROW), 2, self.depths, rows.BINS, rows.BINS))

    def compute(self, first: int, count: int) -> dict[str, Any]:
        """The cell's partial of replicas first..first+count-1."""
        totals, measured = reduction.empty(self.depths), self._measured()
        done, hashes = _chunk(
            first,
            count,
            self.cell,
            self.spec["seed"],
            self.model,
            self.machine,
            measured,
            self.columns,
            self.limbs,
            totals,
        )
        if done < count:
            raise RuntimeError(f"replica {first + done} of cell {self.cell}: more steal attempts than can be needed")
        _, _, _, waits, sojourns = measured
        return reduction.taken(totals, count, int(hashes) & streams.MASK, waits, sojourns)


def _first_chunk(spec: Spec) -> int:
    """Replicas that take a fraction of a chunk's time when the guess is right."""
    return max(1, int(_CHUNK_SECONDS * 1e9 / 4 / (_GUESS_NS * spec["expected_threads"] + 1000)))


def run(spec: Spec, lo: int, hi: int, tick: Tick) -> tuple[int, Partial]:
    """Units lo..upto-1, where upto is hi unless tick said stop; ticks between chunks of about 0.1 s."""
    most = min(spec["batch_size"] or reduction.MOST_ROWS, reduction.MOST_ROWS)
    size = _first_chunk(spec)
    partial: Partial = {}
    unit, cell = lo, None
    while unit < hi:
        number, first = divmod(unit, spec["replicas"])
        if cell is None or cell.cell != number:
            cell = _Cell(spec, number)
        count = min(size, most, hi - unit, spec["replicas"] - first)
        started = time.perf_counter()
        part = {"cells": {str(number): cell.compute(first, count)}}
        seconds = time.perf_counter() - started
        partial = merge(partial, part)
        unit += count
        size = max(1, min(4 * size, int(count * _CHUNK_SECONDS / max(seconds, 1e-6))))
        if unit < hi and not tick(unit):
            break
    return unit, partial


def warm() -> None:
    """Compiles everything, or loads it from the cache."""
    from jobs.kinds.thread import definition

    for scheduler in ("fifo", "work_stealing"):
        parameters = definition.Parameters(thread_count=2, max_depth=2, replicas=1, scheduler=scheduler, seed=1)
        run(definition.plan(parameters).spec, 0, 1, lambda _: True)
