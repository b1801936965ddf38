"""Computes a job's result from its merged partial; see the section "Result" of README.md."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from jobs.kinds import random
from jobs.kinds.thread import report_estimates as estimates
from jobs.kinds.thread import rows, theory
from jobs.kinds.thread.partials import Histogram, pairs
from jobs.kinds.thread.report_estimates import round_digits
from jobs.models import Partial, Spec
from threads_protocol.numbers import exact

_MICRO = Fraction(1, 1000)
_RATIO = Fraction(1, 2**rows.RATIO_BITS)
#: Column of each metric, and the factor from the column's unit to the metric's unit.
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
    """Return the job's result without type and version. Simulated machines without replicas are omitted."""
    by_number = partial.get("cells", {})
    cells = [
        _Cell(spec, number, by_number[str(number)]) for number in range(len(spec["cells"])) if str(number) in by_number
    ]
    return {
        "parameters": spec["parameters"],
        "replicas": spec["replicas"],
        "digest": f"{sum(cell.part['digest'] for cell in cells) & random.MASK:016x}",
        "cells": [cell.report() for cell in cells],
        "warnings": theory.overloads(spec) + [warning for cell in cells for warning in cell.warnings()],
        "threads_simulated": exact(sum(cell.sum("threads") for cell in cells)),
    }


@dataclass
class _Cell:
    spec: Spec
    number: int
    part: dict[str, Any]

    def __post_init__(self) -> None:
        self.cores, self.scheduler = self.spec["cells"][self.number]
        self.replicas: int = self.part["replicas"]
        self.deadlocked = self.outcome("deadlocked")
        #: Number of replicas without a deadlock; all statistics except the outcomes are based on these replicas.
        self.ended = self.replicas - self.deadlocked
        self.level: float = self.spec["parameters"]["confidence"]

    def outcome(self, name: str) -> int:
        return int(self.part["outcomes"][rows.OUTCOMES.index(name)])

    def sum(self, column: str) -> int:
        return int(self.part["sum"][rows.COLUMNS.index(column)])

    def sumsq(self, column: str) -> int:
        return int(self.part["sumsq"][rows.COLUMNS.index(column)])

    def sums(self, column: str) -> tuple[int, int]:
        return self.sum(column), self.sumsq(column)

    def least(self, column: str) -> int:
        return int(self.part["min"][rows.EXTREMES.index(column)])

    def most(self, column: str) -> int:
        return int(self.part["max"][rows.EXTREMES.index(column)])

    def spread(self, column: str) -> Histogram:
        histogram: Histogram = self.part["spread"][rows.SPREAD.index(column)]
        return histogram

    def report(self) -> dict[str, Any]:
        ended = self.ended > 0
        return {
            "cell": self.number,
            "cores": self.cores,
            "scheduler": self.scheduler,
            "replicas": self.replicas,
            "digest": f"{self.part['digest']:016x}",
            "outcomes": dict(zip(rows.OUTCOMES, self.part["outcomes"], strict=True)),
            "metrics": {name: self.metric(name) for name in _METRICS} if ended else {},
            "latency": self.latency() if ended else {},
            "histograms": self.histograms(),
            "threads_by_depth": self.depths() if ended else [],
            "theory": self.theory() if ended else [],
            "deadlock": self.deadlock() if self.spec["join"] == "block" else None,
            "examples": {
                name: {"replica": replica, "makespan_us": round_digits(time * _MICRO)}
                for name, (time, replica) in self.part["examples"].items()
            },
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
        total, squares = self.sums(column)
        least, most = self.least(column), self.most(column)
        stdev = None
        if self.ended > 1:
            stdev = round_digits(estimates.root(estimates.variance(self.ended, total, squares)) * float(scale))
        return {
            "mean": round_digits(Fraction(total, self.ended) * scale),
            "ci": estimates.mean_interval(self.ended, total, squares, self.level, scale),
            "stdev": stdev,
            "min": round_digits(least * scale),
            **_percentiles(self.spread(column), _METRIC_SHARES, least, most, scale),
            "max": round_digits(most * scale),
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
            "max": round_digits(most * _MICRO),
        }

    def _quotient(self, product: int, scale: Fraction) -> dict[str, Any]:
        over, under = rows.PRODUCTS[product]
        sums = self.sums(over), self.sums(under)
        interval = estimates.quotient_interval(self.ended, *sums, self.part["products"][product], self.level, scale)
        mean = round_digits(Fraction(self.sum(over), self.sum(under)) * scale)
        return {"mean": mean, "ci": interval}

    def histograms(self) -> dict[str, Any]:
        histograms = {
            "makespan_ns": self.spread("makespan_ns"),
            "thread_wait_ns": self.part["wait"],
            "root_sojourn_ns": self.part["sojourn"],
        }
        return {name: {"scheme": "loglinear6", "bins": pairs(each)} for name, each in histograms.items()}

    def depths(self) -> list[dict[str, Any]]:
        expected = theory.threads_by_depth(self.spec["offspring"], self.spec["thread_count"], self.spec["max_depth"])
        sums = zip(self.part["depth_sum"], self.part["depth_sumsq"], expected, strict=True)
        return [
            {
                "depth": depth,
                "mean": round_digits(Fraction(total, self.ended)),
                "ci": estimates.mean_interval(self.ended, total, squares, self.level, Fraction(1)),
                "expected": round_digits(each),
            }
            for depth, (total, squares, each) in enumerate(sums)
        ]

    def deadlock(self) -> dict[str, Any]:
        """Return the probability of a deadlock and the distribution of deadlock times."""
        total, squares = self.part["stuck"]
        interval = estimates.share_interval(self.deadlocked, self.replicas, self.level)
        answer: dict[str, Any] = {
            "probability": {"mean": round_digits(self.deadlocked / self.replicas), "ci": interval}
        }
        if self.deadlocked:
            histogram = self.part["stuck_at"]
            most = rows.bin_edges(histogram[-2])[1]
            answer["time_us"] = {
                "mean": round_digits(Fraction(total, self.deadlocked) * _MICRO),
                "ci": estimates.mean_interval(self.deadlocked, total, squares, self.level, _MICRO),
                **_percentiles(histogram, _METRIC_SHARES, 0, most, _MICRO),
            }
        return answer

    def theory(self) -> list[dict[str, Any]]:
        """Compare the results with the theoretical laws that the simulated model obeys.

        No law applies if replicas were capped, deadlocked or overloaded.
        """
        spec, whole = self.spec, self.outcome("completed") == self.replicas
        roots, depth = spec["thread_count"], spec["max_depth"]
        population = sum(theory.threads_by_depth(spec["offspring"], roots, depth), Fraction(0))
        laws = [self._law("gw_mean_population", population, *self._mean("threads"), whole)]
        if depth and not theory.is_childless(spec):
            laws.append(self._extinction(theory.extinction(spec["offspring"], roots, depth), whole))
        if theory.is_bag(spec, self.cores):
            makespan = theory.bag_makespan(Fraction(spec["work"]["numbers"][0]), roots, self.cores)
            mean = self._mean("makespan_ns", _MICRO)
            laws.append(self._law("exponential_bag_makespan_us", makespan * _MICRO, *mean, whole))
        return laws + self._queues(whole)

    def _queues(self, whole: bool) -> list[dict[str, Any]]:
        """Compare the results with the laws of queueing theory for endless arrivals.

        A run starts on an empty machine, so the laws require warm-up roots.
        """
        load, laws = theory.offered_load(self.spec, self.cores), []
        if load is None:
            return []
        steady = whole and load < 1
        laws.append(self._law("offered_load_utilization", load, *self._mean("utilization", _RATIO), steady))
        if theory.is_queue(self.spec, self.scheduler) and load < 1:
            waits, wait = theory.queue_waits(self.spec, self.cores)
            laws.append(self._law("queue_p_wait", waits, *self._ratio(1, Fraction(1)), steady))
            laws.append(self._law("queue_mean_wait_us", _in_us(wait), *self._ratio(0, _MICRO), steady))
        sojourn = theory.shared_sojourn(self.spec, self.cores, self.scheduler)
        laws.append(self._law("processor_sharing_sojourn_us", _in_us(sojourn), *self._ratio(2, _MICRO), steady))
        return [law for law in laws if law["expected"] is not None]

    def _mean(self, column: str, scale: Fraction = Fraction(1)) -> tuple[Fraction, float]:
        """Return the mean over replicas and its standard error."""
        total, squares = self.sums(column)
        error = 0.0
        if self.ended > 1:
            error = estimates.root(estimates.variance(self.ended, total, squares) / self.ended) * float(scale)
        return Fraction(total, self.ended) * scale, error

    def _ratio(self, product: int, scale: Fraction) -> tuple[Fraction, float]:
        """Return a ratio of sums over replicas and its standard error."""
        over, under = rows.PRODUCTS[product]
        sums = self.sums(over), self.sums(under)
        error = estimates.quotient_error(self.ended, *sums, self.part["products"][product]) * float(scale)
        return Fraction(sums[0][0], sums[1][0]) * scale, error

    def _extinction(self, expected: float, whole: bool) -> dict[str, Any]:
        """Compare the share of replicas in which no thread reached max_depth with the theoretical share.

        Each depth below 64 has a separate bin.
        """
        reached = dict(pairs(self.spread("max_depth_reached")))
        missed = self.ended - reached.get(self.spec["max_depth"], 0)
        error = estimates.root(Fraction(repr(expected * (1 - expected))) / self.ended)
        return self._law("gw_extinction", expected, Fraction(missed, self.ended), error, whole)

    def _law(
        self, name: str, expected: Fraction | float | None, observed: Fraction, error: float, applies: bool
    ) -> dict[str, Any]:
        return {
            "name": name,
            "expected": None if expected is None else round_digits(expected),
            "observed": round_digits(observed),
            "z": round_digits((float(observed) - float(expected)) / error) if expected is not None and error else None,
            "applies": applies,
        }

    def warnings(self) -> list[str]:
        """Return warnings about one simulated machine as sentences for users."""
        sentences, where = [], f"of {self.replicas} replicas on {self.cores} cores with {self.scheduler}"
        capped = self.outcome("capped")
        if capped:
            refused = self.sum("spawns_refused")
            sentences.append(
                f"{capped} {where} reached max_threads: {refused} spawns were refused, and theory does not apply"
            )
        if self.deadlocked:
            sentences.append(
                f"{self.deadlocked} {where} deadlocked and are counted only in the fields outcomes and deadlock"
            )
        return sentences


def _in_us(time: Fraction | None) -> Fraction | None:
    return None if time is None else time * _MICRO


def _percentiles(
    histogram: Histogram, wanted: dict[str, Fraction], least: int, most: int, scale: Fraction
) -> dict[str, float]:
    return {
        name: round_digits(estimates.percentile(histogram, share, least, most) * scale)
        for name, share in wanted.items()
    }
