"""Regression tests for errors found by the state machine and by reviews, one test each."""

from __future__ import annotations

import pytest

from coordinator.background.leader import Leader
from jobs import queues
from jobs.store import keys
from jobs.store.server import functions
from jobs.store.work import slots
from jobs.store.work.leases import Grant
from tests.contract.lease_invariants import check
from tests.contract.lease_model import LONG, Bench, encode, new_job, total_of


@pytest.mark.parametrize("total", [2**53 - 1, 2**53])
def test_a_job_near_2_to_the_53_is_counted_exactly(bench: Bench, total: int) -> None:
    """COMMIT added the upper end before it took the lower one away, which rounds: done never reached total."""
    job = bench.submit(total)
    bench.next("w", lanes=2)
    bench.serve(job, "w")
    bench.finish(job)
    assert bench.job(job).result == total_of(0, total)
    check(bench, bench.look())


def test_folding_no_parts_is_refused(bench: Bench) -> None:
    """It would leave an accumulator beside a result, and grow the version of a job that nobody works on."""
    job = bench.submit()
    bench.work()
    assert not bench.store.results.fold(job, bench.store.results.gather(job), encode(total_of(0, 10)))
    assert bench.job(job).accumulator is None


def test_a_finishing_job_moves_to_any_when_the_last_gpu_worker_is_gone(bench: Bench) -> None:
    """It has no load left, and minus zero is no integer to Redis: SWEEP failed half way and lost the job."""
    job = bench.submit(queue="gpu.normal", prefer=True)
    bench.next("gpu")
    bench.commit(bench.grant(job, 10, worker="gpu").token)
    bench.store.slots.leave("gpu")
    bench.sweep()
    assert bench.look().waiting() == {job: "any.normal"}
    check(bench, bench.look())


def test_no_job_is_passed_over_when_gpu_preferred_jobs_move(bench: Bench) -> None:
    """SWEEP looked at the first 32 of a queue only; behind 32 jobs that need a GPU nothing moved."""
    for _ in range(40):
        bench.submit(queue="gpu.normal")
    job = bench.submit(queue="gpu.normal", prefer=True)
    bench.sweep()
    bench.sweep()
    assert bench.look().waiting()[job] == "any.normal"


def test_purging_a_job_leaves_a_key_that_stands_for_a_later_job(bench: Bench) -> None:
    """An idempotency key outlives a day, a job a week: the old job's purge took the new job's key with it."""
    old = bench.submit(key="me:k", digest="d", ttl_seconds=60)
    bench.work()
    bench.client.delete("ct:idem:me:k")
    new = bench.submit(key="me:k", digest="d")
    bench.advance(LONG)
    bench.sweep()
    assert old not in bench.look().jobs
    assert bench.submit(key="me:k", digest="d") == new


def test_the_seventeenth_dead_range_fails_a_job_even_when_a_lease_finds_it(bench: Bench) -> None:
    """LEASE reclaimed the range that was one too many and went on handing out units."""
    job = bench.submit(40)
    bench.next("w")
    for token in [bench.grant(job).token for _ in range(17)]:
        bench.crash(token)
    for _ in range(17):
        bench.grant(job)
    bench.advance(LONG)
    assert bench.lease(job) == "gone"
    assert bench.job(job).state == "failed"
    assert "lanes died 2 times on unit" in bench.job(job).fields["error"]


def test_a_counter_that_is_full_does_not_stop_a_commit(bench: Bench) -> None:
    """Redis counts to 2^63 and refuses more: a thousand jobs of 2^53 units must not make the next one hang."""
    bench.client.hset("ct:units", "sum|cpu", 2**63 - 5)
    job = bench.submit(10)
    bench.work()
    assert bench.job(job).state == "done"


def test_a_job_whose_every_lease_kills_its_lane_fails_after_a_few_dozen_deaths(redis_url: str) -> None:
    """Halves went to the tail of free and LEASE takes its head: every range was halved once before one was twice."""
    bench = Bench(redis_url, limit=3)
    job = bench.submit(10**8)
    bench.hold("w")
    deaths = 0
    while deaths < 100 and isinstance(answer := bench.lease(job, 10**8), Grant):
        bench.crash(answer.token)
        deaths += 1
    assert bench.job(job).state == "failed" and deaths < 60
    check(bench, bench.look())


def test_a_load_that_is_full_does_not_stop_a_submission_half_way(bench: Bench) -> None:
    """The job was written, and neither pending nor heard of."""
    bench.client.hset("ct:load", "any.normal", 2**63 - 5)
    job = bench.submit(10)
    assert bench.look().pending("any.normal") == [job] and bench.job(job).number("load") == 0
    bench.work()
    assert bench.job(job).state == "done"
    assert bench.look().hash("ct:load")["any.normal"] == str(2**63 - 5), "what was not added is not taken away"


def test_a_job_moves_to_a_queue_whose_load_is_full(bench: Bench) -> None:
    bench.client.hset("ct:load", "any.normal", 2**63 - 5)
    job = bench.submit(queue="gpu.normal", prefer=True)
    bench.sweep()
    assert bench.look().waiting() == {job: "any.normal"}
    assert bench.look().hash("ct:load") == {"any.normal": str(2**63 - 5), "gpu.normal": "0"}


def test_a_drained_worker_is_drained_after_its_restart(bench: Bench) -> None:
    """The new process began with an empty record."""
    bench.store.fleet.heartbeat("w", "1", {"device": "cpu", "retired": "its GPU failed"})
    bench.store.fleet.drain("w")
    assert bench.store.fleet.heartbeat("w", "2", {"device": "cpu"}) == "drain"
    assert bench.next("w") == "draining"
    assert "retired" not in bench.look().hash("ct:worker:w"), "all else is what the new process says"
    bench.store.fleet.drain("w", on=False)
    assert bench.store.fleet.heartbeat("w", "3", {"device": "cpu"}) == "ok"


def test_all_small_jobs_of_a_dead_worker_come_back_in_one_round(bench: Bench) -> None:
    """One SWEEP looks at 100, and there was one a second."""
    bench.store.jobs.submit([new_job(f"s{n}", 1, "any.normal", small=True, estimate_ms=1) for n in range(1000)])
    found = bench.store.slots.next("dead", queues.ALL, lanes=10, take=1000)
    assert isinstance(found, slots.Taken) and len(found.jobs) == 1000
    bench.advance(functions.LEASE_TTL_MS)
    Leader(bench.store).run_once()
    assert len(bench.look().pending("any.normal")) == 1000


def test_a_fold_that_was_in_flight_when_redis_lost_its_last_commits_changes_nothing(bench: Bench) -> None:
    """The accumulator's version was a counter, and parts had no identity: 110 units of 100 were counted."""
    job = bench.submit(100)
    bench.hold("w")
    bench.commit(bench.grant(job, 10).token)
    backup = bench.back_up()
    bench.commit(bench.grant(job, 20).token)
    gathered = bench.store.results.gather(job)
    bench.come_back(backup)
    bench.commit(bench.grant(job, 10).token)
    assert not bench.fold_read(job, gathered)
    check(bench, bench.look())
    bench.serve(job, "w")
    assert bench.job(job).result == total_of(0, 100)


def test_a_result_of_what_redis_lost_twice_is_refused(bench: Bench) -> None:
    """Nor may a result be stored that was derived from another accumulator than the one which is complete."""
    job = bench.submit(20)
    bench.hold("w")
    empty = bench.back_up()
    bench.commit(bench.grant(job, 10).token)
    bench.fold(job)
    half = bench.store.results.gather(job)
    bench.come_back(empty)
    bench.commit(bench.grant(job, 20).token)
    bench.fold(job)
    assert not bench.store.results.finish(job, half, encode(total_of(0, 10)))
    assert bench.finish(job) and bench.job(job).result == total_of(0, 20)


def test_a_broken_index_of_slots_is_no_fault_of_the_job_that_is_leased(bench: Bench) -> None:
    """The command that met it names its keys elsewhere: what was put aside was not there, and the job failed."""
    job = bench.submit(100)
    bench.hold("w")
    bench.client.zadd(keys.WORKERS, dict.fromkeys(("w", "idle", "idle too"), 10**15))  # the slots say which are idle
    bench.client.delete("ct:slots")
    bench.client.set("ct:slots", "x")
    assert isinstance(bench.lease(job), Grant)
    assert bench.job(job).state == "running" and bench.client.exists("ct:quarantined:ct:slots")


def test_a_job_over_whose_result_lanes_die_fails_after_the_limit(bench: Bench) -> None:
    job = bench.submit(2)
    bench.hold("w")
    bench.commit(bench.grant(job, 2).token)
    assert not bench.store.results.count_derive_crash(job, "a", "died") and not bench.store.results.count_derive_crash(
        job, "a", "died"
    ), "one death, told twice"
    assert bench.store.results.count_derive_crash(job, "b", "died") and not bench.store.results.count_derive_crash(
        job, "c", "died"
    )
    assert bench.job(job).state == "failed" and bench.job(job).fields["error"] == "died"
    check(bench, bench.look())
    assert bench.store.jobs.retry(job, 1) == ["ok", "finishing"]
    assert not bench.store.results.count_derive_crash(job, "d", "died"), "counted anew"
    bench.work("w")
    assert bench.job(job).state == "done"
