"""Tests tenants that require labelled hosts: who gets their work, and the cost for other tenants."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from jobs import queues
from jobs.models import Device
from jobs.store import keys
from jobs.store.tenancy.tenants import Tenant
from jobs.store.work.slots import Held, Taken
from tests.contract.lease_invariants import check
from tests.contract.lease_model import LONG, Bench

CPU, GPU, RUNNER = (queues.for_worker(device) for device in (Device.CPU, Device.GPU, Device.RUNNER))


def require(bench: Bench, name: str = "a", *labels: str) -> None:
    bench.store.tenants.put(Tenant(name=name, requires=frozenset(labels or ("trusted",))))


def beat(bench: Bench, worker: str, labels: str = "", device: str = "cpu", **more: Any) -> None:
    bench.store.fleet.heartbeat(worker, "1", {"device": device, "lanes": 1, "state": "idle", "labels": labels, **more})


def fleet(bench: Bench, plain: Iterable[str] = ("plain",), labelled: Iterable[str] = ("good",)) -> None:
    for worker in plain:
        beat(bench, worker, "eu")
    for worker in labelled:
        beat(bench, worker, "eu,trusted")


# -- who gets it ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("required", "labels", "serves"),
    [
        (("trusted",), "", False),
        (("trusted",), "trusted", True),
        (("trusted",), "eu,trusted,zz", True),
        (("trusted",), "untrusted,trusted2,a-trusted", False),
        (("eu", "trusted"), "trusted", False),
        (("eu", "trusted"), "eu,trusted", True),
        (("a.b",), "axb", False),
        (("rack:1/2",), "rack:1/2", True),
    ],
)
def test_only_a_host_with_every_label_computes_for_the_tenant(
    bench: Bench, required: tuple[str, ...], labels: str, serves: bool
) -> None:
    require(bench, "a", *required)
    beat(bench, "w", labels)
    job = bench.submit(tenant="a")
    found = bench.next("w", CPU)
    assert found == (Held(job_id=job) if serves else "none")
    assert isinstance(bench.lease(job, worker="w"), str) is not serves
    check(bench, bench.look())


def test_small_jobs_are_taken_by_labelled_hosts_alone(bench: Bench) -> None:
    require(bench)
    fleet(bench)
    jobs = [bench.submit(1, tenant="a", small=True, estimate_ms=1) for _ in range(3)]
    own = bench.submit(1, small=True, estimate_ms=1)
    taken = bench.next("plain", CPU)
    assert isinstance(taken, Taken) and [job for job, _ in taken.jobs] == [own]
    assert bench.next("plain", CPU) == "none"
    taken = bench.next("good", CPU)
    assert isinstance(taken, Taken) and [job for job, _ in taken.jobs] == jobs


def test_nobody_else_helps_or_takes_over_what_a_labelled_host_began(bench: Bench) -> None:
    """Ranges that expire, that raised and that were split come back to such hosts alone."""
    require(bench)
    fleet(bench)
    job = bench.submit(100, tenant="a")
    assert bench.hold("good", CPU) == job
    lost, failed, split = (bench.grant(job, 10, worker="good") for _ in range(3))
    assert bench.next("plain", CPU) == "none", "it does not help"
    bench.store.leases.fail(job, failed.token, "raised")
    bench.store.leases.split(job, split.token, split.lo + 5)
    bench.advance(LONG)
    fleet(bench)
    bench.sweep()
    for _ in range(3):
        assert bench.next("plain", CPU) == "none" and bench.lease(job, 5, worker="plain") == "yield"
    assert bench.hold("good", CPU) == job
    assert bench.grant(job, 5, worker="good").lo in (lost.lo, failed.lo, split.lo + 5)


def test_a_result_is_derived_by_a_labelled_host(bench: Bench) -> None:
    require(bench)
    fleet(bench)
    job = bench.submit(10, tenant="a")
    assert bench.hold("good", CPU) == job
    bench.commit(bench.grant(job, 10, worker="good").token, worker="good")
    bench.store.slots.leave("good")
    bench.advance(2000)
    fleet(bench)
    bench.sweep()
    assert bench.next("plain", CPU) == "none" and bench.lease(job, worker="plain") == "yield"
    assert bench.hold("good", CPU) == job and bench.lease(job, worker="good") == "finishing"


def test_labels_that_a_coordinator_gives_count_and_not_those_of_the_row(bench: Bench) -> None:
    """The row of a worker of that name says otherwise, such as of another process."""
    require(bench)
    beat(bench, "w", "trusted")
    job = bench.submit(tenant="a")
    assert bench.next("w", CPU, labels=()) == "none" and bench.lease(job, worker="w", labels=()) == "yield"
    assert bench.next("w", CPU, labels=("trusted2", "eu")) == "none"
    beat(bench, "v")
    assert bench.hold("v", CPU, labels=("trusted",)) == job and bench.next("v", CPU) == "none"


def test_what_is_required_binds_at_the_next_lease_and_what_was_leased_counts(bench: Bench) -> None:
    fleet(bench)
    bench.store.tenants.put(Tenant(name="a"))
    job = bench.submit(20, tenant="a")
    assert bench.hold("plain", CPU) == job
    lease = bench.grant(job, 10, worker="plain")
    require(bench)
    assert bench.lease(job, 10, worker="plain") == "yield" and bench.next("plain", CPU) == "none"
    assert bench.commit(lease.token, worker="plain").merged
    bench.store.slots.leave("plain")
    assert bench.next("plain", CPU) == "none" and bench.hold("good", CPU) == job
    check(bench, bench.look())


# -- what is kept -----------------------------------------------------------------------------------------------------


def test_what_a_tenant_requires_stays_until_it_is_changed(bench: Bench) -> None:
    put, read = bench.store.tenants.put, bench.store.tenants.read
    require(bench, "a", "trusted", "eu")
    require(bench, "b", "gpu")
    assert not put(Tenant(name="a", weight=5)), "who knows nothing of labels leaves them"
    shown = {tenant.name: tenant.requires for tenant, _ in read(["a", "b", "default"])}
    assert shown == {"a": frozenset({"trusted", "eu"}), "b": frozenset({"gpu"}), "default": frozenset()}
    put(Tenant(name="a", requires=frozenset()))
    assert read(["a"])[0][0].requires == frozenset() and read(["b"])[0][0].requires == frozenset({"gpu"})
    assert bench.store.tenants.remove("b") == "ok"
    assert bench.client.hget(keys.SHARES, "|requires") == b""


def test_a_later_tenant_of_a_name_requires_nothing_of_the_earlier_one(bench: Bench) -> None:
    require(bench)
    assert bench.store.tenants.remove("a") == "ok"
    bench.store.tenants.put(Tenant(name="a"))
    beat(bench, "plain")
    job = bench.submit(tenant="a")
    assert bench.hold("plain", CPU) == job


def both_hold(bench: Bench, job: str) -> None:
    """Return a host without the label and a host with it; the second one is a helper."""
    assert bench.hold("plain", CPU) == job
    bench.grant(job, worker="plain")
    assert bench.hold("good", CPU) == job


# -- the others -------------------------------------------------------------------------------------------------------


def test_tenants_that_cannot_be_served_hide_nobody(bench: Bench) -> None:
    """More of them than heads at which NEXT looks, all given less than the one behind them."""
    for number in range(40):
        require(bench, f"t{number}")
    fleet(bench)
    for number in range(40):
        bench.submit(tenant=f"t{number}")
    own = bench.submit(100)
    bench.client.hset("ct:finish:normal", "default", "5000")
    bench.client.zadd("ct:order:any.normal", {"default": 5000})
    assert bench.hold("plain", CPU) == own
    assert isinstance(bench.next("good", CPU), Held)


def test_their_work_of_a_higher_priority_ends_no_turn_of_who_may_not_take_it(bench: Bench) -> None:
    require(bench)
    fleet(bench, plain=("plain",), labelled=("good", "other"))
    own = bench.submit(100)
    both_hold(bench, own)
    for _ in range(2):
        bench.submit(queue="any.high", tenant="a")
    assert not isinstance(bench.lease(own, worker="plain", higher=["cpu.high", "any.high"]), str)
    assert bench.lease(own, worker="good", higher=["cpu.high", "any.high"]) == "yield"


def test_a_tenant_that_was_given_less_ends_no_turn_of_who_may_not_serve_it(bench: Bench) -> None:
    require(bench)
    bench.store.tenants.put(Tenant(name="b"))
    fleet(bench)
    own = bench.submit(10**6, estimate_ms=10**6)
    both_hold(bench, own)
    bench.client.hset("ct:finish:normal", "default", "60000")
    bench.submit(tenant="a")
    higher = ["cpu.high", "any.high"]
    assert not isinstance(bench.lease(own, worker="plain", higher=higher), str)
    assert bench.lease(own, worker="good", higher=higher) == "yield"
    bench.submit(tenant="b")
    bench.client.zadd("ct:order:any.normal", {"b": 1})
    assert bench.lease(own, worker="plain", higher=higher) == "yield", "the next one waits for this worker, too"


def test_bells_wake_and_do_not_go_round(bench: Bench) -> None:
    """Who may not take a job rings for nobody; the idle ones were rung for once."""
    require(bench)
    fleet(bench, plain=("p1", "p2", "p3"))
    bench.extra["any.normal"] = 100
    job = bench.submit(tenant="a")
    assert bench.client.llen("rq:queue:any.normal") == 4, "each of the idle workers hears"
    check(bench, bench.look())
    for worker in ("p1", "p2", "p3"):
        popped = bench.pop(CPU)
        assert bench.next(worker, CPU, popped=popped) == "none"
    assert bench.client.llen("rq:queue:any.normal") == 0, "or an idle worker would ask again and again"
    bench.sweep()
    assert bench.client.llen("rq:queue:any.normal") == 0
    assert bench.hold("good", CPU) == job
    bench.store.slots.leave("good")
    bench.store.tenants.put(Tenant(name="a", requires=frozenset()))
    assert bench.client.llen("rq:queue:any.normal") == 1, "once any host may take it, it rings"


def test_jobs_that_cannot_be_served_age_without_a_turn_of_others(bench: Bench) -> None:
    require(bench)
    fleet(bench)
    waiting = bench.submit(queue="any.low", tenant="a")
    bench.advance(400_000)
    fleet(bench)
    bench.sweep()
    assert bench.client.hexists(keys.AGED, "any.low")
    own = bench.submit(100, queue="any.high")
    assert [bench.hold("plain", CPU) for _ in range(9)] == [own] * 9
    assert bench.hold("good", CPU) == waiting


def test_time_without_a_host_is_not_saved_up(bench: Bench) -> None:
    """Two tenants need the same host; one has waited for it all day."""
    require(bench, "a")
    require(bench, "b")
    fleet(bench, labelled=())
    first = bench.submit(10**6, tenant="a", estimate_ms=10**7)
    own = bench.submit(10**6, estimate_ms=10**7)
    for _ in range(200):  # the others are given 200 s meanwhile
        assert bench.hold("plain", CPU) == own
        bench.commit(bench.grant(own, 100, worker="plain").token, ms=1000, worker="plain")
    bench.sweep()
    second = bench.submit(10**6, tenant="b", estimate_ms=10**7)
    beat(bench, "good", "trusted")
    served = []
    for _ in range(20):
        job = bench.hold("good", CPU)
        bench.commit(bench.grant(job, 100, worker="good").token, ms=1000, worker="good")
        served.append(job)
    assert abs(served.count(first) - served.count(second)) <= 4, served
    assert {first, second} <= set(served)


# -- GPUs and programs ------------------------------------------------------------------------------------------------


def test_a_job_that_prefers_gpus_goes_where_a_host_may_compute_it(bench: Bench) -> None:
    require(bench)
    beat(bench, "gpu-1", "eu", device="gpu")
    mine = bench.submit(queue="gpu.normal", tenant="a", prefer=True)
    other = bench.submit(queue="gpu.normal", prefer=True)
    bench.sweep()
    waiting = bench.look().waiting()
    assert (waiting[mine], waiting[other]) == ("any.normal", "gpu.normal")
    beat(bench, "gpu-2", "trusted", device="gpu")
    later = bench.submit(queue="gpu.normal", tenant="a", prefer=True)
    bench.sweep()
    assert bench.look().waiting()[later] == "gpu.normal"


def _runner(bench: Bench, name: str, labels: str) -> dict[str, Any]:
    """Return a runner that claims to be trusted."""
    offer = {"cpus": 4, "memory_mib": 8000, "gpus": [], "host": name, "labels": ["trusted"]}
    beat(bench, name, labels, device="runner", offer=json.dumps(offer), kinds='{"sum":1}', isolation="uid", cordoned="")
    return offer


def test_what_a_runner_says_of_itself_opens_nothing(bench: Bench) -> None:
    require(bench)
    plain, good = _runner(bench, "plain", ""), _runner(bench, "good", "trusted")
    job = bench.submit(queue="runner.normal", tenant="a", requirements={"labels": ["trusted"]})
    for _ in range(2):
        assert bench.next("plain", RUNNER, offer=plain, kinds={"sum": 1}) == "none"
    assert bench.hold("good", RUNNER, offer=good, kinds={"sum": 1}) == job


def test_no_runner_is_kept_for_a_program_that_it_may_not_run(bench: Bench) -> None:
    require(bench)
    _runner(bench, "plain", "")
    good = _runner(bench, "good", "trusted")
    flow = bench.submit(1000, queue="runner.normal", tenant="a", max_lease_seconds=36_000)
    assert bench.hold("good", RUNNER, offer=good, kinds={"sum": 1}) == flow
    bench.grant(flow, worker="good")
    large = bench.submit(queue="runner.normal", tenant="a", requirements={"cpus": 4}, max_lease_seconds=36_000)
    for _ in range(4):
        bench.next("good", RUNNER, offer={**good, "cpus": 3}, kinds={"sum": 1})
        bench.lease(flow, worker="good")
    for _ in range(40):
        bench.advance(2000)
        _runner(bench, "plain", "")
        _runner(bench, "good", "trusted")
        for token in list(bench.granted):
            bench.beat(token)
        bench.sweep()
    kept = {job.decode(): text.decode().split("|")[0] for job, text in bench.client.hgetall(keys.RESERVED).items()}
    assert kept == {large: "good"}
