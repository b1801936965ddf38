"""Tests which work counts for the number of desired workers, in the functions and in Redis."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

import pytest

from coordinator.fleet import demand, scaler
from coordinator.fleet.autoscaling import Work
from coordinator.fleet.scaler import Scaler
from coordinator.jobs import scheduler
from coordinator.jobs.caches.fleet_cache import FleetCache
from coordinator.jobs.caches.worker_table import WorkerTable
from jobs.models import Device
from jobs.settings import Settings
from jobs.store.tenancy.tenants import Tenant
from jobs.store.work import demand as reads
from tests.contract.lease_model import Bench
from threads_protocol.answers import fleet as answers

CPU, GPU = Device.CPU, Device.GPU


def work(bench: Bench) -> list[Work]:
    return demand.work(bench.store.demand.read())


def seconds(bench: Bench) -> float:
    return sum(each.jobs * each.seconds for each in work(bench))


def live(device: str, lanes: int, *, draining: bool = False) -> answers.Worker:
    row: Mapping[str, object] = {"live": True, "draining": draining, "device": device, "lanes": lanes}
    return row  # type: ignore[return-value]


def test_work_counts_while_it_waits_is_held_and_runs(bench: Bench) -> None:
    job = bench.submit(100, "cpu.normal", estimate_ms=50_000)
    assert seconds(bench) == 50
    bench.hold("w")
    assert seconds(bench) == 50
    lease = bench.grant(job, 40)
    assert seconds(bench) == 50
    bench.commit(lease.token)
    assert seconds(bench) == pytest.approx(30)
    bench.commit(bench.grant(job, 60).token)
    assert bench.job(job).state == "finishing" and 0 < seconds(bench) < 0.01
    bench.finish(job)
    assert work(bench) == []


def test_work_counts_that_further_workers_would_have_the_labels_for(bench: Bench) -> None:
    """Joined hosts with labels compute the rest."""
    bench.store.tenants.put(Tenant(name="a", requires=frozenset({"eu", "trusted"})))
    for tenant in ("a", "default"):
        bench.submit(100, "cpu.normal", estimate_ms=50_000, tenant=tenant)
    read = bench.store.demand.read()
    counted = [sorted(each.tenant for each in demand.work(read, labels)) for labels in (set(), {"eu"})]
    assert counted == [["default"], ["default"]]
    assert sorted(each.tenant for each in demand.work(read, {"eu", "trusted", "ssd"})) == ["a", "default"]


def test_paused_work_does_not_count(bench: Bench) -> None:
    waits, runs = bench.submit(), bench.submit()
    assert bench.hold("w") == waits
    bench.grant(waits, 5)
    for job in (waits, runs):
        bench.store.jobs.pause(job)
    assert work(bench) == []
    bench.store.jobs.resume(runs)
    assert seconds(bench) == 1


def test_work_that_a_cap_holds_back_does_not_count(bench: Bench) -> None:
    bench.store.tenants.put(Tenant(name="a", max_jobs=1, max_units={"sum": 10}))
    job, _, other = bench.submit(100, tenant="a"), bench.submit(tenant="a", hold=True), bench.submit()
    assert len(work(bench)) == 2, "one waits in the backlog"
    bench.hold("w")
    bench.commit(bench.grant(job, 10).token)
    assert bench.lease(job) == "yield"
    assert bench.hold("w") == other and bench.next("x") == "none"
    assert [each.tenant for each in work(bench)] == ["default"], "one waits for the next day"


def test_a_job_waits_for_what_can_start_before_it(bench: Bench) -> None:
    """Neither for a backlog, nor for what waits for the next day, nor for tenants that use all their lanes."""
    bench.store.tenants.put(Tenant(name="a", max_jobs=2, max_lanes=1, max_units={"sum": 10}))
    seen = FleetCache(bench.store, WorkerTable())
    table: dict[str, str | int] = {"device": "cpu", "lanes": 1, "state": "busy"}
    for worker in "wxyz":
        bench.store.fleet.heartbeat(worker, "0000000000001-a", table)
        for index in ("ct:workers", "ct:nodes"):  # what coordinators read goes by Redis' own clock
            bench.client.zadd(index, {worker: 1e15})

    def wait(tenant: str = "default") -> float | None:
        seen.forget()
        return scheduler.estimate_wait("any.normal", seen.get(), tenant)

    def load() -> float:
        seen.forget()
        return seen.get().load_seconds["any.normal"]

    first = bench.submit(100, tenant="a", estimate_ms=400_000)
    assert wait() == 2.5, "a turn that ends and that of the job before, of five seconds by four workers"
    bench.submit(100, tenant="a", estimate_ms=400_000)
    held = bench.submit(100, tenant="a", hold=True, estimate_ms=400_000)
    assert load() == 800 and wait() == 2.5, "it gets turns as often as tenant a"
    assert wait("a") == 3.75, "two of its own go before"
    bench.hold("w")
    lease = bench.grant(first, 10)
    assert wait() == 1.25, "tenant a uses its lane"
    bench.commit(lease.token)
    assert bench.lease(first) == "yield", "tenant a has used its units"
    assert bench.next("w") == "none" and load() == 0 and wait() == 0.0
    bench.store.tenants.put(Tenant(name="a"))
    bench.sweep()
    assert bench.job(held).number("backlog") == 0 and load() == 1160


def test_a_tenants_cap_on_lanes_and_on_gpu_seconds(bench: Bench) -> None:
    bench.store.tenants.put(Tenant(name="a", max_lanes=3))
    bench.submit(queue="gpu.normal", tenant="a")
    bench.submit(queue="any.normal", tenant="a")
    assert demand.max_lanes(bench.store.demand.read()) == {"a": 3}
    bench.client.sadd("ct:capped", "gpu:a")
    [each] = work(bench)
    assert set(each.paces) == {CPU}


def test_the_most_lanes_of_a_job(bench: Bench) -> None:
    bench.submit(100, grain=30)
    bench.submit(100, max_running=2)
    bench.submit(100, small=True)
    assert sorted(each.most_lanes for each in work(bench)) == [1, 2, 4]
    bench.submit(2**53, max_running=0)
    assert math.isfinite(max(each.most_lanes for each in work(bench)))


def test_speeds_are_those_measured_of_the_kind_and_mode_or_typical_or_the_estimate(bench: Bench) -> None:
    paces = {"sum|default|gpu": "100", "x|y|cpu": "2", "x|z|cpu": "8", "x|w|cpu": "4", "sum|default|cpu": "bad"}
    bench.client.hset("ct:pace", mapping=paces)
    bench.submit(queue="any.normal")
    [each] = work(bench)
    assert each.paces == {CPU: 4, GPU: 100}
    bench.client.delete("ct:pace")
    [each] = work(bench)
    assert each.paces == {CPU: 1, GPU: 1}


def test_jobs_that_no_worker_has_the_version_of_need_one(bench: Bench) -> None:
    bench.submit(queue="cpu.normal", version=2, estimate_ms=10**9)
    assert bench.next("w", kinds={"sum": 1}) == "none"
    [each] = work(bench)
    assert each.jobs == 1 and each.seconds < 1


def test_of_many_jobs_a_part_stands_for_all(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "MOST_READ", 10)
    for _ in range(50):
        bench.submit(queue="cpu.normal")
    assert len(work(bench)) == 10 and seconds(bench) == 50
    bench.store.tenants.put(Tenant(name="a"))
    bench.submit(queue="cpu.normal", tenant="a")
    assert {each.tenant for each in work(bench)} == {"a", "default"} and seconds(bench) == 51


def test_broken_contents_stop_nothing(bench: Bench) -> None:
    bad, _ = bench.submit(), bench.submit()
    bench.client.hset(f"ct:job:{bad}", "load", "much")
    assert len(work(bench)) == 1
    for key in ("ct:in:running", "ct:slotjob", "ct:shares", "ct:pace", "ct:capped", "ct:unsupported", "ct:desired"):
        bench.client.delete(key)
        bench.client.rpush(key, "x")
    assert len(work(bench)) == 1 and scaler.scales(bench.store) == {}
    bench.client.delete("ct:desired")
    bench.client.set("ct:desired", '{"cpu": {"workers": "many"}}')
    assert scaler.scales(bench.store) == {}


def test_figures_that_nothing_can_be_computed_with_stop_nothing(bench: Bench) -> None:
    job = bench.submit(1000, tenant="a")
    bench.client.hset("ct:job:" + job, mapping={"max_running": -5, "load": 600_000})
    bench.client.hset("ct:shares", "a", "1|-3|0")
    bench.client.hset("ct:pace", mapping={"sum|default|cpu": "1e-320", "sum|default|gpu": "1e308"})
    scale = {"workers": 1, "calm_since": None, "peak": 0, "raised_at": None, "lanes": 1e-320}
    bench.client.set("ct:desired", json.dumps({"cpu": scale, "gpu": scale}))
    [each] = work(bench)
    assert each.most_lanes > 1 and each.paces[CPU] == 1
    assert Scaler(bench.store, Settings()).update([])[CPU] == 2


def test_a_leader_goes_on_from_where_another_stopped(bench: Bench) -> None:
    """The first count starts with the live workers, so that a restart stops none."""
    settings = Settings(autoscale_max=8, autoscale_gpu_max=2)
    workers = [*[live("cpu", 2)] * 4, live("cpu", 2, draining=True)]
    assert Scaler(bench.store, settings).update(workers) == {CPU: 4, GPU: 0}
    bench.submit(10**6, "cpu.normal", estimate_ms=600_000)
    assert Scaler(bench.store, settings).update(workers) == {CPU: 5, GPU: 0}
    written = scaler.scales(bench.store)
    assert written[CPU].workers == 5 and written[CPU].lanes == 2 and written[CPU].raised_at
    assert Scaler(bench.store, settings).update([])[CPU] == 5, "lanes are remembered when the last worker goes"
    assert 0 < bench.client.ttl("ct:desired") <= 60
