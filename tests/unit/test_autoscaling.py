"""Tests the number of needed workers, and its effects on a simulated clock."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.fleet.autoscaling import RAISE_SECONDS, Limits, Scale, Work, Workers, count_needed_workers, next_scale
from jobs.models import Device

CPU, GPU = Device.CPU, Device.GPU
CALM = 300.0
TEN = Limits(least=1, most=10)


def count(*work: Work, lanes: float = 2, most: int = 10, gpus: int = 0, **max_lanes: int) -> dict[Device, int]:
    limits = {CPU: Limits(least=1, most=most), GPU: Limits(least=0, most=gpus)}
    return count_needed_workers(work, {CPU: Workers(live=1, lanes=lanes), GPU: Workers(lanes=2)}, limits, max_lanes)


def on_cpu(seconds: float, jobs: float = 1, pace: float = 1, most_lanes: float = math.inf, tenant: str = "a") -> Work:
    return Work(jobs=jobs, seconds=seconds, paces={CPU: pace}, most_lanes=most_lanes, tenant=tenant)


# -- how many are needed ----------------------------------------------------------------------------------------------


def test_workers_do_the_work_in_a_minute() -> None:
    assert count() == {CPU: 0, GPU: 0}
    assert count(on_cpu(600))[CPU] == 5
    assert count(on_cpu(600), lanes=4)[CPU] == 3
    assert count(on_cpu(600, pace=5))[CPU] == 1
    assert count(on_cpu(0.1, jobs=6000))[CPU] == 5


def test_any_work_needs_a_worker_and_sums_of_fractions_no_further_one() -> None:
    assert count(on_cpu(1e-3))[CPU] == 1
    assert count(on_cpu(1e-3, jobs=1e-3))[CPU] == 1
    assert count(*[on_cpu(12)] * 10)[CPU] == 1


def test_work_that_cannot_be_divided_asks_for_no_more_lanes_than_it_can_use() -> None:
    assert count(on_cpu(1e6, most_lanes=1))[CPU] == 1
    assert count(on_cpu(1e6, jobs=8, most_lanes=1))[CPU] == 4


def test_a_tenant_asks_for_no_more_lanes_than_its_cap() -> None:
    both = on_cpu(1e6), on_cpu(1e6, tenant="b")
    assert count(*both, a=2, b=4)[CPU] == 3
    assert count(*both, a=2)[CPU] == 8335


def test_work_for_any_device_falls_to_each_by_the_speed_that_it_would_have() -> None:
    """The work is divided by the speed of all permitted lanes: 20 CPU lanes at speed 1, and 2 GPU lanes at speed 90."""
    anywhere = Work(seconds=120000, paces={CPU: 1, GPU: 90})
    assert count(anywhere) == {CPU: 1000, GPU: 0}
    assert count(anywhere, gpus=1) == {CPU: 100, GPU: 10}
    assert count(Work(seconds=60000, paces={GPU: 100}), gpus=4) == {CPU: 0, GPU: 5}


def test_workers_that_live_compute_work_for_any_device_too_where_none_may_be_added() -> None:
    limits = {CPU: Limits(least=0, most=0), GPU: Limits(least=0, most=0)}
    anywhere = Work(seconds=1200, paces={CPU: 1, GPU: 1})
    none, one = Workers(), Workers(live=1)
    assert count_needed_workers([anywhere], {CPU: none, GPU: none}, limits, {}) == {CPU: 0, GPU: 0}
    assert count_needed_workers([anywhere], {CPU: none, GPU: one}, limits, {}) == {CPU: 0, GPU: 20}


# -- what is desired --------------------------------------------------------------------------------------------------


def followed(needs: Sequence[int], step: float = 5.0, limits: Limits = TEN, start: int = 1) -> list[int]:
    """Return the desired numbers, one per `step` seconds."""
    scale, now, desired = Scale(workers=start), 1e9, []
    for need in needs:
        scale, now = next_scale(scale, now, need, limits, CALM), now + step
        desired.append(scale.workers)
    return desired


def test_it_rises_at_once_and_doubles_at_most_every_fifteen_seconds() -> None:
    assert followed([10] * 10) == [2, 2, 2, 4, 4, 4, 8, 8, 8, 10]
    assert followed([10, 10], start=0, limits=Limits(least=0, most=10), step=RAISE_SECONDS) == [1, 2]


def test_it_falls_after_calm_to_the_most_that_was_needed_meanwhile() -> None:
    assert followed([2] * 10 + [4] + [2] * 55, start=8)[58:62] == [8, 8, 4, 4]
    assert followed([0] * 70, start=8)[58:62] == [8, 8, 1, 1]


def test_limits_hold_at_once() -> None:
    assert followed([100, 100], limits=Limits(least=0, most=3), start=9) == [3, 3]
    assert followed([0], limits=Limits(least=4, most=9), start=1) == [4]


def test_a_clock_that_steps_back_begins_the_calm_anew() -> None:
    scale = next_scale(Scale(workers=8), 5000.0, 1, TEN, CALM)
    back = next_scale(scale, 1000.0, 1, TEN, CALM)
    assert (back.workers, back.calm_since) == (8, 1000.0)
    assert next_scale(Scale(workers=1, raised_at=9000.0), 1000.0, 2, TEN, CALM).workers == 2


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 14), min_size=1, max_size=300))
def test_it_never_falls_below_what_was_needed_within_the_calm(needs: list[int]) -> None:
    desired = followed(needs)
    steps = int(CALM / 5)
    for at in range(1, len(needs)):
        assert 1 <= desired[at] <= max(10, desired[at - 1])
        if desired[at] < desired[at - 1]:
            lately = max(map(TEN.within, needs[max(0, at - steps) : at + 1]))
            assert desired[at] >= lately and at >= steps
        assert desired[at] <= 2 * desired[at - 1]


@pytest.mark.parametrize("period", [10, 60, 250])
def test_a_load_that_swings_faster_than_the_calm_is_not_followed_down(period: int) -> None:
    needs = [9 if at * 5 % period < period / 2 else 2 for at in range(1000)]
    assert set(followed(needs)[50:]) == {9}


# -- 0 -> 200 -> 0 jobs -----------------------------------------------------------------------------------------------


class Simulated:
    """Simulated workers with two lanes that start in 10 s and compute queued jobs; one round every five seconds."""

    STEP, STARTS = 5.0, 10.0

    def __init__(self) -> None:
        self.now, self.jobs = 1e9, [0.0] * 0
        self.scale = Scale(workers=1)
        self.ready_at = [self.now]
        self.desired: list[int] = []

    def round(self) -> None:
        need = count(*(on_cpu(left, most_lanes=1) for left in self.jobs))[CPU]
        self.scale = next_scale(self.scale, self.now, need, TEN, CALM)
        self.desired.append(self.scale.workers)
        missing = self.scale.workers - len(self.ready_at)
        self.ready_at = self.ready_at[: self.scale.workers] + [self.now + self.STARTS] * missing
        self._compute()
        self.now += self.STEP

    def _compute(self) -> None:
        for _ in range(2 * sum(ready <= self.now for ready in self.ready_at)):
            spare = self.STEP
            while self.jobs and spare > 0:
                done = min(spare, self.jobs[0])
                spare, left = spare - done, self.jobs.pop(0) - done
                self.jobs += [left] if left > 0 else []


def directions(numbers: Sequence[int]) -> str:
    """Return + for each time that the numbers start to rise, and - for each time that they start to fall."""
    signs = ["+" if after > before else "-" for before, after in pairwise(numbers) if after != before]
    return "".join(sign for at, sign in enumerate(signs) if at == 0 or signs[at - 1] != sign)


def test_a_load_of_0_200_0_jobs_is_followed_without_flapping() -> None:
    """The 200 jobs take 20 s each, so ten workers with two lanes need 200 s."""
    cluster = Simulated()
    for _ in range(60):
        cluster.round()
    assert set(cluster.desired) == {1}
    cluster.jobs = [20.0] * 200
    took = 0.0
    while cluster.jobs:
        cluster.round()
        took += cluster.STEP
    assert max(cluster.desired) == 10 and took < 300
    for _ in range(int(2 * CALM / cluster.STEP)):
        cluster.round()
    assert cluster.desired[-1] == 1
    assert directions(cluster.desired) == "+-", cluster.desired
