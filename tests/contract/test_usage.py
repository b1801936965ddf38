"""Tests tenants' usage, which the commit functions count by day of Redis' clock."""

from __future__ import annotations

from jobs.models import Device
from jobs.store.tenancy.usage import DAYS, DayUsage
from tests.contract.lease_model import START, Bench

DAY_MS = 86_400_000
TODAY = START // DAY_MS


def work(bench: Bench, tenant: str, units: int, ms: int) -> str:
    """Compute a job of a tenant to its end."""
    job = bench.submit(units, tenant=tenant)
    bench.commit(bench.grant(job, units).token, ms=ms)
    bench.fold(job)
    assert bench.finish(job)
    return job


def test_lanes_units_and_jobs_are_counted_by_tenant_and_day(bench: Bench) -> None:
    work(bench, "physics", 10, 300)
    work(bench, "physics", 5, 200)
    work(bench, "default", 7, 100)
    bench.advance(DAY_MS)
    work(bench, "physics", 1, 50)
    usage = bench.store.usage
    assert usage.tenants() == ["default", "physics"]
    assert usage.by_day(["physics", "default", "nobody"], 0) == {
        ("physics", TODAY): DayUsage(lane_ms={"cpu": 500}, units={"sum": 15}, jobs={"sum": 2}),
        ("physics", TODAY + 1): DayUsage(lane_ms={"cpu": 50}, units={"sum": 1}, jobs={"sum": 1}),
        ("default", TODAY): DayUsage(lane_ms={"cpu": 100}, units={"sum": 7}, jobs={"sum": 1}),
    }
    assert list(usage.by_day(["physics"], TODAY + 1)) == [("physics", TODAY + 1)]


def test_a_small_job_a_shared_device_and_its_energy_are_counted(bench: Bench) -> None:
    small = bench.submit(4, small=True)
    assert bench.done1(bench.grant(small, 4).token)
    job = bench.submit(4)
    grant = bench.grant(job, 4)
    bench.store.leases.commit(
        job, grant.token, 4, b"{}", ms=70, worker="g", device=Device.GPU, device_ms=40, joules=2.5
    )
    [used] = bench.store.usage.by_day(["default"], 0).values()
    assert used == DayUsage(
        lane_ms={"cpu": 1, "gpu": 70}, units={"sum": 8}, jobs={"sum": 1}, device_ms=40, millijoules=2500
    )


def test_a_stale_commit_uses_nothing(bench: Bench) -> None:
    job = bench.submit(10)
    token = bench.grant(job, 10).token
    bench.commit(token, ms=300)
    bench.commit(token, ms=300)
    [used] = bench.store.usage.by_day(["default"], 0).values()
    assert used.lane_ms == {"cpu": 300}


def test_old_days_are_added_up(bench: Bench) -> None:
    work(bench, "physics", 10, 300)
    bench.advance(DAY_MS)
    work(bench, "physics", 5, 200)
    usage = bench.store.usage
    before = usage.totals(["physics"])
    for last, days in ((DAYS - 2, 2), (1, 1), (1, 0)):
        bench.advance(last * DAY_MS)
        for tenant in usage.tenants():
            bench.store.functions.run("usage_prune", tenant, bench.look().now // DAY_MS - DAYS + 1)
        assert len(usage.by_day(["physics"], 0)) == days
        assert usage.totals(["physics"]) == before
    assert before["physics"] == DayUsage(lane_ms={"cpu": 500}, units={"sum": 15}, jobs={"sum": 2})


def test_a_counter_that_is_broken_stops_no_commit(bench: Bench) -> None:
    bench.client.hset("ct:usage:default", f"{TODAY}|ms|cpu", 2**63 - 1)
    work(bench, "default", 10, 300)
    bench.client.set("ct:usage:physics", "text")
    work(bench, "physics", 10, 300)
    bench.client.hset("ct:usage:default", "nonsense", "x")
    assert [used.units for used in bench.store.usage.by_day(["default", "physics"], 0).values()] == [{"sum": 10}]
