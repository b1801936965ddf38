"""Tests limits set by users: simultaneous lanes of a job, and its running time."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.store.server import functions
from tests.contract.lease_invariants import check
from tests.contract.lease_model import LONG, Bench

# -- max_running ----------------------------------------------------------------------------------------------------


def test_at_most_max_running_lanes_compute_a_job(bench: Bench) -> None:
    job = bench.submit(10, max_running=2)
    bench.hold("w", lanes=4)
    first = bench.grant(job)
    bench.grant(job)
    assert bench.lease(job) == "wait"
    bench.commit(first.token)
    bench.grant(job)
    assert bench.lease(job) == "wait"
    check(bench, bench.look())


def test_an_expired_lease_makes_room_for_another_lane(bench: Bench) -> None:
    job = bench.submit(10, max_running=1)
    bench.hold("dead")
    bench.grant(job)
    bench.advance(functions.LEASE_TTL_MS)
    assert bench.grant(job).lo == 0
    check(bench, bench.look())


def test_a_job_at_its_limit_is_neither_pending_nor_helped(bench: Bench) -> None:
    """Otherwise, idle workers would take the job and leave it again and again."""
    job = bench.submit(10, max_running=1)
    bench.hold("w")
    grant = bench.grant(job)
    assert bench.next("helper") == "none"
    bench.store.slots.leave("w")
    assert bench.next("helper") == "none" and not bench.look().waiting()
    check(bench, bench.look())
    bench.commit(grant.token)
    assert bench.hold("helper") == job
    check(bench, bench.look())


def test_a_job_at_its_limit_whose_worker_died_goes_on(bench: Bench) -> None:
    job = bench.submit(10, max_running=1)
    bench.hold("dead")
    bench.grant(job)
    bench.advance(LONG)
    bench.sweep()
    bench.work("honest")
    assert bench.job(job).state == "done"


def test_the_first_grant_rings_for_no_more_lanes_than_may_compute(bench: Bench) -> None:
    for worker in ("a", "b", "c", "d"):
        bench.store.fleet.heartbeat(worker, "1", {"device": "cpu"})
    job = bench.submit(100, max_running=2)
    bench.hold("a")
    bench.grant(job)
    assert len(bench.look().members("rq:queue:any.normal")) == 1


# -- timeout --------------------------------------------------------------------------------------------------------

TIMEOUT = 5000
WHY = "the job ran longer than its timeout of 5 s"


def _running(bench: Bench, **more: Any) -> tuple[str, str]:
    job = bench.submit(10, timeout_ms=TIMEOUT, **more)
    bench.hold("w")
    return job, bench.grant(job).token


def test_a_job_fails_when_its_timeout_is_over_and_its_lanes_drop_at_the_next_beat(bench: Bench) -> None:
    job, token = _running(bench)
    bench.advance(2500)
    assert bench.beat(token) == 1
    bench.advance(2500)
    assert bench.beat(token) == 0
    assert bench.job(job).state == "failed" and bench.job(job).fields["error"] == WHY
    assert bench.lease(job) == "gone"
    check(bench, bench.look())


def test_audit_fails_a_job_whose_timeout_is_over(bench: Bench) -> None:
    job, _ = _running(bench)
    bench.advance(TIMEOUT - 1)
    bench.sweep()
    assert bench.job(job).state == "running"
    bench.advance(1)
    bench.sweep()
    assert bench.job(job).state == "failed" and bench.job(job).fields["error"] == WHY
    check(bench, bench.look())


def test_the_time_counts_from_the_first_lease(bench: Bench) -> None:
    job = bench.submit(10, timeout_ms=TIMEOUT)
    bench.advance(LONG)
    bench.sweep()
    assert bench.job(job).state == "queued"
    bench.work()
    assert bench.job(job).state == "done"
    check(bench, bench.look())


def test_what_was_computed_in_time_counts_and_retry_begins_a_new_time(bench: Bench) -> None:
    job, token = _running(bench)
    bench.commit(token)
    late = bench.grant(job).token
    bench.advance(TIMEOUT)
    bench.sweep()
    assert bench.commit(late).merged, "a token that is alive"
    assert bench.job(job).number("done") == 2
    check(bench, bench.look())
    assert bench.store.jobs.retry(job, 1) == ["ok", "queued"]
    bench.advance(LONG)
    bench.work()
    assert bench.job(job).state == "done"
    check(bench, bench.look())


def test_a_commit_that_ends_the_job_is_not_too_late(bench: Bench) -> None:
    job = bench.submit(10, timeout_ms=TIMEOUT)
    bench.hold("w")
    token = bench.grant(job, 10).token
    bench.advance(TIMEOUT)
    assert bench.commit(token).finishing
    assert bench.finish(job)
    check(bench, bench.look())


def test_the_time_stands_still_while_a_job_is_paused(bench: Bench) -> None:
    job, token = _running(bench)
    bench.advance(4000)
    bench.beat(token)
    bench.store.jobs.pause(job)
    bench.commit(token)
    bench.advance(LONG)
    bench.sweep()
    assert bench.job(job).state == "paused"
    bench.store.jobs.resume(job)
    check(bench, bench.look())
    bench.advance(999)
    bench.sweep()
    assert bench.job(job).state == "running"
    bench.advance(1)
    bench.sweep()
    assert bench.job(job).state == "failed"
    check(bench, bench.look())


@pytest.mark.parametrize("back", [1000, 3_600_000])
def test_a_clock_that_steps_back_does_not_lengthen_a_timeout_for_long(bench: Bench, back: int) -> None:
    job, _ = _running(bench)
    bench.advance(-back)
    bench.sweep()
    bench.advance(TIMEOUT)
    bench.sweep()
    assert bench.job(job).state == "failed"


def test_a_small_job_that_its_worker_lost_fails_by_its_timeout(bench: Bench) -> None:
    job = bench.submit(1, small=True, timeout_ms=TIMEOUT)
    bench.next("dead")
    bench.advance(TIMEOUT)
    bench.sweep()
    assert bench.job(job).state == "failed"
    check(bench, bench.look())
