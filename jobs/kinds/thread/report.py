"""The `result` of a job out of its merged partial; README, `Result`."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from jobs.kinds.thread import estimates, rows, streams, theory
from jobs.kinds.thread.estimates import figure
from jobs.kinds.thread.merging import Histogram, pairs
from jobs.models import Partial, Spec
from jobs.numbers import exact

_MICRO = Fraction(1, 1000)
_RATIO = Fraction(1, 2**rows.RATIO_BITS)
#: Metric -> (column, unit of the column in the metric's unit).
_METRICS: dict[str, tuple[str, Fraction]] = {
    "makespan_us": ("makespan_ns", _MICRO),
    "work_us": ("work_ns", _MICRO),
    "span_us": ("span_ns", _MICRO),
    "parallelism": ("parallelism", _RATIO),
    "speedup": ("speedup", _RATIO),
    "efficiency": ("speedup", _RATIO),
    "utilization": ("utilization", _RATIO),
    "overhead_fraction": ("overhead_fraction", _RATIO),
    "greedy_ratio": ("greedy_ratio", _RATIO),
    "threads": ("threads", Fraction(1)),
    "max_depth_reached": ("max_depth_reached", Fraction(1)),
    "peak_live_threads": ("peak_live", Fraction(1)),
    "peak_ready_queue": ("peak_ready", Fraction(1)),
    "peak_stack_mib": ("peak_live", Fraction(1)),
    "steals": ("steals", Fraction(1)),
    "steal_attempts": ("attempts", Fraction(1)),
    "context_switches": ("switches", Fraction(1)),
    "mean_ready_queue": ("mean_ready_queue", _RATIO),
    "throughput_threads_per_s": ("throughput_threads_per_s", _RATIO),
}
_METRIC_SHARES = estimates.shares(("p05", "p50", "p95", "p99"))
_LATENCY_SHARES = estimates.shares(("p50", "p90", "p95", "p99", "p999"))


def report(spec: Spec, partial: Partial) -> dict[str, Any]:
    """Everything of `result` but its type and version. Cells without a replica are left out."""
    found = partial.get("cells", {})
    cells = [_Cell(spec, number, found[str(number)]) for number in range(len(spec["cells"])) if str(number) in found]
    return {
        "parameters": spec["parameters"],
        "replicas": spec["replicas"],
        "digest": f"{sum(cell.part['digest'] for cell in cells) & streams.MASK:016x}",
        "cells": [cell.report() for cell in cells],
        "warnings": [warning for cell in cells for warning in cell.warnings()],
        "threads_simulated": exact(sum(cell.sum("threads") for cell in cells)),
        "trace": None,
    }


@dataclass
class _Cell:
    spec: Spec
    number: int
    part: dict[str, Any]

    def __post_init__(self) -> None:
        self.cores, self.scheduler = self.spec["cells"][self.number]
        self.replicas: int = self.part["replicas"]
        self.level: float = self.spec["parameters"]["confidence"]

    def sum(self, column: str) -> int:
        return int(self.part["sum"][rows.COLUMNS.index(column)])

    def sumsq(self, column: str) -> int:
        return int(self.part["sumsq"][rows.COLUMNS.index(column)])

    def least(self, column: str) -> int:
        return int(self.part["min"][rows.EXTREMES.index(column)])

    def most(self, column: str) -> int:
        return int(self.part["max"][rows.EXTREMES.index(column)])

    def report(self) -> dict[str, Any]:
        return {
            "cores": self.cores,
            "scheduler": self.scheduler,
            "replicas": self.replicas,
            "digest": f"{self.part['digest']:016x}",
            "outcomes": dict(zip(rows.OUTCOMES, self.part["outcomes"], strict=True)),
            "metrics": {name: self.metric(name) for name in _METRICS},
            "latency": self.latency(),
            "histograms": self.histograms(),
            "threads_by_depth": self.depths(),
            "theory": self.theory(),
            "invariants": dict(zip(rows.INVARIANTS, self.part["violations"], strict=True)),
            "exact": {
                "sum": {name: exact(self.sum(name)) for name in rows.ROW},
                "sumsq": {name: exact(self.sumsq(name)) for name in rows.ROW},
            },
        }

    def metric(self, name: str) -> dict[str, Any]:
        column, scale = _METRICS[name]
        if name == "efficiency":
            scale = scale / self.cores
        if name == "peak_stack_mib":
            scale = Fraction(repr(self.spec["parameters"]["stack_kib"])) / 1024
        total, squares = self.sum(column), self.sumsq(column)
        spread = self.part["spread"][rows.SPREAD.index(column)]
        least, most = self.least(column), self.most(column)
        few = self.replicas < 2
        stdev = (
            None if few else figure(estimates.root(estimates.variance(self.replicas, total, squares)) * float(scale))
        )
        return {
            "mean": figure(Fraction(total, self.replicas) * scale),
            "ci": estimates.mean_interval(self.replicas, total, squares, self.level, scale),
            "stdev": stdev,
            "min": figure(least * scale),
            **_percentiles(spread, _METRIC_SHARES, least, most, scale),
            "max": figure(most * scale),
        }

    def latency(self) -> dict[str, Any]:
        return {
            "thread_wait_us": self._latency(0, self.part["wait"], "max_wait_ns"),
            "root_sojourn_us": self._latency(2, self.part["sojourn"], "max_sojourn_ns"),
            "p_wait": self._quotient(1, Fraction(1)),
        }

    def _latency(self, product: int, histogram: Histogram, extreme: str) -> dict[str, Any]:
        most = self.most(extreme)
        return {
            "count": exact(sum(count for _, count in pairs(histogram))),
            **self._quotient(product, _MICRO),
            **_percentiles(histogram, _LATENCY_SHARES, 0, most, _MICRO),
            "max": figure(most * _MICRO),
        }

    def _quotient(self, product: int, scale: Fraction) -> dict[str, Any]:
        over, under = rows.PRODUCTS[product]
        sums = (self.sum(over), self.sumsq(over)), (self.sum(under), self.sumsq(under))
        interval = estimates.quotient_interval(self.replicas, *sums, self.part["products"][product], self.level, scale)
        mean = figure(Fraction(self.sum(over), self.sum(under)) * scale)
        return {"mean": mean, "ci": interval}

    def histograms(self) -> dict[str, Any]:
        found = {
            "makespan_ns": self.part["spread"][rows.SPREAD.index("makespan_ns")],
            "thread_wait_ns": self.part["wait"],
            "root_sojourn_ns": self.part["sojourn"],
        }
        return {name: {"scheme": "loglinear6", "bins": pairs(each)} for name, each in found.items()}

    def depths(self) -> list[dict[str, Any]]:
        expected = theory.threads_by_depth(self.spec["offspring"], self.spec["thread_count"], self.spec["max_depth"])
        sums = zip(self.part["depth_sum"], self.part["depth_sumsq"], expected, strict=True)
        return [
            {
                "depth": depth,
                "mean": figure(Fraction(total, self.replicas)),
                "ci": estimates.mean_interval(self.replicas, total, squares, self.level, Fraction(1)),
                "expected": figure(each),
            }
            for depth, (total, squares, each) in enumerate(sums)
        ]

    def theory(self) -> list[dict[str, Any]]:
        whole = self.part["outcomes"][rows.OUTCOMES.index("capped")] == 0
        population = sum(
            theory.threads_by_depth(self.spec["offspring"], self.spec["thread_count"], self.spec["max_depth"])
        )
        bag = theory.is_bag(self.spec, self.cores)
        makespan = theory.bag_makespan(Fraction(self.spec["work"]["numbers"][0]), self.spec["thread_count"], self.cores)
        return [
            self._law("gw_mean_population", Fraction(population), "threads", Fraction(1), whole),
            self._law("exponential_bag_makespan_us", makespan * _MICRO if bag else None, "makespan_ns", _MICRO, bag),
        ]

    def _law(self, name: str, expected: Fraction | None, column: str, scale: Fraction, applies: bool) -> dict[str, Any]:
        total, squares = self.sum(column), self.sumsq(column)
        observed = Fraction(total, self.replicas) * scale
        error = 0.0
        if self.replicas > 1:
            error = estimates.root(estimates.variance(self.replicas, total, squares) / self.replicas) * float(scale)
        return {
            "name": name,
            "expected": None if expected is None else figure(expected),
            "observed": figure(observed),
            "z": figure(float(observed - expected) / error) if expected is not None and error else None,
            "applies": applies,
        }

    def warnings(self) -> list[str]:
        """Sentences about this cell for people."""
        capped = self.part["outcomes"][rows.OUTCOMES.index("capped")]
        if not capped:
            return []
        told = f"{capped} of {self.replicas} replicas on {self.cores} cores with {self.scheduler} reached max_threads"
        return [f"{told}: {self.sum('spawns_refused')} spawns were refused, and theory does not apply"]


def _percentiles(
    histogram: Histogram, wanted: dict[str, Fraction], least: int, most: int, scale: Fraction
) -> dict[str, float]:
    return {name: figure(estimates.percentile(histogram, share, least, most) * scale) for name, share in wanted.items()}
