"""Tests that thread jobs are planned quickly, with the same integers as slow exact arithmetic."""

from __future__ import annotations

import time
from decimal import Decimal
from fractions import Fraction
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from coordinator.access.principal import ANYONE
from coordinator.jobs import scheduler, submissions
from jobs.kinds.thread import parameters, tables, tables_pareto
from jobs.settings import Settings


def pareto(number: int) -> dict[str, Any]:
    """Return a sweep with its own law."""
    return {
        "type": "thread",
        "parameters": {
            "replicas": 64,
            "thread_count": 100,
            "cores": [1, 2, 4, 8],
            "scheduler": ["round_robin", "fifo"],
            "work": {"distribution": "pareto", "mean_us": 100 + number, "alpha": 1.5 + number / 100, "max_ratio": 1000},
            "arrival": {"process": "poisson", "rate_per_ms": 1},
        },
    }


def test_a_batch_of_120_different_pareto_jobs_is_planned_in_no_time() -> None:
    """Each such job once took 0.14 s of CPU time, because of a sum of 711 fractions per cell."""
    began = time.process_time()
    for number in range(120):
        submissions.accept(submissions.parse_submission(pareto(number)), ANYONE, scheduler.Fleet(), Settings())
    assert time.process_time() - began < 3


@settings(max_examples=12)
@given(st.floats(0.001, 1e4), st.floats(1.05, 10), st.floats(1, 1e4))
@example(0.5005, 1.37, 1.0)
@example(0.5005, 1.37, 1.0000001)
@example(1e4, 1.05, 1e4)
@example(0.001, 10.0, 1e4)
def test_every_point_of_a_pareto_table_is_the_nearest_integer(mean_us: float, alpha: float, max_ratio: float) -> None:
    """All three methods yield the integers of the slowest one, which bisects the least work."""
    exact, bisected = (tables_pareto.Exact(mean_us, alpha, max_ratio) for _ in range(2))
    bisected.near_least = bisected.least
    table = tables_pareto.points(mean_us, alpha, max_ratio)
    for place in [*range(0, tables_pareto.POINTS, 50), tables_pareto.POINTS - 1]:
        assert table[place] == exact.point(place) == bisected.point(place)


@pytest.mark.parametrize("law", [(0.5005, 1.37, 1.5), (1e4, 1.05, 1e4), (123.4, 10.0, 3.0)])
def test_each_tier_is_right_a_hundred_times_over(law: tuple[float, float, float]) -> None:
    exact = tables_pareto.Exact(*law)
    assert abs(tables_pareto.near_points(*law)[0] / float(exact.least) - 1) < tables_pareto.DOUBT / 100
    longest = law[0] * 1000 * law[2]
    assert abs(exact.near_least / exact.least - 1) * Decimal(longest) < tables_pareto.DECIMAL_DOUBT / 100
    assert exact.near_least != exact.least


def test_where_newtons_steps_would_not_lead_to_the_least_work_it_is_bisected() -> None:
    exact = tables_pareto.Exact(0.5005, 1.37, 1.0)
    assert exact.near_least is exact.least


def test_the_mean_of_a_pareto_table_is_the_sum_of_its_shares() -> None:
    table = tables.work(parameters.ParetoWork(distribution="pareto", mean_us=100, alpha=1.5, max_ratio=1000))
    shares, common = tables_pareto.shares()
    slow = sum(
        (Fraction(share, common) * point for share, point in zip(shares, table["numbers"], strict=True)), Fraction()
    )
    assert tables.mean_work(table) == slow
    assert float(slow) == pytest.approx(1e5, rel=1e-3)


@pytest.mark.parametrize("mean", [Fraction(0), Fraction(1, 3), Fraction("0.987654321"), Fraction(16)])
def test_thresholds_are_the_rounded_sums_of_the_weights(mean: Fraction) -> None:
    again = mean / (1 + mean)
    weights = [(1 - again) * again**children for children in range(tables.MAX_CHILDREN)]
    assert tables.geometric_table(mean) == [round(each * tables.ONE) for each in accumulate(weights)]
    first = tables.childless_probability(mean)
    weights = [first]
    for children in range(1, tables.MAX_CHILDREN):
        weights.append(weights[-1] * mean / children)
    assert tables.poisson_table(mean) == [round(each * tables.ONE) for each in accumulate(weights)]


@pytest.mark.parametrize(
    ("over", "under", "nearest"), [(5, 2, 2), (7, 2, 4), (8, 3, 3), (7, 3, 2), (0, 9, 0), (9, 9, 1)]
)
def test_halves_are_rounded_to_even(over: int, under: int, nearest: int) -> None:
    assert tables.nearest_threshold(over, under) == nearest == round(Fraction(over, under))
