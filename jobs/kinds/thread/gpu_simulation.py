"""Simulates the replicas of one machine on a GPU. The CPU hashes and adds up their measurements."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from jobs.kinds import gpu, random
from jobs.kinds.thread import cpu_layout as layout
from jobs.kinds.thread import cpu_reduction as reduction
from jobs.kinds.thread import draws, rows, sizes, tables, theory
from jobs.kinds.thread.cpu_draws import JIT, LAWS
from jobs.models import Spec

_SHARED = (
    "MAKESPAN",
    "WORK",
    "OVERHEAD",
    "LONGEST",
    "LONGEST_WORK",
    "THREADS",
    "REACHED",
    "PEAK_LIVE",
    "PEAK_READY",
    "BUSY",
    "STEALING",
    "IDLE",
    "STEALS",
    "ATTEMPTS",
    "SWITCHES",
    "WAITED",
    "N_MEASURED",
    "N_WAITED",
    "REFUSED",
    "OUTCOME",
    "SOJOURN",
    "N_SOJOURNS",
    "MAX_WAIT",
    "MAX_SOJOURN",
    "HIGH_WAITED",
    "HIGH_SOJOURN",
    "READY_LOW",
    "READY_HIGH",
    "AGAIN",
    "ASIDE",
    "WARM",
    "PAUSED",
    "COMPLETED",
    "DEADLOCKED",
    "CAPPED",
    "NEVER",
    "NO_ARRIVAL",
    "WIDE",
    "CONTINUES",
)
_DRAWS = ("OFFSPRING", "WORK", "BRANCH", "ARRIVALS", "VICTIMS")
#: Maximum number of GPU threads per block, and number of shared-memory words for the events of a block.
BLOCK_THREADS, EVENTS = 128, 2048
#: Maximum number of GPU threads per multiprocessor; each thread simulates one replica after the other.
PROCESSOR_THREADS = 1024
#: Sizes in bytes of a family (siblings), of the other data of a simulated core, and of a deque entry.
FAMILY_BYTES, CORE_BYTES, DEQUE_BYTES = 64, 48, 4
#: Factor and constant for the number of families reserved per replica; larger replicas run on a CPU core.
ROOM, LEAST_ROOM = 1.5, 1024
#: Factor and constant for the maximum number of steps (steal attempts, time slices) of a replica on a GPU.
#: Replicas that exceed this maximum run on a CPU core.
STEPS, LEAST_STEPS = 32, 100_000
#: Maximum GPU memory of a launch in bytes.
MOST_BYTES = 2**34


def _source(resident: int, blocks: bool = False, slices: bool = False, steals: bool = False) -> gpu.Source:
    """Return the CUDA source for some schedulers, without the code for other schedulers.

    The compiler limits registers so that `resident` blocks fit on a multiprocessor.
    """
    return gpu.Source(
        Path(__file__).with_name("gpu_simulation.cu"),
        (
            ("WITH_BLOCKS", int(blocks)),
            ("WITH_SLICES", int(slices)),
            ("WITH_STEALS", int(steals)),
            *((name, getattr(layout, name)) for name in _SHARED),
            *((f"LAW_{law.upper()}", place) for place, law in enumerate(LAWS)),
            *((f"DRAW_{name}", getattr(draws, name)) for name in _DRAWS),
            ("ROW", len(rows.ROW)),
            ("FAMILY_BYTES", FAMILY_BYTES),
            ("CORE_BYTES", CORE_BYTES),
            ("BLOCK_THREADS", BLOCK_THREADS),
            ("RESIDENT_BLOCKS", resident),
            ("EVENTS", EVENTS),
        ),
    )


#: CUDA sources for global queues, for global queues with join block, for round_robin, and for work_stealing.
SOURCES = QUEUES, BLOCKING, SLICING, STEALING = (
    _source(resident=5),
    _source(resident=5, blocks=True),
    _source(resident=4, slices=True),
    _source(resident=4, steals=True),
)


@njit(cache=True, **JIT)
def _reduce(first, count, cell, greedy, cores, measured, left, columns, limbs, totals):
    """Add up the measurements of replicas. Return (sum of digests, number of replicas to simulate on a CPU).

    `left` receives the numbers of those replicas.
    """
    hashes, many = np.uint64(0), 0
    for each in range(count):
        row = measured[each, : layout.MAX_SOJOURN + 1]
        aside = measured[each, layout.MAX_SOJOURN + 1 : layout.MAX_SOJOURN + 1 + layout.ASIDE]
        by_depth = measured[each, layout.MAX_SOJOURN + 1 + layout.ASIDE :]
        if row[layout.OUTCOME] < 0:
            left[many] = first + each
            many += 1
            continue
        hashes += reduction.digest(cell, first + each, row, aside, by_depth)
        reduction.accumulate(first + each, row, aside, by_depth, cores, greedy, columns, limbs, totals)
    return hashes, many


class GpuCell:
    """Simulates the replicas of one machine (cell) on this process's GPU."""

    def __init__(self, spec: Spec, cell: int) -> None:
        self.spec, self.cell = spec, cell
        self.cores, self.scheduler = spec["cells"][cell]
        self.depths = spec["max_depth"] + 1
        plain = self.scheduler in ("fifo", "lifo") and spec["join"] != "block"
        self.greedy = plain and spec["arrival"] is None
        self.room = families(spec, self.scheduler)
        self.machine_bytes = -(-self.cores * (CORE_BYTES + DEQUE_BYTES * self.depths) // 16) * 16
        self._put_tables()
        self._families: Any = None
        self._machines: Any = None
        self._slots = 0

    def _put_tables(self) -> None:
        spec, offspring, device = self.spec, self.spec["offspring"], gpu.current_device()
        thresholds = offspring["thresholds"]
        laws, logs, values, flat = (
            device.put(np.array(each, np.int64).ravel())
            for each in (spec["work"]["numbers"], tables.logarithms(), offspring["values"], thresholds)
        )
        width = len(thresholds[0]) if len(thresholds) > 1 else 0
        numbers = len(spec["work"]["numbers"]), len(offspring["values"])
        self._tables = laws, numbers[0], logs, values, numbers[1], flat, width

    def _numbers(self) -> tuple[int, ...]:
        """Return the numbers of the job's spec in the order of the kernel's parameters."""
        spec, arrival = self.spec, self.spec["arrival"] or {"mean": 0, "bits": 0, "warmup": 0}
        return (
            spec["thread_count"],
            spec["max_depth"],
            spec["max_threads"],
            spec["join"] != "none",
            spec["dispatch_ns"],
            spec["spawn_ns"],
            spec["join_ns"],
            spec["steal_ns"],
            LAWS.index(spec["work"]["law"]),
            self.cores,
            self.scheduler == "lifo",
            steps(spec, self.scheduler),
            spec["quantum_ns"],
            arrival["mean"],
            arrival["bits"],
            arrival["warmup"],
        )

    @property
    def source(self) -> gpu.Source:
        if self.scheduler in ("fifo", "lifo"):
            return BLOCKING if self.spec["join"] == "block" else QUEUES
        return SLICING if self.scheduler == "round_robin" else STEALING

    def compute(self, first: int, count: int) -> tuple[dict[str, Any], list[int]]:
        """Simulate replicas first..first+count-1. Return the partial result, and the replicas to simulate on a CPU."""
        device = gpu.current_device()
        blocks, threads = self._place(count)
        words = len(rows.ROW) + layout.ASIDE + self.depths
        measured, waits, sojourns = (device.zeros(size, np.int64) for size in (count * words, rows.BINS, rows.BINS))
        gpu.kernels(self.source)(
            "simulate_replicas",
            blocks,
            threads,
            random.mix(self.spec["seed"]),
            first,
            count,
            *self._numbers(),
            *self._tables,
            self._families,
            self.room,
            self._machines,
            self.machine_bytes,
            measured,
            waits,
            sojourns,
        )
        table = device.get(measured).reshape(count, words)
        totals, left = reduction.empty(self.depths), np.zeros(count, np.int64)
        columns, limbs = np.empty(len(rows.COLUMNS), np.int64), np.empty(reduction.LIMBS, np.int64)
        hashes, many = _reduce(first, count, self.cell, self.greedy, self.cores, table, left, columns, limbs, totals)
        counts = device.get(waits), device.get(sojourns)
        return reduction.partial(totals, count - many, int(hashes) & random.MASK, *counts), left[:many].tolist()

    @property
    def wave(self) -> int:
        """Return the number of replicas that fit into GPU memory at once, one thread each."""
        room = MOST_BYTES // (self.room * FAMILY_BYTES + self.machine_bytes)
        return max(self._block_threads, min(PROCESSOR_THREADS * gpu.current_device().processors, room))

    @property
    def _block_threads(self) -> int:
        return min(BLOCK_THREADS, EVENTS // (2 << (self.cores - 1).bit_length()))

    def _place(self, count: int) -> tuple[int, int]:
        """Allocate memory for the threads of a launch. Return (blocks, threads per block)."""
        threads = self._block_threads
        blocks = -(-min(count, self.wave) // threads)
        slots = blocks * threads
        if slots > self._slots:
            self._families = self._machines = None  # free the old arrays before allocating larger ones
            self._families = gpu.current_device().zeros(slots * self.room * FAMILY_BYTES // 8, np.int64)
            self._machines = gpu.current_device().zeros(slots * self.machine_bytes // 8, np.int64)
            self._slots = slots
        return blocks, threads


def families(spec: Spec, scheduler: str) -> int:
    """Return the number of families (groups of siblings) that are reserved for a replica on the GPU.

    The number is enough for most replicas.
    """
    return min(sizes.families(spec, scheduler), int(ROOM * expected_families(spec, scheduler)) + LEAST_ROOM)


def expected_families(spec: Spec, scheduler: str) -> float:
    """Return the expected number of families (groups of siblings) of a replica.

    There are families of roots, and a family for each thread with children. With round_robin, preempted threads need
    families too; rarely more exist at once than threads in two depths.
    """
    offspring, depths = spec["offspring"], range(spec["max_depth"])
    levels = theory.threads_by_depth(offspring, spec["thread_count"], spec["max_depth"])
    parents = sum(float(levels[depth] * _parents(offspring, depth)) for depth in depths)
    preempted = 2 * float(max(levels)) if scheduler == "round_robin" else 0.0
    return parents + preempted + (spec["thread_count"] if spec["arrival"] else 1)


def _parents(offspring: dict[str, Any], depth: int) -> Fraction:
    """Return the probability that a thread at this depth has children."""
    return Fraction(sum(weight for children, weight in tables.offspring_weights(offspring, depth) if children))


def steps(spec: Spec, scheduler: str) -> int:
    """Return the maximum number of steal attempts or time slices of a replica on the GPU."""
    slices = sizes.slices(spec) if scheduler == "round_robin" else 1
    return int(STEPS * slices * spec["expected_threads"]) + LEAST_STEPS
