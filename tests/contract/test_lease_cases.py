"""Stories of the lease protocol, one a test: what happens when, said in the name."""

from __future__ import annotations

import pytest
import rq
from rq.serializers import JSONSerializer

from jobs import broker, leases, queues
from jobs.leases import Grant, Held, Taken
from jobs.models import Device
from tests.contract.lease_invariants import check
from tests.contract.lease_model import LONG, Bench, total_of

GPU = queues.for_worker(Device.GPU)
CPU = queues.for_worker(Device.CPU)


@pytest.fixture
def bench(redis_url: str) -> Bench:
    return Bench(redis_url)


def _hold(bench: Bench, worker: str, listened: tuple[str, ...] = queues.ALL, lanes: int = 1) -> str:
    found = bench.next(worker, listened, lanes=lanes)
    assert isinstance(found, Held), found
    return found.job_id


# -- ranges ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("total", [2**53, 2**53 - 1])
@pytest.mark.parametrize(("grain", "offset"), [(2**24, 5), (2**52, 2**52 - 1), (3, 2), (10**15, 999)])
def test_cuts_are_on_the_grain_and_exact_up_to_2_to_the_53(bench: Bench, total: int, grain: int, offset: int) -> None:
    job = bench.submit(total, grain=grain, offset=offset)
    _hold(bench, "w")
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
    _hold(bench, "w")
    bench.crash(bench.grant(job, 10).token)
    bench.commit(bench.grant(job, 10).token, 4)
    assert bench.look().list(leases.key(job, "free")) == ["4:10:0:0"]


def test_a_range_that_keeps_killing_lanes_is_halved_until_one_unit_is_dead(bench: Bench) -> None:
    job = bench.submit(1000)
    _hold(bench, "w")
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
    _hold(bench, "w")
    bench.crash(bench.grant(job, 64).token)
    bench.crash(bench.grant(job, 64).token)
    assert bench.job(job).free == [(0, 29), (29, 64)]


def test_a_kernel_that_always_raises_fails_the_job_after_seventeen_ranges(bench: Bench) -> None:
    job = bench.submit(10**15)
    _hold(bench, "w")
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
    _hold(bench, "w")
    bench.fail(bench.grant(job).token)
    assert bench.lease(job) == "wait"
    bench.book.leave("w")
    bench.advance(1000)
    bench.audit()
    assert _hold(bench, "w") == job
    assert bench.grant(job).lo == 0


def test_deaths_of_workers_do_not_use_up_the_errors_of_a_range(bench: Bench) -> None:
    job = bench.submit(1)
    _hold(bench, "w")
    bench.crash(bench.grant(job).token)
    bench.fail(bench.grant(job).token)
    assert bench.job(job).state == "running"
    bench.advance(1000)
    bench.work()
    assert bench.job(job).state == "done"


def test_retry_goes_on_with_the_dead_ranges_and_keeps_what_is_done(bench: Bench) -> None:
    job = bench.submit(2)
    _hold(bench, "w")
    bench.commit(bench.grant(job).token)
    bench.crash(bench.grant(job).token)
    bench.crash(bench.grant(job).token)
    assert bench.job(job).state == "failed"
    assert bench.book.retry(job, 2) == ["version", "1"]
    assert bench.book.retry(job, 1) == ["ok", "queued"]
    assert bench.job(job).free == [(1, 2)] and not bench.job(job).dead
    bench.work()
    assert bench.job(job).result == total_of(0, 2)
    assert bench.jobs[job].committed == [(0, 1), (1, 2)]


def test_a_job_whose_result_could_not_be_derived_finishes_by_retry(bench: Bench) -> None:
    job = bench.submit(2)
    _hold(bench, "w")
    bench.commit(bench.grant(job, 2).token)
    assert bench.book.abort(job, "no")
    assert bench.job(job).state == "failed"
    assert bench.book.retry(job, 1) == ["ok", "finishing"]
    bench.work("w")
    assert bench.job(job).state == "done"


# -- leases ---------------------------------------------------------------------------------------------------------


def test_the_tail_shrinks_with_the_lanes_of_the_fleet(bench: Bench) -> None:
    job = bench.submit(1000)
    _hold(bench, "a", lanes=4)
    bench.grant(job, 10)
    _hold(bench, "b", lanes=4)
    assert bench.grant(job, 1000).hi == 10 + 990 // 16
    sizes = []
    while isinstance(answer := bench.lease(job, 1000, least=5), Grant):
        sizes.append(answer.hi - answer.lo)
    assert sizes == sorted(sizes, reverse=True) and sizes[-2] == 5


def test_a_lane_alone_on_a_job_gets_what_it_wants(bench: Bench) -> None:
    job = bench.submit(1000)
    _hold(bench, "a", lanes=1)
    assert bench.grant(job, 900).hi == 900


def test_a_slot_yields_when_a_higher_queue_has_work(bench: Bench) -> None:
    low = bench.submit(queue="any.low")
    assert _hold(bench, "w", CPU) == low
    higher = queues.higher("any.low", CPU)
    assert isinstance(bench.lease(low, worker="w", higher=higher), Grant)
    high = bench.submit(queue="any.high")
    assert bench.lease(low, worker="w", higher=higher) == "yield"
    assert _hold(bench, "w", CPU) == high


def test_a_drained_worker_yields_and_gets_nothing(bench: Bench) -> None:
    job = bench.submit()
    bench.book.heartbeat("w", "1", {"device": "cpu"})
    assert not bench.book.drain("nobody") and bench.book.drain("w")
    bell = bench.pop(CPU)
    assert bench.next("w", CPU, popped=bell) == "draining"
    assert bench.look().list("rq:queue:any.normal"), "its bell rings for another"
    assert bench.lease(job, worker="w") == "yield"
    assert bench.book.heartbeat("w", "1", {}) == "drain"
    bench.book.drain("w", on=False)
    assert _hold(bench, "w", CPU) == job


def test_an_expired_lease_goes_to_whoever_asks(bench: Bench) -> None:
    job = bench.submit(10)
    _hold(bench, "dead")
    bench.grant(job, 10, worker="dead")
    bench.advance(leases.LEASE_TTL_MS - 1)
    assert bench.lease(job, 10, "alive") == "wait"
    bench.advance(1)
    assert bench.grant(job, 10, worker="alive").hi == 10


def test_an_expired_lease_comes_back_whole(bench: Bench) -> None:
    """What was computed is lost with the lane: never upto..hi."""
    job = bench.submit(10)
    _hold(bench, "w")
    bench.beat(bench.grant(job, 10).token, 7)
    bench.advance(LONG)
    assert bench.grant(job, 10).lo == 0


def test_a_token_that_expired_gets_nothing_any_more(bench: Bench) -> None:
    job = bench.submit(10)
    _hold(bench, "w")
    zombie = bench.grant(job, 10).token
    bench.advance(LONG)
    bench.grant(job, 10)
    assert not bench.commit(zombie).merged
    assert [bench.beat(zombie), bench.release(zombie), bench.crash(zombie), bench.fail(zombie)] == [0, 0, 0, 0]
    assert not bench.done1(zombie)
    check(bench, bench.look())


def test_a_lease_that_beats_for_too_long_is_told_to_drop(bench: Bench) -> None:
    job = bench.submit(10, max_lease_seconds=5)
    _hold(bench, "w")
    token = bench.grant(job, 10).token
    answers = []
    for _ in range(7):
        answers.append(bench.beat(token))
        bench.advance(1000)
    assert answers == [1, 1, 1, 1, 1, 1, 0]


def test_a_paused_job_keeps_what_its_lanes_still_commit(bench: Bench) -> None:
    job = bench.submit(10)
    _hold(bench, "w")
    token = bench.grant(job, 10).token
    assert bench.book.pause(job) == ["ok", "paused"]
    assert bench.beat(token) == 2
    assert bench.lease(job) == "gone"
    assert bench.commit(token).finishing
    assert bench.book.resume(job) == ["conflict", "finishing"]


def test_cancel_waits_for_leases_and_retry_goes_on(bench: Bench) -> None:
    job = bench.submit(10)
    _hold(bench, "w")
    token = bench.grant(job, 4).token
    assert bench.book.cancel(job) == ["ok", "cancelling"]
    assert bench.beat(token) == 0
    bench.commit(token)
    assert bench.job(job).state == "cancelled"
    bench.book.retry(job, 1)
    bench.work("w")
    assert bench.job(job).result == total_of(0, 10)


# -- queues ---------------------------------------------------------------------------------------------------------


def test_equal_jobs_take_turns(bench: Bench) -> None:
    jobs = [bench.submit() for _ in range(3)]
    served = []
    for _ in range(6):
        served.append(_hold(bench, "w"))
        bench.commit(bench.grant(served[-1]).token)
        bench.book.leave("w")
    assert served == jobs * 2


def test_an_idle_worker_helps_the_job_with_the_fewest_holders(bench: Bench) -> None:
    first, second = bench.submit(), bench.submit()
    for worker in ("a", "b"):
        bench.grant(_hold(bench, worker), worker=worker)
    assert _hold(bench, "c") == first
    assert _hold(bench, "d") == second
    assert bench.next("e", ("cpu.high",)) == "none"


def test_a_worker_that_asks_twice_holds_one_job_only(bench: Bench) -> None:
    """A lost reply must not orphan a job."""
    first, second = bench.submit(), bench.submit()
    assert _hold(bench, "w") == first
    assert _hold(bench, "w") == second
    assert bench.look().slots == {"w": (second, 1)} and first in bench.look().waiting()


def test_a_slot_that_is_not_held_is_given_to_others(bench: Bench) -> None:
    job = bench.submit()
    _hold(bench, "dead")
    assert bench.book.hold("dead")
    bench.advance(leases.SLOT_TTL_MS)
    assert bench.audit()[0] == 1
    assert not bench.book.hold("dead")
    assert _hold(bench, "alive") == job


def test_a_lost_bell_rings_again(bench: Bench) -> None:
    bench.submit()
    bench.pop(CPU, die=True)
    assert not bench.look().list("rq:queue:any.normal")
    bench.audit()
    assert len(bench.look().list("rq:queue:any.normal")) == 1


def test_a_bell_is_a_job_that_rq_itself_can_dequeue(bench: Bench) -> None:
    bench.submit()
    listened = [rq.Queue(name, connection=bench.client, serializer=JSONSerializer) for name in CPU]
    bell, queue = rq.Queue.dequeue_any(listened, None, connection=bench.client, serializer=JSONSerializer)
    assert bell.func_name in broker.ALLOWED and queue.name == "any.normal"


def test_the_first_grant_rings_for_idle_workers_but_not_for_more_than_there_is_work(bench: Bench) -> None:
    for worker in ("a", "b", "c", "d"):
        bench.book.heartbeat(worker, "1", {"device": "cpu"})
    job = bench.submit(3)
    _hold(bench, "a")
    bench.grant(job)
    assert len(bench.look().list("rq:queue:any.normal")) == 2


def test_small_jobs_are_taken_together_up_to_a_budget_of_time(bench: Bench) -> None:
    jobs = [bench.submit(small=True, estimate_ms=40) for _ in range(5)]
    bench.submit()
    found = bench.next("w", take=8)
    assert isinstance(found, Taken) and [job for job, _ in found.jobs] == jobs[:3]
    assert all(bench.done1(token) for _, token in found.jobs)
    check(bench, bench.look())


def test_a_small_job_whose_worker_died_is_taken_up_again(bench: Bench) -> None:
    job = bench.submit(small=True)
    bench.next("dead")
    bench.advance(leases.LEASE_TTL_MS)
    bench.audit()
    bench.work("alive")
    assert bench.job(job).state == "done"


def test_gpu_preferred_jobs_move_to_any_only_when_no_gpu_worker_lives(bench: Bench) -> None:
    bench.book.heartbeat("gpu", "1", {"device": "gpu"})
    prefers, needs = bench.submit(queue="gpu.normal", prefer=True), bench.submit(queue="gpu.normal")
    bench.audit()
    assert bench.look().pending("gpu.normal") == [prefers, needs]
    bench.advance(leases.WORKER_TTL_MS + 1)
    bench.audit()
    assert bench.look().waiting() == {prefers: "any.normal", needs: "gpu.normal"}
    assert _hold(bench, "cpu", CPU) == prefers
    check(bench, bench.look())


# -- records --------------------------------------------------------------------------------------------------------


def test_submitting_again_with_the_same_key_gives_the_same_job(bench: Bench) -> None:
    job = bench.submit(key="me:1", digest="a")
    assert bench.submit(key="me:1", digest="a") == job
    assert bench.submit(key="other:1", digest="a") != job
    new = bench.jobs[job].new
    other = type(new)(**{**vars(new), "job_id": "x", "digest": "b"})
    assert bench.book.submit([other]) == [("conflict", job)]


def test_jobs_are_purged_when_their_time_is_over(bench: Bench) -> None:
    job = bench.submit(ttl_seconds=100, key="k")
    kept = bench.submit(ttl_seconds=101)
    bench.work()
    bench.advance(100_000)
    assert bench.audit() == (0, 0, 1)
    assert list(bench.look().jobs) == [kept] and "ct:idem:k" not in bench.look().keys
    check(bench, bench.look())
    assert bench.book.delete(job) == ["missing"] and bench.book.delete(kept) == ["ok", "done"]


def test_retry_saves_a_job_from_the_purge(bench: Bench) -> None:
    job = bench.submit(ttl_seconds=100)
    bench.book.cancel(job)
    bench.book.retry(job, 1)
    bench.advance(200_000)
    bench.audit()
    assert bench.job(job).state == "queued"


def test_a_name_taken_by_a_later_process_is_told_to_the_earlier_one(bench: Bench) -> None:
    assert bench.book.heartbeat("w", "1", {}) == "ok"
    assert bench.book.heartbeat("w", "2", {}) == "ok"
    assert bench.book.heartbeat("w", "1", {}) == "taken"


def test_a_silent_worker_is_said_to_be_lost(bench: Bench) -> None:
    bench.book.heartbeat("w", "1", {"state": "idle"})
    bench.advance(leases.WORKER_TTL_MS)
    bench.audit()
    assert bench.look().hash("ct:worker:w")["state"] == "lost"
    assert [event["state"] for _, event in bench.look().stream("ct:events")] == ["joined", "lost"]
