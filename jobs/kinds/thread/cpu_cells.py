"""Simulates the replicas of one machine (cell) on a CPU core in chunks, and adds up their measurements."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from jobs.kinds import random
from jobs.kinds.contract import Tick
from jobs.kinds.random_cpu import mix, sub
from jobs.kinds.thread import cpu_layout as layout
from jobs.kinds.thread import cpu_reduction as reduction
from jobs.kinds.thread import rows, sizes, tables, trace_recorder
from jobs.kinds.thread.cpu_draws import JIT, LAWS
from jobs.kinds.thread.cpu_layout import Machine, Measured, Model
from jobs.kinds.thread.cpu_simulation import simulate_queue, simulate_stealing
from jobs.kinds.thread.partials import merge
from jobs.models import Partial, Spec

#: Target duration of a chunk in seconds; `tick` is called between chunks.
_CHUNK_SECONDS = 0.1
#: Assumed CPU time in ns per simulated thread, used only to size the first chunk.
_GUESS_NS = 100
#: Maximum number of steal attempts of a replica, per thread and as an added constant; 64 cores need far fewer.
_ATTEMPTS_PER_THREAD, _ATTEMPTS = 4096, 10_000_000


def _compile_chunk(stealing: bool) -> Any:
    """Compile the function that simulates a chunk of replicas, with or without work stealing.

    Only this function is cached. numba distinguishes the two versions by the values that their closures capture.
    """

    @njit(cache=True, **JIT)
    def chunk(first, count, cell, seed, greedy, model, machine, measured, scratch, columns, limbs, totals):
        """Simulate replicas first..first+count-1 of a machine. Return (number of simulated replicas, sum of digests).

        Fewer replicas than `count` indicate a bug in the simulation.
        """
        row, aside, by_depth, waits, sojourns = measured
        some_waits, some_sojourns = scratch
        # Deadlocked replicas are excluded from the histograms.
        apart = not stealing and model.numbers[layout.JOINS] == layout.BLOCK
        own = Measured(row, aside, by_depth, some_waits if apart else waits, some_sojourns if apart else sojourns)
        master = mix(np.uint64(seed))
        hashes = np.uint64(0)
        for replica in range(first, first + count):
            key = sub(master, replica)
            fine = simulate_stealing(key, model, machine, own) if stealing else simulate_queue(key, model, machine, own)
            if not fine:
                return replica - first, hashes
            if apart:
                if row[layout.OUTCOME] != layout.DEADLOCKED:
                    waits += some_waits
                    sojourns += some_sojourns
                some_waits[:] = 0
                some_sojourns[:] = 0
            hashes += reduction.digest(cell, replica, row, aside, by_depth)
            reduction.accumulate(
                replica, row, aside, by_depth, model.numbers[layout.CORES], greedy, columns, limbs, totals
            )
        return count, hashes

    return chunk


_chunk_queue, _chunk_stealing = (_compile_chunk(stealing) for stealing in (False, True))


@dataclass
class _Cell:
    """Arrays for the simulation of one machine (cell) of a job."""

    spec: Spec
    cell: int

    def __post_init__(self) -> None:
        self.cores, self.scheduler = self.spec["cells"][self.cell]
        self.depths = self.spec["max_depth"] + 1
        offspring = self.spec["offspring"]
        tabled = (self._numbers(), self.spec["work"]["numbers"], tables.logarithms(), offspring["values"])
        self.model = Model(*(np.array(each, np.int64) for each in (*tabled, offspring["thresholds"])))
        self.machine = self._machine()
        self.scratch = (np.zeros(rows.BINS, np.int64), np.zeros(rows.BINS, np.int64))
        self.columns, self.limbs = np.empty(len(rows.COLUMNS), np.int64), np.empty(reduction.LIMBS, np.int64)

    def _numbers(self) -> list[int]:
        spec, arrival = self.spec, self.spec["arrival"] or {"mean": 0, "bits": 0, "warmup": 0}
        return [
            spec["thread_count"],
            spec["max_depth"],
            spec["max_threads"],
            layout.JOINING.index(spec["join"]),
            spec["dispatch_ns"],
            spec["spawn_ns"],
            spec["join_ns"],
            spec["steal_ns"],
            LAWS.index(spec["work"]["law"]),
            self.cores,
            layout.POLICIES.index(self.scheduler),
            (_ATTEMPTS_PER_THREAD + spec["most_slices"]) * spec["most_threads"] + _ATTEMPTS,
            spec["quantum_ns"] if self.scheduler == "round_robin" else 0,
            arrival["mean"],
            arrival["bits"],
            arrival["warmup"],
        ]

    def _machine(self) -> Machine:
        # The operating system allocates pages of `families` only when a replica uses them.
        return Machine(
            families=np.empty(sizes.families(self.spec, self.scheduler), layout.FAMILY),
            cores=np.zeros(self.cores, layout.CORE),
            events=np.empty(2 << (self.cores - 1).bit_length(), np.int64),
            deques=np.empty((self.cores, self.depths), np.int64),
            steals=np.zeros(self.cores, layout.STEAL),
        )

    def _measured(self) -> Measured:
        sizes = (len(rows.ROW), layout.ASIDE, self.depths, rows.BINS, rows.BINS)
        return Measured(*(np.zeros(size, np.int64) for size in sizes))

    @property
    def greedy(self) -> bool:
        plain = self.scheduler in ("fifo", "lifo") and self.spec["join"] != "block"
        return plain and self.spec["arrival"] is None

    def compute(self, first: int, count: int) -> dict[str, Any]:
        """Simulate replicas first..first+count-1, and return their partial result."""
        totals, measured = reduction.empty(self.depths), self._measured()
        chunk = _chunk_stealing if self.scheduler == "work_stealing" else _chunk_queue
        done, hashes = chunk(
            first,
            count,
            self.cell,
            self.spec["seed"],
            self.greedy,
            self.model,
            self.machine,
            measured,
            self.scratch,
            self.columns,
            self.limbs,
            totals,
        )
        if done < count:
            raise RuntimeError(
                f"replica {first + done} of cell {self.cell}: the step budget was exceeded, which is a bug"
            )
        return reduction.partial(totals, count, int(hashes) & random.MASK, measured.waits, measured.sojourns)


def _first_chunk(spec: Spec) -> int:
    """Return the size of the first chunk, which should take a quarter of the target duration."""
    return max(1, int(_CHUNK_SECONDS * 1e9 / 4 / (_GUESS_NS * spec["expected_threads"] + 1000)))


def run(spec: Spec, lo: int, hi: int, tick: Tick) -> tuple[int, Partial]:
    """Simulate units lo..hi-1 and return (upto, partial result of units lo..upto-1).

    Calls `tick` between chunks of about 0.1 s. `upto` is `hi` unless `tick` returned False.
    """
    if spec["trace"] is not None:
        return hi, {"trace": _trace(spec)} if lo < hi else {}
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


def _trace(spec: Spec) -> dict[str, Any]:
    """Record the trace of the requested replica. The digest of the trace must equal the kernel's digest."""
    cell, replica = spec["trace"]["cell"], spec["trace"]["replica"]
    return trace_recorder.trace(spec, _Cell(spec, cell).compute(replica, 1)["digest"])
