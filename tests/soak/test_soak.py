"""A soak that is short: it passes on a cluster as it is, and sees a service that leaks on purpose."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.soak.__main__ import soak
from tests.soak.cluster import Sample
from tests.soak.slopes import growth
from tests.soak.watch import HEADING, MEMORY, Row, Watch

#: A third of it, in which kernels are loaded and the first jobs expire, is not judged.
MINUTES, EVERY_SECONDS = 2.5, 1.0
LEAK = Path(__file__).parent / "leak"
#: Lanes compute all the time, and other tests need the cores more.
NICE = "10"


def short(tmp_path: Path, leak: str = "") -> tuple[list[Row], list[str]]:
    """Soak briefly; return the rows that failed, and what the load met."""
    path = os.pathsep.join(filter(None, (str(LEAK), os.environ.get("PYTHONPATH", ""))))
    rows, users = soak(
        MINUTES, EVERY_SECONDS, tmp_path / "samples.csv", SOAK_LEAK=leak, SOAK_NICE=NICE, PYTHONPATH=path
    )
    print(HEADING, *rows, users.counts, sep="\n")
    assert {"redis, used_memory"} < {row.what for row in rows}
    assert {"coordinator", "cpu worker", "lane", "redis", "supervisord"} <= {
        row.what.rpartition(" ")[0] for row in rows if row.unit == "files"
    }
    assert users.warm(), "every sort of load was there"
    return [row for row in rows if row.failed], users.failures


@pytest.mark.timeout(900)
def test_a_cluster_under_load_does_not_grow(tmp_path: Path) -> None:
    assert short(tmp_path) == ([], [])


@pytest.mark.timeout(900)
def test_services_that_leak_are_seen_and_no_others(tmp_path: Path) -> None:
    failed, problems = short(tmp_path, "memory:coordinator handles:cpu_worker")
    seen = {(row.what.rpartition(" ")[0], row.unit) for row in failed}
    assert seen == {("coordinator", "MB"), ("cpu worker", "files")}
    assert problems == []


# -- slopes ---------------------------------------------------------------------------------------------------------

HALF_AN_HOUR = [10.0 * number for number in range(180)]


def wandering(slope: float, seed: int = 1) -> list[float]:
    """Megabytes that grow by `slope` an hour and wander, each sample from the one before, by about 0.3 MB."""
    draw, values, wander = Random(seed), [], 0.0
    for second in HALF_AN_HOUR:
        wander = 0.9 * wander + draw.gauss(0, 0.15)
        values.append(100 + slope * second / 3600 + wander)
    return values


@pytest.mark.parametrize(("slope", "seen"), [(0.0, False), (2.0, False), (15.0, True), (60.0, True)])
def test_growth_is_told_from_wandering(slope: float, seen: bool) -> None:
    judged = [growth(HALF_AN_HOUR, wandering(slope, seed)) for seed in range(50)]
    assert all(one is not None and one.exceeds(MEMORY) is seen for one in judged)


def test_the_error_of_a_slope_is_about_how_far_slopes_lie_apart() -> None:
    fits = [fit for seed in range(100) if (fit := growth(HALF_AN_HOUR, wandering(3.0, seed)))]
    within = sum(abs(fit.per_hour - 3.0) < 2 * fit.error for fit in fits)
    assert within > 75


def test_what_only_warms_up_is_no_growth() -> None:
    warming = [100 + 20 * (1 - 0.97**number) for number in range(180)]
    judged = growth(HALF_AN_HOUR, warming)
    assert judged is not None and judged.per_hour > 5 and not judged.exceeds(MEMORY)


@pytest.mark.parametrize("steps", [(95,), (60, 120), (40, 100, 150)])
def test_kernels_that_are_loaded_late_are_no_growth(steps: tuple[int, ...]) -> None:
    loading = [100 + 10 * sum(number >= step for step in steps) + 0.1 * (number % 2) for number in range(180)]
    judged = growth(HALF_AN_HOUR, loading)
    assert judged is not None and judged.end - judged.begin >= 10 and not judged.exceeds(MEMORY)


class Warming:
    """A cluster that takes a megabyte more with each of its first samples."""

    def __init__(self) -> None:
        self.looks = 0

    def samples(self) -> list[Sample]:
        self.looks += 1
        return []

    def redis_memory(self) -> int:
        return 10**6 * min(self.looks, 40)

    def warm(self) -> bool:
        return self.looks >= 40


def test_what_grows_until_the_load_is_warm_is_not_judged(tmp_path: Path) -> None:
    cluster: Any = Warming()
    watch = Watch(cluster, tmp_path / "samples.csv")
    watch.run(0.01, 0.001, cluster.warm)
    [row] = watch.rows()
    assert (row.growth.begin, row.growth.end, row.failed) == (40, 40, False) and cluster.looks >= 70


def test_too_few_samples_give_no_slope() -> None:
    assert growth(HALF_AN_HOUR[:29], wandering(0.0)[:29]) is None
