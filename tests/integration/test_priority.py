"""Tests priorities on a cluster whose workers are all busy."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.live import Live, running, until

LONG = {"units": 100_000, "seconds_per_unit": 0.01}


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Start three workers with one lane each."""
    with running(tmp_path_factory.mktemp("three"), workers=3, lanes=1) as live:
        yield live


@pytest.fixture
def lower(three: Live) -> Iterator[list[str]]:
    """Start a job for each worker. All jobs are cancelled after the test."""
    jobs = [three.submit("faulty", LONG) for _ in range(three.workers)]
    until(lambda: all(three.job(job)["done"] > 0 for job in jobs))
    yield jobs
    for row in three.get("/api/jobs")["jobs"]:
        three.post(f"/api/jobs/{row['job_id']}/cancel")
        three.wait_for(row["job_id"], "cancelled")


def test_every_worker_helps_a_running_job_of_a_higher_priority(three: Live, lower: list[str]) -> None:
    higher = three.submit("faulty", LONG, priority="high")
    until(lambda: len(three.job(higher)["usage"]["workers"]) == three.workers)
    assert all(three.job(job)["state"] == "running" for job in lower)


def test_a_job_that_others_are_served_before_is_not_called_the_next(three: Live, lower: list[str]) -> None:
    low = three.submit("faulty", LONG, priority="low")
    until(lambda: "served first (cpu.normal)" in three.job(low)["waiting_because"])
