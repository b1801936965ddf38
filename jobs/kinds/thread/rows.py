"""Measurements of one replica, their hash, and how replicas are summed. Exact integers only.

The kernels' arrays follow the order of the tuples below.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jobs.kinds.random import mix, sub

#: A replica's row, in the order of the digest.
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
#: Quotients of a row's values, rounded down to a multiple of 2^-20 and counted in those.
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
#: Columns whose distribution over replicas is kept.
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
#: Pairs whose products are summed: (a, b) gives sum a*b; intervals of quotients of sums need them.
PRODUCTS = (("sum_wait_ns", "n_measured"), ("n_waited", "n_measured"), ("sum_sojourn_ns", "n_sojourns"))
OUTCOMES = ("completed", "deadlocked", "capped")
INVARIANTS = ("work_conservation_violations", "lower_bound_violations", "greedy_bound_violations")
#: Ratios are counted in units of 2^-20.
RATIO_BITS = 20
#: Bins of a log-linear histogram.
BINS = 3840
#: The least of no values.
NONE = 2**63 - 1

#: Wait and sojourn sums can pass 63 bits; their extremes are kept apart as max_wait_ns and max_sojourn_ns.
_WIDE = ("sum_wait_ns", "sum_sojourn_ns")
EXTREMES = tuple(name for name in COLUMNS if name not in _WIDE)


def bin_of(value: int) -> int:
    """loglinear6: 0..63 have a bin each, every octave above has 64."""
    msb = value.bit_length() - 1
    return value if msb < 6 else 64 * (msb - 5) + (value >> (msb - 6)) - 64


def bin_edges(index: int) -> tuple[int, int]:
    """Least and greatest value of a bin."""
    if index < 64:
        return index, index
    shift = index // 64 - 1
    low = (index % 64 + 64) << shift
    return low, low + (1 << shift) - 1


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Measurements of one replica besides its histograms of waits and sojourns."""

    #: By the names of ROW.
    row: dict[str, int]
    #: Threads at depth 0..max_depth.
    by_depth: Sequence[int]
    #: Integral of the ready threads over time: all waits, those of warm-up roots' trees too.
    ready_ns: int
    #: Dispatch costs of threads that had been preempted.
    again_ns: int
    #: No core idles while a thread is ready, and all roots are there from the start.
    greedy: bool


def ratios(measured: Measured, cores: int) -> dict[str, int]:
    """RATIOS of a replica, in units of 2^-20, rounded down."""
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
    """One 0 or 1 for each of INVARIANTS."""
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
    """Return the 64-bit hash of a replica: chained over cell, replica, ROW, and the threads of each depth."""
    word = sub(mix(cell), replica)
    for value in (*(row[name] for name in ROW), *by_depth):
        word = sub(word, value)
    return word


def cell_partial(cores: int, cell: int, replica: int, measured: Measured) -> dict[str, Any]:
    """The partial of one replica of one cell, without latencies' histograms; merging adds them up."""
    row, by_depth = measured.row, measured.by_depth
    part = {
        **nothing(len(by_depth)),
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


def nothing(depths: int) -> dict[str, Any]:
    """Return a cell's partial of no replica."""
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
