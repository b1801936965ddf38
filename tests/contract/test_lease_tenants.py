"""Tests several tenants on one cluster: caps, admission, order, and data from before the first tenant."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

import pytest

from jobs import queues
from jobs.models import Device
from jobs.store.server import functions
from jobs.store.tenancy import tokens
from jobs.store.tenancy.tenants import Tenant
from jobs.store.tenancy.tokens import mint
from jobs.store.work.jobs import CapReached
from jobs.store.work.slots import Taken
from tests.contract.lease_invariants import check
from tests.contract.lease_model import LONG, Bench, new_job

CPU = queues.for_worker(Device.CPU)


def _tenants(bench: Bench, **weights: int) -> None:
    for name, weight in weights.items():
        bench.store.tenants.put(Tenant(name=name, weight=weight))


# -- registered or not ----------------------------------------------------------------------------------------------


def test_the_first_tenant_finds_all_that_was_there_in_default(bench: Bench) -> None:
    """Jobs that came before it are in pending alone."""
    waiting = [bench.submit() for _ in range(3)]
    running = bench.hold("w")
    token = bench.grant(running).token
    assert bench.store.tenants.put(Tenant(name="a")) and not bench.store.tenants.put(Tenant(name="a", weight=2))
    assert bench.store.tenants.names() == ["a", "default"]
    bench.beat(token)
    check(bench, bench.look())
    mine = bench.submit(tenant="a")
    assert {bench.hold(worker) for worker in ("x", "y", "z")} == {*waiting[1:], mine}
    bench.commit(token)
    for worker in "wxyz":
        bench.store.slots.leave(worker)
    bench.work()
    assert all(view.state == "done" for view in bench.look().jobs.values())
    check(bench, bench.look())


def test_a_tenant_is_removed_when_none_of_its_jobs_is_left(bench: Bench) -> None:
    assert bench.store.tenants.remove("a") == "missing"
    _tenants(bench, a=1)
    job = bench.submit(tenant="a")
    assert bench.store.tenants.remove("a") == "busy" and bench.store.tenants.remove("default") == "default"
    bench.store.jobs.cancel(job)
    assert bench.store.tenants.remove("a") == "ok" and bench.store.tenants.names() == ["default"]


def test_a_tenant_with_tokens_is_not_removed(bench: Bench) -> None:
    """Who has one would go on without the caps."""
    _tenants(bench, a=1)
    kept, ending = mint(), mint()
    bench.store.tokens.create(ending, name="b", scopes=("submit",), tenant="a", ttl_ms=1000)
    bench.advance(1000)
    bench.store.tokens.create(kept, name="a", scopes=("submit",), tenant="a")
    assert bench.store.tenants.remove("a") == "tokens"
    bench.store.tokens.revoke(kept.id)
    assert bench.store.tenants.remove("a") == "ok", "one whose time is over does not count"


def test_tokens_whose_time_is_over_keep_no_new_one_out(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipeline that makes one for each run would have filled the list for good."""
    monkeypatch.setattr(tokens, "MAX_TOKENS", 2)

    def create(ttl_ms: int = 0) -> str:
        return bench.store.tokens.create(mint(), name="a", scopes=("read",), ttl_ms=ttl_ms)

    assert [create(1000), create(), create()] == ["new", "new", "full"]
    bench.advance(1000)
    assert [create(), create()] == ["new", "full"]
    assert len(bench.store.tokens.all()) == 2


# -- jobs that wait or run --------------------------------------------------------------------------------------------


def test_a_job_over_the_cap_is_refused_and_leaves_nothing(bench: Bench) -> None:
    bench.store.tenants.put(Tenant(name="a", max_jobs=1))
    job = bench.submit(tenant="a", key="a:1", estimate_ms=5000)
    before = bench.look().settled()
    [over] = bench.store.jobs.submit([new_job("x", 1, "any.normal", tenant="a", key="a:2")])
    assert over == CapReached(cap="max_jobs", value=1, seconds=5)
    assert bench.look().settled() == before
    assert bench.submit(tenant="a", key="a:1") == job, "what was admitted is never refused when it is repeated"
    bench.submit(tenant="default")
    bench.store.jobs.cancel(job)
    bench.submit(tenant="a")
    check(bench, bench.look())


def _refusal_of(bench: Bench) -> CapReached:
    [over] = bench.store.jobs.submit([new_job("x", 1, "any.normal", tenant="a")])
    assert isinstance(over, CapReached)
    return over


def test_a_refusal_says_when_a_job_ends_only_if_its_rate_was_measured(bench: Bench) -> None:
    """An estimate, such as a second for each unit of a program, is not reported as a time."""
    bench.store.tenants.put(Tenant(name="a", max_jobs=2))
    job = bench.submit(100_000, tenant="a", estimate_ms=1000)
    bench.submit(tenant="a", estimate_ms=1000)
    assert (_refusal_of(bench).seconds, _refusal_of(bench).awaits) == (1, "")
    bench.client.hset(f"ct:job:{job}", "rate", "2")
    assert _refusal_of(bench).awaits == "", "nobody computes it now"
    bench.hold("w")
    assert bench.lease(job, want=10)
    assert (_refusal_of(bench).seconds, _refusal_of(bench).awaits) == (50_000, "end")


def test_retry_and_resume_are_admitted_as_submit_is(bench: Bench) -> None:
    bench.store.tenants.put(Tenant(name="a", max_jobs=1))
    paused = bench.submit(tenant="a")
    bench.store.jobs.pause(paused)
    cancelled = bench.submit(tenant="a")
    bench.store.jobs.cancel(cancelled)
    running = bench.submit(tenant="a")
    for answer in (bench.store.jobs.resume(paused), bench.store.jobs.retry(cancelled, 1)):
        assert answer[:3] == ["over", "max_jobs", "1"]
    assert bench.store.jobs.retry(cancelled, 1, hold=True) == ["ok", "queued"]
    assert bench.store.jobs.resume(paused, hold=True) == ["ok", "queued"]
    check(bench, bench.look())
    bench.store.jobs.cancel(running)
    assert set(bench.look().waiting()) == {cancelled}, "the one that was held first"
    check(bench, bench.look())


def test_a_backlog_is_admitted_in_order_as_jobs_end(bench: Bench) -> None:
    bench.store.tenants.put(Tenant(name="a", max_jobs=2))
    jobs = [bench.submit(tenant="a", hold=True) for _ in range(5)]
    assert list(bench.look().waiting()) == jobs[:2]
    assert bench.lease(jobs[3]) == "gone", "a job in a backlog has no lease"
    served = []
    for _ in jobs:
        served.append(bench.hold("w"))
        bench.serve(served[-1], "w", 100)
        check(bench, bench.look())
    assert served == jobs


def test_a_backlog_is_admitted_when_the_cap_is_raised(bench: Bench) -> None:
    bench.store.tenants.put(Tenant(name="a", max_jobs=1))
    jobs = [bench.submit(tenant="a", hold=True) for _ in range(4)]
    bench.store.jobs.cancel(jobs[2])
    bench.store.tenants.put(Tenant(name="a", max_jobs=2))
    assert list(bench.look().waiting()) == [jobs[0], jobs[1]]
    bench.store.tenants.put(Tenant(name="a"))
    assert list(bench.look().waiting()) == [jobs[0], jobs[1], jobs[3]]
    check(bench, bench.look())


def test_500_concurrent_submits_against_a_cap_of_8_admit_exactly_8(bench: Bench) -> None:
    bench.store.tenants.put(Tenant(name="a", max_jobs=8))
    answers: Counter[str] = Counter()
    lock = threading.Lock()

    def submit(part: int) -> None:
        for number in range(50):
            [answer] = bench.store.jobs.submit([new_job(f"p{part}-{number}", 1, "any.normal", tenant="a")])
            with lock:
                answers["over" if isinstance(answer, CapReached) else answer[0]] += 1

    threads = [threading.Thread(target=submit, args=(part,)) for part in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {"new": 8, "over": 492}
    assert len(bench.look().jobs) == 8


def test_no_job_is_queued_beyond_the_clusters_limit(bench: Bench) -> None:
    def submit(job: str) -> object:
        return bench.store.jobs.submit([new_job(job, 1, "any.normal", key=f"k:{job}")], most_queued=2)[0]

    assert [submit("a"), submit("b"), submit("c")][2] == CapReached(cap="MAX_QUEUED", value=2, seconds=1)
    assert submit("a") == ("same", "a")
    bench.jobs.clear()
    bench.store.jobs.cancel("a")
    assert submit("c") == ("new", "c")


def test_a_tenant_that_fills_the_cluster_keeps_no_other_out(bench: Bench) -> None:
    """With its backlog, or without a cap."""
    _tenants(bench, b=1)
    bench.store.tenants.put(Tenant(name="a", max_jobs=1))

    def submit(tenant: str, number: int) -> object:
        new = new_job(f"{tenant}{number}", 1, "any.normal", tenant=tenant, hold=True)
        return bench.store.jobs.submit([new], most_queued=9)[0]

    assert [submit("a", number) for number in range(9)] == [("new", f"a{number}") for number in range(9)]
    full = CapReached(cap="MAX_QUEUED", value=9, seconds=1)
    assert submit("a", 9) == submit("stranger", 0) == full
    assert [submit("b", number) for number in range(4)] == [("new", "b0"), ("new", "b1"), ("new", "b2"), full]


# -- lanes ----------------------------------------------------------------------------------------------------------


def test_a_tenant_uses_at_most_its_lanes_and_others_go_on(bench: Bench) -> None:
    bench.store.tenants.put(Tenant(name="a", max_lanes=2))
    first, second = bench.submit(tenant="a"), bench.submit(tenant="a")
    other = bench.submit()
    bench.hold("w", lanes=4)
    held = next(iter(bench.look().slots.values()))[0]
    tokens = [bench.grant(held).token for _ in range(2)]
    assert bench.lease(held) == "wait"
    assert bench.hold("x") == other
    assert bench.next("y") == "none" or bench.look().slots["y"][0] == other
    check(bench, bench.look())
    bench.commit(tokens[0])
    assert bench.look().members("rq:queue:any.normal"), "the lane that is free rings for the tenant's next job"
    assert bench.hold("z") in (first, second)
    check(bench, bench.look())


def test_jobs_of_a_tenant_without_a_free_lane_ring_no_bell(bench: Bench) -> None:
    bench.store.tenants.put(Tenant(name="a", max_lanes=1))
    for _ in range(3):
        bench.submit(tenant="a")
    bench.grant(bench.hold("w"))
    bench.sweep()
    assert not bench.look().members("rq:queue:any.normal"), "idle workers would pop them in a circle"
    bench.submit(tenant="a")
    assert not bench.look().members("rq:queue:any.normal")
    check(bench, bench.look())


def test_tenants_without_a_free_lane_do_not_hide_the_others(bench: Bench) -> None:
    """However many they are."""
    crowd = [f"c{number}" for number in range(20)]
    for tenant in crowd:
        bench.store.tenants.put(Tenant(name=tenant, max_lanes=1))
        bench.submit(2**50, tenant=tenant, estimate_ms=2**50)
    for tenant in crowd:
        bench.grant(bench.hold(tenant), 1000, worker=tenant, rate=1000.0)
        bench.store.slots.leave(tenant)
    _tenants(bench, free=1)
    job = bench.submit(2**50, tenant="free", estimate_ms=2**50)
    for _ in range(3):
        assert bench.hold("w") == job
        bench.commit(bench.grant(job, 1000, rate=1000.0).token, ms=5000)
        bench.store.slots.leave("w")


def test_lanes_of_a_dead_worker_count_until_their_leases_expire(bench: Bench) -> None:
    bench.store.tenants.put(Tenant(name="a", max_lanes=1))
    job = bench.submit(tenant="a")
    bench.grant(bench.hold("dead"))
    bench.advance(functions.LEASE_TTL_MS)
    bench.sweep()
    assert bench.hold("w") == job and bench.grant(job).lo == 0
    check(bench, bench.look())


def test_small_jobs_of_a_tenant_are_taken_within_its_lanes(bench: Bench) -> None:
    bench.store.tenants.put(Tenant(name="a", max_lanes=2))
    for _ in range(5):
        bench.submit(tenant="a", small=True, estimate_ms=1)
    taken = bench.next("w", lanes=4, take=8)
    assert isinstance(taken, Taken) and len(taken.jobs) == 2, "four lanes would compute four at once"
    assert bench.next("x") == "none"
    check(bench, bench.look())
    for _, token in taken.jobs:
        bench.done1(token)
    bench.work()
    assert all(view.state == "done" for view in bench.look().jobs.values())


def test_small_jobs_occupy_no_more_lanes_than_their_worker_has(bench: Bench) -> None:
    """A lane computes one after the other: a tenant of two lanes is not held up by eight jobs on one of them."""
    bench.store.tenants.put(Tenant(name="a", max_lanes=2))
    for _ in range(20):
        bench.submit(tenant="a", small=True, estimate_ms=1)
    first, second = (bench.next(worker, lanes=1, take=8) for worker in "wx")
    assert isinstance(first, Taken) and isinstance(second, Taken)
    assert [len(taken.jobs) for taken in (first, second)] == [8, 8] and bench.next("y") == "none"
    assert bench.client.zcard("ct:lanes:a") == 2
    for taken in (first, second):
        for _, token in taken.jobs:
            bench.done1(token)
    check(bench, bench.look())
    bench.work()
    assert all(view.state == "done" for view in bench.look().jobs.values())


def test_a_refusal_looks_at_a_few_of_the_tenants_jobs(bench: Bench) -> None:
    bench.store.tenants.put(Tenant(name="a", max_jobs=200))
    bench.store.jobs.submit([new_job(f"a{number}", 1, "any.normal", tenant="a") for number in range(200)])
    bench.client.config_resetstat()
    replies = bench.store.jobs.submit([new_job(f"b{number}", 1, "any.normal", tenant="a") for number in range(32)])
    assert all(isinstance(reply, CapReached) and reply.cap == "max_jobs" for reply in replies)
    assert bench.client.info("commandstats")["cmdstat_hmget"]["calls"] <= 32 * 18


# -- order ----------------------------------------------------------------------------------------------------------


def test_the_first_job_of_a_tenant_is_not_behind_ten_thousand_of_another(bench: Bench) -> None:
    _tenants(bench, a=1, b=1)
    crowd = [new_job(f"a{n}", 1, "any.normal", tenant="a", small=True, estimate_ms=10) for n in range(10_000)]
    bench.store.jobs.submit(crowd)
    for _ in range(3):
        bench.store.slots.next("w", queues.ALL, take=32)
    [_] = bench.store.jobs.submit([new_job("b", 1, "any.normal", tenant="b", small=True, estimate_ms=10)])
    taken = bench.store.slots.next("x", queues.ALL, lanes=1, take=32)
    assert isinstance(taken, Taken) and [job for job, _ in taken.jobs] == ["b"]


def test_one_tenant_alone_has_its_jobs_in_the_order_of_their_turns(bench: Bench) -> None:
    _tenants(bench, default=1)
    jobs = [bench.submit(queue=queue) for queue in ("cpu.normal", "any.normal", "cpu.normal")]
    served = []
    for _ in range(6):
        served.append(bench.hold("w", CPU))
        bench.commit(bench.grant(served[-1]).token)
        bench.store.slots.leave("w")
    assert served == jobs * 2
    check(bench, bench.look())


def test_a_tenant_that_returns_has_no_credit_from_when_it_was_away(bench: Bench) -> None:
    _tenants(bench, a=1, b=1)
    jobs = {name: bench.submit(2**50, tenant=name, estimate_ms=2**50) for name in "ab"}
    bench.store.jobs.pause(jobs["b"])
    for _ in range(10):
        _serve(bench, 1000)
    bench.store.jobs.resume(jobs["b"])
    given = Counter(_serve(bench, 1000) for _ in range(10))
    assert given == {jobs["a"]: 5, jobs["b"]: 5}


def _serve(bench: Bench, ms: int, worker: str = "w") -> str:
    """Serve one lease of this duration of the best job, and return the job."""
    job = bench.hold(worker)
    grant = bench.grant(job, ms, worker=worker, rate=1000.0)
    bench.advance(ms)
    bench.commit(grant.token, worker=worker, ms=ms)
    bench.store.slots.leave(worker)
    return job


@pytest.mark.parametrize("light", [1, 3])
def test_tenants_share_lanes_by_weight(bench: Bench, light: int) -> None:
    """Whatever their leases last: the estimate is corrected by what was used."""
    _tenants(bench, a=light, b=3)
    jobs = {bench.submit(2**50, tenant=name, estimate_ms=2**50): name for name in "ab"}
    used: Counter[str] = Counter()
    for _ in range(400):
        job = bench.hold("w")
        grant = bench.grant(job, 100, rate=1000.0)
        ms = 300 if jobs[job] == "a" else 100
        bench.advance(ms)
        bench.commit(grant.token, ms=ms)
        bench.store.slots.leave("w")
        used[jobs[job]] += ms
    assert used["a"] / used["b"] == pytest.approx(light / 3, rel=0.1)
    check(bench, bench.look())


def test_a_long_lease_is_billed_as_it_goes_on(bench: Bench) -> None:
    """Else a unit of six hours rides free until its end."""
    _tenants(bench, a=1, b=1)
    job = bench.submit(10, tenant="a", estimate_ms=1, max_lease_seconds=30_000)
    bench.hold("w")
    token = bench.grant(job).token
    for _ in range(100):
        bench.advance(1000)
        bench.beat(token)
    assert float(bench.look().hash("ct:finish:normal")["a"]) == 100_000
    bench.commit(token, ms=100_500)
    assert float(bench.look().hash("ct:finish:normal")["a"]) == 100_500


@pytest.mark.parametrize("end", [Bench.release, Bench.crash, Bench.fail])
def test_what_ends_without_a_commit_is_billed_as_long_as_it_ran(
    bench: Bench, end: Callable[[Bench, str], bool]
) -> None:
    """Else jobs that are cancelled before their first beat ride free."""
    _tenants(bench, a=1)
    job = bench.submit(10, tenant="a", estimate_ms=1, max_lease_seconds=30)
    bench.hold("w")
    token = bench.grant(job).token
    bench.advance(900)
    bench.store.jobs.cancel(job)
    assert end(bench, token)
    assert float(bench.look().hash("ct:finish:normal")["a"]) == 900


def test_helpers_choose_the_tenant_that_was_given_least_before_holders(bench: Bench) -> None:
    _tenants(bench, a=1, b=1)
    first, second = (
        bench.submit(2**50, tenant="a", estimate_ms=2**50),
        bench.submit(2**50, tenant="b", estimate_ms=2**50),
    )
    for worker, job in (("v", first), ("w", second)):
        assert bench.hold(worker) == job
        bench.grant(job, 1000 if job == first else 5000, rate=1000.0, worker=worker)
    assert bench.hold("x") == first and bench.hold("y") == first
    check(bench, bench.look())


def test_a_slot_ends_when_another_tenant_was_given_much_less(bench: Bench) -> None:
    _tenants(bench, a=1, b=1)
    mine = bench.submit(2**50, tenant="a", estimate_ms=2**50)
    bench.hold("w", CPU)
    higher = queues.with_higher_priority("any.normal", CPU)
    bench.grant(mine, 5000, rate=1000.0)
    bench.grant(mine, higher=higher)
    bench.submit(tenant="b")
    bench.grant(mine, 5000, rate=1000.0)
    assert bench.lease(mine, higher=higher) == "yield"
    assert bench.look().jobs[bench.hold("w", CPU)].tenant == "b"


# -- aging ----------------------------------------------------------------------------------------------------------

AGE = 60.0


def _high_and_low(bench: Bench) -> tuple[str, str]:
    low = bench.submit(2**50, queue="any.low", estimate_ms=2**50)
    return bench.submit(2**50, queue="any.high", estimate_ms=2**50), low


@pytest.mark.parametrize("shared", [False, True])
def test_one_turn_in_eight_is_that_of_a_job_that_has_waited_for_very_long(bench: Bench, shared: bool) -> None:
    if shared:
        _tenants(bench, a=1)
    high, low = _high_and_low(bench)
    served = []
    for _ in range(120):
        served.append(_serve(bench, 1000))
        bench.sweep(AGE)
    assert served.index(low) == int(AGE), "at the first turn after that"
    assert served[61:].count(low) == pytest.approx(59 / 8, abs=1) and set(served) == {high, low}
    check(bench, bench.look())


def test_a_slot_ends_for_a_job_that_has_waited_for_very_long(bench: Bench) -> None:
    high, low = _high_and_low(bench)
    higher = queues.with_higher_priority("any.high", CPU)
    assert bench.hold("w", CPU) == high
    bench.grant(high, higher=higher)
    bench.advance(int(AGE * 1000))
    bench.sweep(AGE)
    assert bench.lease(high, higher=higher) == "yield"
    assert bench.hold("w", CPU) == low
    bench.grant(low)
    bench.store.slots.leave("w")
    assert bench.hold("w", CPU) == high
    bench.grant(high, higher=higher)


def test_a_worker_that_cannot_take_the_aged_job_goes_on(bench: Bench) -> None:
    bench.submit(queue="gpu.low")
    high = bench.submit(2**50, queue="any.high", estimate_ms=2**50)
    bench.store.fleet.heartbeat("g", "1", {"device": "gpu"})
    bench.hold("w", CPU)
    bench.grant(high)
    bench.advance(LONG)
    bench.sweep(AGE)
    assert isinstance(bench.lease(high, higher=queues.with_higher_priority("any.high", CPU)), object)
    assert bench.lease(high, higher=queues.with_higher_priority("any.high", CPU)) != "yield"


def test_a_job_that_was_resumed_waits_anew(bench: Bench) -> None:
    _, low = _high_and_low(bench)
    bench.store.jobs.pause(low)
    bench.advance(LONG)
    bench.store.jobs.resume(low)
    bench.sweep(AGE)
    assert not bench.look().hash("ct:aged")
