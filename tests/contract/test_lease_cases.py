"""Tests scenarios of the lease protocol, one per test; test_lease_queues.py has more."""

from __future__ import annotations

import pytest

from jobs import queues
from jobs.models import Device
from jobs.store import keys
from jobs.store.server import functions
from jobs.store.work.leases import Grant
from tests.contract.lease_invariants import check
from tests.contract.lease_model import LONG, Bench, total_of

GPU = queues.for_worker(Device.GPU)
CPU = queues.for_worker(Device.CPU)


# -- ranges ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("total", [2**53, 2**53 - 1])
@pytest.mark.parametrize(("grain", "offset"), [(2**24, 5), (2**52, 2**52 - 1), (3, 2), (10**15, 999)])
def test_cuts_are_on_the_grain_and_exact_up_to_2_to_the_53(bench: Bench, total: int, grain: int, offset: int) -> None:
    job = bench.submit(total, grain=grain, offset=offset)
    bench.hold("w")
    at = 0
    for want in [1, total // 3, total // 3, total // 4, total]:
        answer = bench.lease(job, want)
        if isinstance(answer, Grant):
            assert answer.lo == at and (answer.hi == total or (answer.hi + offset) % grain == 0)
            assert answer.hi - answer.lo < want + grain
            at = answer.hi
    check(bench, bench.look())
    assert at == bench.job(job).number("cursor") > 2**52


def test_a_partial_commit_gives_the_tail_back_with_a_clean_record(bench: Bench) -> None:
    job = bench.submit(10)
    bench.hold("w")
    bench.crash(bench.grant(job, 10).token)
    bench.commit(bench.grant(job, 10).token, 4)
    assert bench.look().members(keys.job_free(job)) == ["4:10:0:0"]


def test_a_range_that_keeps_killing_lanes_is_halved_until_one_unit_is_dead(bench: Bench) -> None:
    job = bench.submit(1000)
    bench.hold("w")
    while isinstance(answer := bench.lease(job, 1000), Grant):
        if answer.lo <= 637 < answer.hi:
            bench.crash(answer.token)
        else:
            bench.commit(answer.token)
    view = bench.job(job)
    assert view.dead == [(637, 638)] and view.state == "failed" and view.number("done") == 999
    assert view.fields["error"] == "lanes died 2 times on unit 637"
    check(bench, bench.look())


def test_halves_of_a_killing_range_stay_on_the_grain_while_they_can(bench: Bench) -> None:
    job = bench.submit(64, grain=16, offset=3)
    bench.hold("w")
    bench.crash(bench.grant(job, 64).token)
    bench.crash(bench.grant(job, 64).token)
    assert bench.job(job).free == [(0, 29), (29, 64)]


def test_a_kernel_that_always_raises_fails_the_job_after_seventeen_ranges(bench: Bench) -> None:
    job = bench.submit(10**15)
    bench.hold("w")
    granted = 0
    while isinstance(answer := bench.lease(job), Grant):
        granted += 1
        bench.fail(answer.token, "always")
        bench.advance(1000)
    view = bench.job(job)
    assert view.state == "failed" and len(view.dead) == 17 and granted <= 2 * 17 + 1
    assert view.fields["error"] == "always"


def test_a_range_that_raised_waits_before_it_is_tried_again(bench: Bench) -> None:
    job = bench.submit(1)
    bench.hold("w")
    bench.fail(bench.grant(job).token)
    assert bench.lease(job) == "wait"
    bench.store.slots.leave("w")
    bench.advance(1000)
    bench.sweep()
    assert bench.hold("w") == job
    assert bench.grant(job).lo == 0


def test_deaths_of_workers_do_not_use_up_the_errors_of_a_range(bench: Bench) -> None:
    job = bench.submit(1)
    bench.hold("w")
    bench.crash(bench.grant(job).token)
    bench.fail(bench.grant(job).token)
    assert bench.job(job).state == "running"
    bench.advance(1000)
    bench.work()
    assert bench.job(job).state == "done"


def test_a_steering_call_repeated_after_a_lost_reply_is_answered_as_before(bench: Bench) -> None:
    job = bench.submit(10)
    assert bench.store.jobs.retry(job, 1) == bench.store.jobs.resume(job) == ["ok", "queued"]
    bench.hold("w")
    token = bench.grant(job, 5).token
    for call in (bench.store.jobs.pause, bench.store.jobs.resume, bench.store.jobs.cancel):
        first = call(job)
        events = bench.client.xlen("ct:events")
        assert call(job) == first == ["ok", bench.job(job).state]
        assert bench.client.xlen("ct:events") == events
    assert bench.store.jobs.resume(job) == bench.store.jobs.pause(job) == ["conflict", "cancelling"]
    bench.release(token)
    assert bench.store.jobs.cancel(job) == ["ok", "cancelled"]
    assert bench.store.jobs.retry(job, 1) == bench.store.jobs.retry(job, 1) == ["ok", "queued"]
    check(bench, bench.look())


def test_retry_goes_on_with_the_dead_ranges_and_keeps_what_is_done(bench: Bench) -> None:
    job = bench.submit(2)
    bench.hold("w")
    bench.commit(bench.grant(job).token)
    bench.crash(bench.grant(job).token)
    bench.crash(bench.grant(job).token)
    assert bench.job(job).state == "failed"
    assert bench.store.jobs.retry(job, 2) == ["version", "1"]
    assert bench.store.jobs.retry(job, 1) == ["ok", "queued"]
    assert bench.job(job).free == [(1, 2)] and not bench.job(job).dead
    bench.work()
    assert bench.job(job).result == total_of(0, 2)
    assert bench.jobs[job].committed == [(0, 1), (1, 2)]


def test_a_job_whose_result_could_not_be_derived_finishes_by_retry(bench: Bench) -> None:
    job = bench.submit(2)
    bench.hold("w")
    bench.commit(bench.grant(job, 2).token)
    assert bench.store.results.abort(job, "no")
    assert bench.job(job).state == "failed"
    assert bench.store.jobs.retry(job, 1) == ["ok", "finishing"]
    bench.work("w")
    assert bench.job(job).state == "done"


# -- leases ---------------------------------------------------------------------------------------------------------


def test_the_tail_shrinks_with_the_lanes_of_the_fleet(bench: Bench) -> None:
    job = bench.submit(1000)
    bench.hold("a", lanes=4)
    bench.grant(job, 10)
    bench.hold("b", lanes=4)
    assert bench.grant(job, 1000).hi == 10 + 990 // 16
    sizes = []
    while isinstance(answer := bench.lease(job, 1000, least=5), Grant):
        sizes.append(answer.hi - answer.lo)
    assert sizes == sorted(sizes, reverse=True) and sizes[-2] == 5


def test_a_lane_alone_on_a_job_gets_what_it_wants(bench: Bench) -> None:
    job = bench.submit(1000)
    bench.hold("a", lanes=1)
    assert bench.grant(job, 900).hi == 900


def test_a_slot_yields_when_a_higher_queue_has_work(bench: Bench) -> None:
    low = bench.submit(queue="any.low")
    assert bench.hold("w", CPU) == low
    higher = queues.with_higher_priority("any.low", CPU)
    assert isinstance(bench.lease(low, worker="w", higher=higher), Grant)
    high = bench.submit(queue="any.high")
    assert bench.lease(low, worker="w", higher=higher) == "yield"
    assert bench.hold("w", CPU) == high


def test_a_drained_worker_yields_and_gets_nothing(bench: Bench) -> None:
    job = bench.submit()
    bench.store.fleet.heartbeat("w", "1", {"device": "cpu"})
    assert not bench.store.fleet.drain("nobody") and bench.store.fleet.drain("w")
    bell = bench.pop(CPU)
    assert bench.next("w", CPU, popped=bell) == "draining"
    assert bench.look().members("rq:queue:any.normal"), "its bell rings for another"
    assert bench.lease(job, worker="w") == "yield"
    assert bench.store.fleet.heartbeat("w", "1", {}) == "drain"
    bench.store.fleet.drain("w", on=False)
    assert bench.hold("w", CPU) == job


def test_an_expired_lease_goes_to_whoever_asks(bench: Bench) -> None:
    job = bench.submit(10)
    bench.hold("dead")
    bench.grant(job, 10, worker="dead")
    bench.advance(functions.LEASE_TTL_MS - 1)
    assert bench.lease(job, 10, "alive") == "wait"
    bench.advance(1)
    assert bench.grant(job, 10, worker="alive").hi == 10


def test_an_expired_lease_comes_back_whole(bench: Bench) -> None:
    """Work of a lane is lost with it: a lease comes back whole, never from upto on."""
    job = bench.submit(10)
    bench.hold("w")
    bench.beat(bench.grant(job, 10).token, 7)
    bench.advance(LONG)
    assert bench.grant(job, 10).lo == 0


def test_a_token_that_expired_gets_nothing_any_more(bench: Bench) -> None:
    job = bench.submit(10)
    bench.hold("w")
    zombie = bench.grant(job, 10).token
    bench.advance(LONG)
    bench.grant(job, 10)
    assert not bench.commit(zombie).merged
    assert [bench.beat(zombie), bench.release(zombie), bench.crash(zombie), bench.fail(zombie)] == [0, 0, 0, 0]
    assert not bench.done1(zombie)
    check(bench, bench.look())


def test_a_lease_that_beats_for_too_long_is_told_to_drop(bench: Bench) -> None:
    job = bench.submit(10, max_lease_seconds=5)
    bench.hold("w")
    token = bench.grant(job, 10).token
    answers = []
    for _ in range(7):
        answers.append(bench.beat(token))
        bench.advance(1000)
    assert answers == [1, 1, 1, 1, 1, 1, 0]


def test_a_paused_job_keeps_what_its_lanes_still_commit(bench: Bench) -> None:
    job = bench.submit(10)
    bench.hold("w")
    token = bench.grant(job, 10).token
    assert bench.store.jobs.pause(job) == ["ok", "paused"]
    assert bench.beat(token) == 2
    assert bench.lease(job) == "gone"
    assert bench.commit(token).finishing
    assert bench.store.jobs.resume(job) == ["conflict", "finishing"]


def test_cancel_waits_for_leases_and_retry_goes_on(bench: Bench) -> None:
    job = bench.submit(10)
    bench.hold("w")
    token = bench.grant(job, 4).token
    assert bench.store.jobs.cancel(job) == ["ok", "cancelling"]
    assert bench.beat(token) == 0
    bench.commit(token)
    assert bench.job(job).state == "cancelled"
    bench.store.jobs.retry(job, 1)
    bench.work("w")
    assert bench.job(job).result == total_of(0, 10)


def test_a_paused_job_whose_last_lane_commits_after_its_slot_ended_is_looked_at_again(bench: Bench) -> None:
    job = bench.submit(10)
    bench.hold("w")
    token = bench.grant(job, 10).token
    bench.store.jobs.pause(job)
    bench.store.slots.leave("w")
    assert bench.commit(token).finishing
    check(bench, bench.look())
    bench.advance(1000)
    bench.sweep()
    bench.work("other")
    assert bench.job(job).state == "done"


def test_a_cancelling_job_is_looked_at_until_its_last_lease_ends(bench: Bench) -> None:
    job = bench.submit(10)
    bench.hold("w")
    bench.grant(job)
    bench.advance(1000)
    bench.grant(job)
    bench.store.jobs.cancel(job)
    bench.store.slots.leave("w")
    states = []
    for _ in range(2):
        bench.advance(functions.LEASE_TTL_MS - 1000)
        bench.sweep()
        check(bench, bench.look())
        states.append(bench.job(job).state)
    assert states == ["cancelling", "cancelled"]
