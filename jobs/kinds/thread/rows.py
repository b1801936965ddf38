"""Measurements of one simulation run (replica), their hash, and their sums over replicas, as exact integers.

The arrays of the kernels have the order of the tuples below.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jobs.kinds.random import mix, sub

#: Names of the measurements of a replica, in the order in which the digest hashes them.
ROW = (
    "makespan_ns",
    "work_ns",
    "overhead_ns",
    "span_ns",
    "span_work_ns",
    "threads",
    "max_depth_reached",
    "peak_live",
    "peak_ready",
    "busy_ns",
    "steal_ns",
    "idle_ns",
    "steals",
    "attempts",
    "switches",
    "sum_wait_ns",
    "n_measured",
    "n_waited",
    "spawns_refused",
    "outcome",
    "sum_sojourn_ns",
    "n_sojourns",
    "max_wait_ns",
    "max_sojourn_ns",
)
#: Ratios of measurements, rounded down to a multiple of 2^-20 and stored in units of 2^-20.
RATIOS = (
    "speedup",
    "parallelism",
    "utilization",
    "overhead_fraction",
    "greedy_ratio",
    "mean_ready_queue",
    "throughput_threads_per_s",
)
COLUMNS = ROW + RATIOS
#: Columns for which a histogram over replicas is stored.
SPREAD = (
    "makespan_ns",
    "work_ns",
    "span_ns",
    "threads",
    "max_depth_reached",
    "peak_live",
    "peak_ready",
    "steals",
    "attempts",
    "switches",
    *RATIOS,
)
#: Pairs (a, b) for which the sum of a*b is kept; confidence intervals of ratios need this sum.
PRODUCTS = (("sum_wait_ns", "n_measured"), ("n_waited", "n_measured"), ("sum_sojourn_ns", "n_sojourns"))
OUTCOMES = ("completed", "deadlocked", "capped")
INVARIANTS = ("work_conservation_violations", "lower_bound_violations", "greedy_bound_violations")
#: Ratios are stored in units of 2^-RATIO_BITS.
RATIO_BITS = 20
#: Number of bins of a log-linear histogram.
BINS = 3840
#: Initial value of a minimum; all measurements are smaller.
NONE = 2**63 - 1

#: Sums that can exceed 63 bits; their extremes are stored in max_wait_ns and max_sojourn_ns.
_WIDE = ("sum_wait_ns", "sum_sojourn_ns")
EXTREMES = tuple(name for name in COLUMNS if name not in _WIDE)


def bin_of(value: int) -> int:
    """Return the histogram bin of a value: 0..63 have one bin each, and each octave above has 64 bins."""
    msb = value.bit_length() - 1
    return value if msb < 6 else 64 * (msb - 5) + (value >> (msb - 6)) - 64


def bin_edges(index: int) -> tuple[int, int]:
    """Return the smallest and the largest value of a bin."""
    if index < 64:
        return index, index
    shift = index // 64 - 1
    low = (index % 64 + 64) << shift
    return low, low + (1 << shift) - 1


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Measurements of one replica, except for its histograms of waits and sojourns."""

    #: Values of the columns in ROW, by name.
    row: dict[str, int]
    #: Number of threads at each depth 0..max_depth.
    by_depth: Sequence[int]
    #: Integral of the number of ready threads over time in ns, including the threads of the warm-up.
    ready_ns: int
    #: Dispatch costs in ns of threads that were resumed after a preemption.
    again_ns: int
    #: Whether no core idles while a thread is ready, and all roots are ready at the start.
    greedy: bool


def ratios(measured: Measured, cores: int) -> dict[str, int]:
    """Return the ratios of a replica's measurements in units of 2^-20, rounded down."""
    row = measured.row
    alone = row["work_ns"] + row["overhead_ns"]
    area = cores * row["makespan_ns"]
    quotients = {
        "speedup": (alone, row["makespan_ns"]),
        "parallelism": (alone, row["span_ns"]),
        "utilization": (row["busy_ns"], area),
        "overhead_fraction": (row["overhead_ns"], alone),
        "greedy_ratio": (area, alone + (cores - 1) * row["span_ns"]),
        "mean_ready_queue": (measured.ready_ns, row["makespan_ns"]),
        "throughput_threads_per_s": (row["threads"] * 10**9, row["makespan_ns"]),
    }
    return {name: (over << RATIO_BITS) // under for name, (over, under) in quotients.items()}


def violations(measured: Measured, cores: int) -> list[int]:
    """Return a 0 or 1 for each invariant; 1 means that the replica violates it."""
    row = measured.row
    alone = row["work_ns"] + row["overhead_ns"]
    lower = max(-(-alone // cores), row["span_ns"])
    upper = (alone + (cores - 1) * row["span_ns"]) // cores
    return [
        int(row["busy_ns"] != alone + measured.again_ns),
        int(row["makespan_ns"] < lower),
        int(measured.greedy and row["makespan_ns"] > upper),
    ]


def digest(cell: int, replica: int, row: dict[str, int], by_depth: Sequence[int]) -> int:
    """Return the 64-bit hash of a replica's number and measurements.

    The hash is chained over cell, replica, ROW, and the number of threads at each depth.
    """
    word = sub(mix(cell), replica)
    for value in (*(row[name] for name in ROW), *by_depth):
        word = sub(word, value)
    return word


def cell_partial(cores: int, cell: int, replica: int, measured: Measured) -> dict[str, Any]:
    """Return the partial result of one replica, without histograms of waits and sojourns."""
    row, by_depth = measured.row, measured.by_depth
    part = {
        **empty_partial(len(by_depth)),
        "replicas": 1,
        "outcomes": [int(row["outcome"] == outcome) for outcome in range(len(OUTCOMES))],
        "digest": digest(cell, replica, row, by_depth),
    }
    if OUTCOMES[row["outcome"]] == "deadlocked":
        time = row["makespan_ns"]
        return part | {
            "stuck": [time, time**2],
            "stuck_at": [bin_of(time), 1],
            "examples": {"deadlocked": [time, replica]},
        }
    values = row | ratios(measured, cores)
    return part | {
        "sum": [values[name] for name in COLUMNS],
        "sumsq": [values[name] ** 2 for name in COLUMNS],
        "min": [values[name] for name in EXTREMES],
        "max": [values[name] for name in EXTREMES],
        "products": [values[left] * values[right] for left, right in PRODUCTS],
        "spread": [[bin_of(values[name]), 1] for name in SPREAD],
        "depth_sum": list(by_depth),
        "depth_sumsq": [threads**2 for threads in by_depth],
        "violations": violations(measured, cores),
        "examples": {name: [row["makespan_ns"], replica] for name in ("fastest", "slowest")},
    }


def empty_partial(depths: int) -> dict[str, Any]:
    """Return the partial result of a simulated machine without replicas."""
    return {
        "replicas": 0,
        "outcomes": [0] * len(OUTCOMES),
        "sum": [0] * len(COLUMNS),
        "sumsq": [0] * len(COLUMNS),
        "min": [NONE] * len(EXTREMES),
        "max": [0] * len(EXTREMES),
        "products": [0] * len(PRODUCTS),
        "spread": [[] for _ in SPREAD],
        "wait": [],
        "sojourn": [],
        "depth_sum": [0] * depths,
        "depth_sumsq": [0] * depths,
        "violations": [0] * len(INVARIANTS),
        "stuck": [0, 0],
        "stuck_at": [],
        "examples": {},
        "digest": 0,
    }
