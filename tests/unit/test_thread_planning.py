"""Thread jobs are planned quickly, to the same integers as slow exact arithmetic gives."""

from __future__ import annotations

import time
from fractions import Fraction
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from coordinator.jobs import scheduler, submissions
from jobs.kinds.thread import parameters, tables
from jobs.settings import Settings


def pareto(number: int) -> dict[str, Any]:
    """A sweep under a law of its own."""
    return {
        "type": "thread",
        "parameters": {
            "replicas": 64, "thread_count": 100, "cores": [1, 2, 4, 8], "scheduler": ["round_robin", "fifo"],
            "work": {"distribution": "pareto", "mean_us": 100 + number, "alpha": 1.5 + number / 100, "max_ratio": 1000},
            "arrival": {"process": "poisson", "rate_per_ms": 1},
        },
    }  # fmt: skip


def test_a_batch_of_120_different_pareto_jobs_is_planned_in_no_time() -> None:
    """In CPU seconds, of which one such job took 0.14 with a sum of 711 fractions a cell."""
    began = time.process_time()
    for number in range(120):
        submissions.accept(submissions.read(pareto(number)), "me", scheduler.Fleet(), Settings())
    assert time.process_time() - began < 3


@settings(max_examples=12)
@given(st.floats(0.001, 1e4), st.floats(1.05, 10), st.floats(1, 1e4))
@example(0.5005, 1.37, 1.0)
@example(1e4, 1.05, 1e4)
@example(0.001, 10.0, 1e4)
def test_every_point_of_a_pareto_table_is_the_nearest_integer(mean_us: float, alpha: float, max_ratio: float) -> None:
    exact = tables._ExactPareto(mean_us, alpha, max_ratio)
    found = tables._pareto(mean_us, alpha, max_ratio)
    places = [*range(0, tables.PARETO_POINTS, 50), tables.PARETO_POINTS - 1]
    assert [found[place] for place in places] == [exact.point(place) for place in places]


def test_floats_tell_an_integer_only_where_they_are_right_a_hundred_times_over() -> None:
    for mean_us, alpha, max_ratio in [(0.5005, 1.37, 1.0), (1e4, 1.05, 1e4), (123.4, 10.0, 3.0)]:
        near = tables._near_pareto(mean_us, alpha, max_ratio)
        exact = tables._ExactPareto(mean_us, alpha, max_ratio)._least
        assert abs(near[0] / float(exact) - 1) < tables._DOUBT / 100


def test_the_mean_of_a_pareto_table_is_the_sum_of_its_shares() -> None:
    table = tables.work(parameters.ParetoWork(distribution="pareto", mean_us=100, alpha=1.5, max_ratio=1000))
    shares, common = tables._pareto_shares()
    slow = sum(
        (Fraction(share, common) * point for share, point in zip(shares, table["numbers"], strict=True)), Fraction()
    )
    assert tables.mean_work(table) == slow
    assert float(slow) == pytest.approx(1e5, rel=1e-3)


@pytest.mark.parametrize("mean", [Fraction(0), Fraction(1, 3), Fraction("0.987654321"), Fraction(16)])
def test_thresholds_are_the_rounded_sums_of_the_weights(mean: Fraction) -> None:
    again = mean / (1 + mean)
    weights = [(1 - again) * again**children for children in range(tables.MAX_CHILDREN)]
    assert tables._geometric(mean) == [round(each * tables.ONE) for each in accumulate(weights)]
    first = tables._childless(mean)
    weights = [first]
    for children in range(1, tables.MAX_CHILDREN):
        weights.append(weights[-1] * mean / children)
    assert tables._poisson(mean) == [round(each * tables.ONE) for each in accumulate(weights)]


@pytest.mark.parametrize(
    ("over", "under", "nearest"), [(5, 2, 2), (7, 2, 4), (8, 3, 3), (7, 3, 2), (0, 9, 0), (9, 9, 1)]
)
def test_halves_are_rounded_to_even(over: int, under: int, nearest: int) -> None:
    assert tables._nearest(over, under) == nearest == round(Fraction(over, under))
