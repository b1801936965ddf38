"""Replicas of one cell on a GPU: a launch simulates them, the host hashes and sums what each yields."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from jobs.kinds import gpu, random
from jobs.kinds.thread import cpu_layout as layout
from jobs.kinds.thread import cpu_reduction as reduction
from jobs.kinds.thread import draws, parameters, rows, sizes, tables
from jobs.kinds.thread.cpu_draws import JIT, LAWS
from jobs.models import Spec

_PLACES = (
    "MAKESPAN", "WORK", "OVERHEAD", "LONGEST", "LONGEST_WORK", "THREADS", "REACHED", "PEAK_LIVE", "PEAK_READY", "BUSY",
    "IDLE", "SWITCHES", "WAITED", "N_MEASURED", "N_WAITED", "REFUSED", "OUTCOME", "SOJOURN", "N_SOJOURNS", "MAX_WAIT",
    "MAX_SOJOURN", "HIGH_WAITED", "HIGH_SOJOURN", "READY_LOW", "READY_HIGH", "ASIDE", "ROOTS", "MAX_DEPTH",
    "MAX_THREADS", "JOINS", "DISPATCH_NS", "SPAWN_NS", "JOIN_NS", "LAW", "CORES", "POLICY", "ARRIVAL", "ARRIVAL_BITS",
    "WARMUP", "LIFO", "SUSPEND", "WARM", "COMPLETED", "CAPPED", "NEVER", "NO_ARRIVAL", "WIDE", "CONTINUES",
)  # fmt: skip
SOURCE = gpu.Source(
    Path(__file__).with_name("gpu_simulation.cu"),
    (
        *((name, getattr(layout, name)) for name in _PLACES),
        *((f"LAW_{law.upper()}", place) for place, law in enumerate(LAWS)),
        *((f"DRAW_{name}", getattr(draws, name)) for name in ("OFFSPRING", "WORK", "BRANCH", "ARRIVALS")),
        ("ROW", len(rows.ROW)),
        ("BINS", rows.BINS),
        ("MOST_CORES", parameters.MAX_CORES),
    ),
)
#: Bytes of a family in the source.
FAMILY_BYTES = 64
#: Families that a replica may have, over those that are expected; one that needs more is simulated on a CPU core.
ROOM, LEAST_ROOM = 1.5, 256
#: Threads of a block, and at most of a launch for each processor: each has its own families and takes replicas in turn.
THREADS, THREADS_A_PROCESSOR = 64, 1024
#: Bytes that all families of a launch take at most.
MOST_BYTES = 2**34
#: Numbers of the histograms in shared memory stay below 2^32.
MOST_THREADS = 2**31


@njit(cache=True, **JIT)
def _reduced(first, count, cell, greedy, cores, measured, small, columns, limbs, totals):
    """Return the sum of digests of the replicas that had room, and the number of the others, left in `small`."""
    hashes, many = np.uint64(0), 0
    for each in range(count):
        row = measured[each, : layout.MAX_SOJOURN + 1]
        aside = measured[each, layout.MAX_SOJOURN + 1 : layout.MAX_SOJOURN + 1 + layout.ASIDE]
        by_depth = measured[each, layout.MAX_SOJOURN + 1 + layout.ASIDE :]
        if row[layout.OUTCOME] < 0:
            small[many] = first + each
            many += 1
            continue
        hashes += reduction.digest(cell, first + each, row, aside, by_depth)
        reduction.accumulate(first + each, row, aside, by_depth, cores, greedy, columns, limbs, totals)
    return hashes, many


class LaunchedCell:
    """One cell of a spec on the device of this process."""

    def __init__(self, spec: Spec, cell: int) -> None:
        self.spec, self.cell = spec, cell
        self.cores, self.scheduler = spec["cells"][cell]
        self.depths = spec["max_depth"] + 1
        self.greedy = spec["arrival"] is None
        self.room = families(spec, self.scheduler)
        device = gpu.current()
        offspring, work = spec["offspring"], spec["work"]["numbers"]
        tabled = (self._numbers(), work, tables.logarithms(), offspring["values"])
        self._tables = [device.put(np.array(each, np.int64)) for each in tabled]
        self._thresholds = device.put(np.array(offspring["thresholds"], np.int64).ravel())
        thresholds = offspring["thresholds"]
        width = len(thresholds[0]) if len(thresholds) > 1 else 0
        self._lengths = len(work), len(offspring["values"]), width
        self._families: Any = None
        self._slots = 0

    def _numbers(self) -> list[int]:
        spec, arrival = self.spec, self.spec["arrival"] or {"mean": 0, "bits": 0, "warmup": 0}
        numbers = [0] * (layout.WARMUP + 1)
        known = {
            layout.ROOTS: spec["thread_count"],
            layout.MAX_DEPTH: spec["max_depth"],
            layout.MAX_THREADS: spec["max_threads"],
            layout.JOINS: layout.JOINING.index(spec["join"]),
            layout.DISPATCH_NS: spec["dispatch_ns"],
            layout.SPAWN_NS: spec["spawn_ns"],
            layout.JOIN_NS: spec["join_ns"],
            layout.LAW: LAWS.index(spec["work"]["law"]),
            layout.CORES: self.cores,
            layout.POLICY: layout.POLICIES.index(self.scheduler),
            layout.ARRIVAL: arrival["mean"],
            layout.ARRIVAL_BITS: arrival["bits"],
            layout.WARMUP: arrival["warmup"],
        }
        for place, number in known.items():
            numbers[place] = number
        return numbers

    def compute(self, first: int, count: int) -> tuple[dict[str, Any], list[int]]:
        """Return the partial of replicas first..first+count-1, and which of them it leaves out for want of room."""
        device = gpu.current()
        blocks = self._place(count)
        words = len(rows.ROW) + layout.ASIDE + self.depths
        measured, waits, sojourns = (device.zeros(size, np.int64) for size in (count * words, rows.BINS, rows.BINS))
        numbers, laws, logs, values = self._tables
        gpu.kernels(SOURCE)(
            "simulate_queue", blocks, THREADS, random.mix(self.spec["seed"]), first, count, numbers, laws,
            self._lengths[0], logs, values, self._lengths[1], self._thresholds, self._lengths[2], self._families,
            self.room, measured, waits, sojourns,
        )  # fmt: skip
        table = device.get(measured).reshape(count, words)
        totals, small = reduction.empty(self.depths), np.zeros(count, np.int64)
        columns, limbs = np.empty(len(rows.COLUMNS), np.int64), np.empty(reduction.LIMBS, np.int64)
        hashes, without_room = _reduced(
            first, count, self.cell, self.greedy, self.cores, table, small, columns, limbs, totals
        )  # fmt: skip
        counts = device.get(waits), device.get(sojourns)
        partial = reduction.partial(totals, count - without_room, int(hashes) & random.MASK, *counts)
        return partial, small[:without_room].tolist()

    def _place(self, count: int) -> int:
        """Make room for the families of a launch. Return its blocks of threads."""
        each = self.room * FAMILY_BYTES
        most = max(THREADS, min(THREADS_A_PROCESSOR * gpu.current().processors, MOST_BYTES // each))
        slots = -(-min(count, most) // THREADS) * THREADS
        if slots > self._slots:
            self._families = None  # before the new ones are asked for
            self._families = gpu.current().zeros(slots * each // 8, np.int64)
            self._slots = slots
        return slots // THREADS


def families(spec: Spec, scheduler: str) -> int:
    """Return the families that a replica has room for: enough for most."""
    expected = int(ROOM * spec["expected_threads"]) + LEAST_ROOM
    return min(sizes.families(spec, scheduler), expected)
