"""Tests limits set by users on a real cluster: simultaneous lanes and the running time of a job."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.live import Live, running, until


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Start one worker with two lanes."""
    with running(tmp_path_factory.mktemp("cluster")) as live:
        yield live


def test_a_job_with_a_timeout_fails_and_its_lane_goes_on_with_other_work(cluster: Live) -> None:
    endless = {"start_number": "1", "number_count": 10**13}
    body = {"type": "collatz", "parameters": endless, "timeout_seconds": 1.5, "max_running": 1}
    job_id = cluster.post("/api/submit", body).json()["job_id"]
    until(lambda: cluster.job(job_id)["state"] != "queued")
    leases = f"ct:job:{job_id}:leases"
    assert {cluster.redis().zcard(leases) for _ in range(100)} <= {0, 1}
    job = until(lambda: (job := cluster.job(job_id))["state"] == "failed" and job)
    assert job["error"] == "the job ran longer than its timeout of 1.5 s"
    assert (job["max_running"], job["timeout_seconds"]) == (1, 1.5)
    assert 1.4 <= job["seconds"] <= 60, "undisturbed it runs for ever"
    assert cluster.result(cluster.submit("faulty", {"units": 3})) == {"sum": 3, "count": 3}
