"""Tests scenarios of queues, slots, wakeups and records in the lease protocol, one per test."""

from __future__ import annotations

import rq
from rq.serializers import JSONSerializer

from coordinator.queries import Queries
from jobs import queues
from jobs.models import DEFAULT_TENANT, Device
from jobs.settings import Settings
from jobs.store import fleet
from jobs.store.server import functions
from jobs.store.tenancy.tenants import Tenant
from jobs.store.work import wakeups
from jobs.store.work.slots import Taken
from tests.contract.lease_invariants import check
from tests.contract.lease_model import Bench

GPU = queues.for_worker(Device.GPU)
CPU = queues.for_worker(Device.CPU)


# -- queues ---------------------------------------------------------------------------------------------------------


def test_equal_jobs_take_turns(bench: Bench) -> None:
    jobs = [bench.submit() for _ in range(3)]
    served = []
    for _ in range(6):
        served.append(bench.hold("w"))
        bench.commit(bench.grant(served[-1]).token)
        bench.store.slots.leave("w")
    assert served == jobs * 2


def test_jobs_of_one_priority_take_turns_whatever_device_they_are_for(bench: Bench) -> None:
    own = [bench.submit(1000, queue="cpu.normal") for _ in range(2)]
    other, high = bench.submit(1000, queue="any.normal"), bench.submit(1000, queue="any.high")
    served = []
    for _ in range(5):
        served.append(bench.hold("w", CPU))
        bench.commit(bench.grant(served[-1]).token)
        bench.store.slots.leave("w")
        if served == [high]:
            bench.store.jobs.pause(high)
    assert served == [high, *own, other, own[0]]


def test_an_idle_worker_helps_the_job_with_the_fewest_holders(bench: Bench) -> None:
    first, second = bench.submit(), bench.submit()
    for worker in ("a", "b"):
        bench.grant(bench.hold(worker), worker=worker)
    assert bench.hold("c") == first
    assert bench.hold("d") == second
    assert bench.next("e", ("cpu.high",)) == "none"


def test_helpers_are_sent_past_many_jobs_that_have_nothing_to_lease(bench: Bench) -> None:
    jobs = [bench.submit(1) for _ in range(40)]
    for number in range(len(jobs)):
        worker = f"w{number}"
        bench.grant(bench.hold(worker), worker=worker)
    last = bench.submit()
    bench.grant(bench.hold("a"), worker="a")
    assert bench.hold("b") == last
    assert bench.next("c", ("any.high",)) == "none"
    check(bench, bench.look())


def test_a_running_job_of_a_higher_priority_is_helped_before_a_lower_one_is_taken(bench: Bench) -> None:
    high, normal = bench.submit(2, queue="any.high"), bench.submit(queue="any.normal")
    assert bench.hold("a") == high
    bench.grant(high, worker="a")
    assert bench.hold("b") == high, "while it has units to lease"
    bench.grant(high, worker="b")
    bench.store.slots.leave("b")
    assert bench.hold("b") == normal
    check(bench, bench.look())


def test_helpers_look_at_the_priority_before_they_count_holders(bench: Bench) -> None:
    low, high = bench.submit(queue="any.low"), bench.submit(queue="any.high")
    for worker in ("a", "b"):
        assert bench.hold(worker, ("any.high",)) == high
        bench.grant(high, worker=worker)
    assert bench.hold("c", ("any.low",)) == low
    bench.grant(low, worker="c")
    assert bench.hold("d") == high
    small = bench.submit(queue="any.normal", small=True)
    assert bench.hold("e") == high, "a small job of a lower priority waits as well"
    assert bench.job(small).state == "queued"


# -- versions -------------------------------------------------------------------------------------------------------


def test_a_worker_takes_only_jobs_whose_kind_and_version_it_has(bench: Bench) -> None:
    old, new, other = bench.submit(version=1), bench.submit(version=2), bench.submit(kind="other")
    assert bench.hold("two", kinds={"sum": 2}) == new
    check(bench, bench.look())
    assert bench.next("three", kinds={"sum": 3}) == "none"
    assert bench.hold("one", kinds={"sum": 1}) == old
    assert bench.hold("both", kinds={"sum": 2, "other": 1}) == other
    check(bench, bench.look())


def test_jobs_that_no_worker_can_compute_still_count_as_waiting(bench: Bench) -> None:
    bench.submit(queue="cpu.normal")
    bench.submit(queue="cpu.normal")
    fleet = Queries(bench.store, Settings()).fleet
    before = {row["queue"]: row["jobs"] for row in fleet.queues()}
    assert bench.next("w", CPU, kinds={"sum": 99}) == "none"
    [row] = [row for row in fleet.queues() if row["queue"] == "cpu.normal"]
    assert row["jobs"] == before["cpu.normal"] == 2 and row["oldest_wait_seconds"] > 0


def test_small_jobs_are_taken_by_version_too(bench: Bench) -> None:
    jobs = [bench.submit(small=True, version=version, estimate_ms=1) for version in (1, 2, 1, 2)]
    found = bench.next("two", take=8, kinds={"sum": 2})
    assert isinstance(found, Taken) and [job for job, _ in found.jobs] == [jobs[1], jobs[3]]
    found = bench.next("one", take=8, kinds={"sum": 1})
    assert isinstance(found, Taken) and [job for job, _ in found.jobs] == [jobs[0], jobs[2]]
    check(bench, bench.look())


def test_a_running_job_is_helped_by_workers_of_its_version_only(bench: Bench) -> None:
    job = bench.submit(version=1)
    bench.grant(bench.hold("a", kinds={"sum": 1}), worker="a")
    assert bench.next("b", kinds={"sum": 2}) == "none"
    assert bench.hold("c", kinds={"sum": 1}) == job
    for worker in ("a", "c"):
        bench.store.slots.leave(worker)
    assert bench.next("b", kinds={"sum": 2}) == "none"
    check(bench, bench.look())
    assert bench.hold("a", kinds={"sum": 1}) == job


def test_jobs_that_nobody_can_compute_ring_no_bell_and_keep_their_turn(bench: Bench) -> None:
    lacking = [bench.submit(version=1) for _ in range(3)]
    behind = bench.submit(version=2)
    assert bench.hold("two", kinds={"sum": 2}) == behind
    bench.sweep()
    assert not bench.look().members("rq:queue:any.normal"), "idle workers would pop them in a circle"
    bench.submit(version=1, queue="any.high")
    assert bench.next("three", kinds={"sum": 3}) == "none"
    later = bench.submit(version=1)
    served = []
    for number in range(5):
        served.append(bench.hold(f"one-{number}", kinds={"sum": 1}))
    assert served == ["j4", *lacking, later]
    check(bench, bench.look())


def test_a_job_left_to_others_may_be_steered(bench: Bench) -> None:
    paused, cancelled = bench.submit(version=1), bench.submit(version=1)
    assert bench.next("two", kinds={"sum": 2}) == "none"
    assert bench.store.jobs.pause(paused) == ["ok", "paused"] and bench.store.jobs.cancel(cancelled) == [
        "ok",
        "cancelled",
    ]
    assert bench.next("one", kinds={"sum": 1}) == "none"
    bench.store.jobs.resume(paused)
    assert bench.hold("one", kinds={"sum": 1}) == paused
    check(bench, bench.look())


def test_a_lease_yields_once_to_a_higher_job_that_its_worker_lacks(bench: Bench) -> None:
    mine = bench.submit(version=2)
    assert bench.hold("two", kinds={"sum": 2}) == mine
    bench.submit(version=1, queue="any.high")
    assert bench.lease(mine, worker="two", higher=("any.high",)) == "yield"
    assert bench.hold("two", kinds={"sum": 2}) == mine
    bench.grant(mine, worker="two", higher=("any.high",))


# -- queues again ---------------------------------------------------------------------------------------------------


def test_a_worker_that_asks_twice_holds_one_job_only(bench: Bench) -> None:
    """Otherwise, a lost reply would orphan a job."""
    first, second = bench.submit(), bench.submit()
    assert bench.hold("w") == first
    assert bench.hold("w") == second
    assert bench.look().slots == {"w": (second, 1)} and first in bench.look().waiting()


def _count_commands(bench: Bench, tenant: str) -> int:
    """Return the commands of a NEXT that releases a running job and assigns a waiting one."""
    for _ in range(3):
        bench.submit(100, tenant=tenant)
    bench.grant(bench.hold("w", CPU), worker="w")
    bench.client.config_resetstat()
    bench.hold("w", CPU)
    stats = bench.client.info("commandstats")
    return sum(entry["calls"] for name, entry in stats.items() if "fcall" not in name and "config" not in name)


def test_a_worker_that_changes_its_job_costs_few_commands(bench: Bench) -> None:
    assert _count_commands(bench, DEFAULT_TENANT) <= 21
    bench.store.tenants.put(Tenant(name="a"))
    assert _count_commands(bench, "a") <= 35


def test_a_slot_that_is_not_held_is_given_to_others(bench: Bench) -> None:
    job = bench.submit()
    bench.hold("dead")
    assert bench.store.slots.hold("dead")
    bench.advance(functions.SLOT_TTL_MS)
    assert bench.sweep()[0] == 1
    assert not bench.store.slots.hold("dead")
    assert bench.hold("alive") == job


def test_a_lost_bell_rings_again(bench: Bench) -> None:
    bench.submit()
    bench.pop(CPU)
    assert not bench.look().members("rq:queue:any.normal")
    bench.sweep()
    assert len(bench.look().members("rq:queue:any.normal")) == 1


def test_a_bell_is_a_job_that_rq_itself_can_dequeue(bench: Bench) -> None:
    bench.submit()
    listened = [rq.Queue(name, connection=bench.client, serializer=JSONSerializer) for name in CPU]
    found = rq.Queue.dequeue_any(listened, None, connection=bench.client, serializer=JSONSerializer)
    assert found
    bell, queue = found
    assert bell.func_name == wakeups.WAKEUP_FUNCTION and queue.name == "any.normal"


def test_the_first_grant_rings_for_idle_workers_but_not_for_more_than_there_is_work(bench: Bench) -> None:
    for worker in ("a", "b", "c", "d"):
        bench.store.fleet.heartbeat(worker, "1", {"device": "cpu"})
    job = bench.submit(3)
    bench.hold("a")
    bench.grant(job)
    assert len(bench.look().members("rq:queue:any.normal")) == 2


def test_the_first_grant_does_not_ring_for_workers_whom_waiting_bells_wake(bench: Bench) -> None:
    for worker in ("a", "b", "c", "d", "e"):
        bench.store.fleet.heartbeat(worker, "1", {"device": "cpu"})
    first, *_ = [bench.submit(100) for _ in range(3)]
    bench.hold("a")
    bench.grant(first, worker="a")
    rung = bench.look().members("rq:queue:any.normal")
    assert len(rung) == 4, "two for jobs that wait, and two more for four idle workers"


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
    bench.advance(functions.LEASE_TTL_MS)
    bench.sweep()
    bench.work("alive")
    assert bench.job(job).state == "done"


def test_gpu_preferred_jobs_move_to_any_only_when_no_gpu_worker_lives(bench: Bench) -> None:
    bench.store.fleet.heartbeat("gpu", "1", {"device": "gpu"})
    prefers, needs = bench.submit(queue="gpu.normal", prefer=True), bench.submit(queue="gpu.normal")
    bench.sweep()
    assert bench.look().pending("gpu.normal") == [prefers, needs]
    bench.advance(functions.WORKER_TTL_MS + 1)
    bench.sweep()
    assert bench.look().waiting() == {prefers: "any.normal", needs: "gpu.normal"}
    assert bench.hold("cpu", CPU) == prefers
    check(bench, bench.look())


# -- records --------------------------------------------------------------------------------------------------------


def test_submitting_again_with_the_same_key_gives_the_same_job(bench: Bench) -> None:
    job = bench.submit(key="me:1", digest="a")
    assert bench.submit(key="me:1", digest="a") == job
    assert bench.submit(key="other:1", digest="a") != job
    new = bench.jobs[job].new
    other = type(new)(**{**vars(new), "job_id": "x", "digest": "b"})
    assert bench.store.jobs.submit([other]) == [("conflict", job)]


def test_jobs_are_purged_when_their_time_is_over(bench: Bench) -> None:
    job = bench.submit(ttl_seconds=100, key="k")
    kept = bench.submit(ttl_seconds=101)
    bench.work()
    bench.advance(100_000)
    assert bench.sweep() == (0, 0, 1, False)
    assert list(bench.look().jobs) == [kept] and "ct:idem:k" not in bench.look().keys
    check(bench, bench.look())
    assert bench.store.jobs.delete(job) == ["missing"] and bench.store.jobs.delete(kept) == ["ok", "done"]


def test_retry_saves_a_job_from_the_purge(bench: Bench) -> None:
    job = bench.submit(ttl_seconds=100)
    bench.store.jobs.cancel(job)
    bench.store.jobs.retry(job, 1)
    bench.advance(200_000)
    bench.sweep()
    assert bench.job(job).state == "queued"


def test_a_name_taken_by_a_later_process_is_told_to_the_earlier_one(bench: Bench) -> None:
    assert bench.store.fleet.heartbeat("w", "1", {}) == "ok"
    assert bench.store.fleet.heartbeat("w", "2", {}) == "ok"
    assert bench.store.fleet.heartbeat("w", "1", {}) == "taken"


def test_a_silent_worker_is_said_to_be_lost(bench: Bench) -> None:
    bench.store.fleet.heartbeat("w", "1", {"state": "idle"})
    bench.advance(functions.WORKER_TTL_MS)
    bench.sweep()
    assert bench.look().hash("ct:worker:w")["state"] == "lost"
    assert [event["state"] for _, event in bench.look().stream("ct:events")] == ["joined", "lost"]


# -- the leader -----------------------------------------------------------------------------------------------------


def test_one_coordinator_leads_until_its_lead_runs_out(bench: Bench) -> None:
    assert bench.store.fleet.lead("a") is True
    assert bench.store.fleet.lead("b") is False
    assert bench.store.fleet.lead("a") is True, "a leader renews"
    assert 0 < bench.store.client.pttl("ct:leader") <= fleet.LEADER_TTL_MS
    bench.store.client.delete("ct:leader")
    assert bench.store.fleet.lead("b") is True
    assert bench.store.fleet.lead("a") is False
