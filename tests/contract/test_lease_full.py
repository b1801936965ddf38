"""Tests a Redis at its maxmemory: it accepts no new work, and existing work is computed, finished and purged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from coordinator.background.leader import Leader
from jobs.store import keys
from jobs.store.server import connection
from jobs.store.work.leases import Finished
from jobs.store.work.slots import Taken
from tests.contract.lease_invariants import check
from tests.contract.lease_model import Bench, encode, total_of


@contextmanager
def full(bench: Bench) -> Iterator[None]:
    """Set the memory limit so low that no write can allocate memory."""
    bench.client.config_set("maxmemory", 1)
    try:
        yield
    finally:
        bench.client.config_set("maxmemory", 0)


def test_work_goes_on_to_its_end_in_a_full_redis(bench: Bench) -> None:
    """HEARTBEAT was refused while LEASE took expired ranges back: sound jobs failed, though no lane had died."""
    job = bench.submit(10)
    bench.store.fleet.heartbeat("w", "1", {"device": "cpu"})
    bench.hold("w")
    tokens = [bench.grant(job, 5).token for _ in range(2)]
    with full(bench):
        for _ in range(5):
            bench.advance(1000)
            assert [bench.beat(token) for token in tokens] == [1, 1]
            assert bench.store.slots.hold("w")
            assert bench.store.fleet.heartbeat("w", "1", {"device": "cpu"}) == "ok"
            bench.sweep()
        bench.commit(tokens[0])
        assert bench.fold(job)
        assert bench.commit(tokens[1]).finishing and bench.finish(job)
        check(bench, bench.look())
    assert bench.job(job).result == total_of(0, 10) and bench.job(job).number("expired") == 0


def test_a_lane_that_dies_or_gives_up_in_a_full_redis_is_no_loss(bench: Bench) -> None:
    job = bench.submit(10)
    bench.hold("w")
    token = bench.grant(job, 10).token
    with full(bench):
        bench.release(token)
        bench.crash(bench.grant(job, 10).token)
        bench.fail(bench.grant(job, 10).token)
        bench.advance(4000)
        bench.store.slots.leave("w")
        bench.sweep()
        bench.work("w")
    assert bench.job(job).result == total_of(0, 10)


def test_a_full_redis_grants_returned_ranges_and_begins_no_new_one(bench: Bench) -> None:
    job = bench.submit(10)
    bench.store.fleet.heartbeat("w", "1", {"device": "cpu"})
    bench.release(bench.grant(job, 4).token)
    with full(bench):
        assert bench.hold("w") == job, "NEXT finds it"
        returned = bench.grant(job, 10)
        assert (returned.lo, returned.hi) == (0, 4)
        for _ in range(2):
            with pytest.raises(connection.Unreachable, match="OOM"):
                bench.lease(job, 10)
        bench.commit(returned.token)
        check(bench, bench.look())
    assert bench.grant(job, 10).lo == 4


def test_small_jobs_end_in_a_full_redis(bench: Bench) -> None:
    job = bench.submit(small=True)
    with full(bench):
        bench.work("w")
    assert bench.job(job).state == "done"


def test_a_stale_end_is_answered_in_a_full_redis(bench: Bench) -> None:
    """Its counter was refused, and the lane repeated the call until Redis had room."""
    jobs = [bench.submit(small=True, estimate_ms=1) for _ in range(3)]
    taken = bench.next("w", take=3)
    assert isinstance(taken, Taken) and [job for job, _ in taken.jobs] == jobs
    ended = [Finished(job_id=job, token=token, result=b"{}", ms=1) for job, token in taken.jobs]
    ended[0] = Finished(job_id=jobs[0], token="of another time", result=b"{}", ms=1)
    with full(bench):
        for answers in ([False, True, True], [False, False, False]):
            assert bench.store.leases.done1_all(ended, worker="w", device="cpu") == answers
        assert not bench.store.leases.commit(
            jobs[0], "of another time", 1, b"{}", ms=1, worker="w", device="cpu"
        ).merged


def test_jobs_are_steered_in_a_full_redis(bench: Bench) -> None:
    job = bench.submit(10)
    bench.hold("w")
    bench.commit(bench.grant(job, 10).token)
    with full(bench):
        assert bench.store.results.abort(job, "no result")
        assert bench.store.jobs.retry(job, 1) == ["ok", "finishing"]
        bench.serve(job, "w")
    other = bench.submit(10)
    assert bench.job(job).state == "done"
    with full(bench):
        assert bench.store.jobs.pause(other) == ["ok", "paused"]
        assert bench.store.jobs.resume(other) == ["ok", "queued"]
        assert bench.store.jobs.cancel(other) == ["ok", "cancelled"]
        assert bench.store.jobs.delete(other) == ["ok", "cancelled"]
        assert bench.store.jobs.delete(job) == ["ok", "done"]


def test_a_worker_is_drained_and_keeps_its_gpu_in_a_full_redis(bench: Bench) -> None:
    bench.store.fleet.heartbeat("w", "1", {"device": "gpu"})
    assert bench.store.fleet.claim(["GPU-1"], "w").held
    with full(bench):
        assert bench.store.fleet.claim(["GPU-1"], "w").held
        assert bench.store.fleet.drain("w") and bench.store.fleet.heartbeat("w", "1", {}) == "drain"
        bench.store.telemetry.put_spans_away()


def test_a_full_redis_takes_no_new_job_and_is_unharmed(bench: Bench) -> None:
    known = bench.submit(10, key="k", digest="d")
    with full(bench):
        with pytest.raises(connection.Unreachable):
            bench.submit(10)
        assert bench.submit(10, key="k", digest="d") == known
        check(bench, bench.look())
    bench.work()
    assert bench.job(known).state == "done"


def test_a_full_redis_frees_itself_by_the_purge(bench: Bench) -> None:
    """LEAD and SWEEP were refused before they came to it, and so was the leader's own round."""
    job = bench.submit(10, ttl_seconds=60)
    bench.hold("w")
    bench.serve(job, "w")
    bench.client.set(keys.job_result(job), encode({"sum": 45, "count": 10}) + b" " * 5_000_000)
    bench.client.config_set("maxmemory", bench.client.info("memory")["used_memory"] - 1_000_000)
    try:
        with pytest.raises(connection.Unreachable):
            bench.submit(10)
        bench.advance(60_000)
        leader = Leader(bench.store)
        leader.run_once()
        assert leader.is_leading and job not in bench.look().jobs
        bench.submit(10)
    finally:
        bench.client.config_set("maxmemory", 0)
