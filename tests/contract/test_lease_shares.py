"""Tests a minute of a fleet's work on a simulated clock: shares, aging, and waiting reasons."""

from __future__ import annotations

import re
from typing import Any

import pytest

from coordinator.jobs import scheduler
from coordinator.jobs.queries import JobQueries
from jobs import queues
from jobs.models import Device
from jobs.store.tenancy.tenants import Tenant
from tests.contract.fleet_simulation import LEASE_MS, Fleet
from tests.contract.lease_invariants import check
from tests.contract.lease_model import Bench, Snapshot

ENDLESS = 2**50


@pytest.mark.parametrize("jobs", [1, 3])
def test_weights_1_to_3_share_the_lane_seconds_of_a_minute_within_a_tenth(bench: Bench, jobs: int) -> None:
    fleet = Fleet(bench, workers=2, lanes=2)
    for name, weight in (("a", 1), ("b", 3)):
        bench.store.tenants.put(Tenant(name=name, weight=weight))
    mine = {bench.submit(ENDLESS, tenant=name, estimate_ms=ENDLESS): name for name in "ab" for _ in range(jobs)}
    for _ in fleet.run(60):
        pass
    used = {name: sum(fleet.used[job] for job in mine if mine[job] == name) for name in "ab"}
    assert used["a"] / used["b"] == pytest.approx(1 / 3, rel=0.1)
    assert sum(used.values()) >= 0.9 * 60_000 * 4, "no lane idles"
    check(bench, bench.look())


def test_a_tenant_that_comes_later_gets_its_share_at_once(bench: Bench) -> None:
    fleet = Fleet(bench, workers=2, lanes=2)
    for name in "ab":
        bench.store.tenants.put(Tenant(name=name))
    bench.submit(ENDLESS, tenant="a", estimate_ms=ENDLESS)
    for _ in fleet.run(30):
        pass
    late = bench.submit(ENDLESS, tenant="b", estimate_ms=ENDLESS)
    for _ in fleet.run(60):
        pass
    assert fleet.started[late] <= 30_000 + 2 * LEASE_MS
    assert fleet.used[late] == pytest.approx(60_000 * 4 / 2, rel=0.1), "neither more, for the time before, nor less"


@pytest.mark.parametrize("shared", [False, True])
def test_low_runs_within_its_age_and_a_lease_beside_a_steady_high_stream(bench: Bench, shared: bool) -> None:
    fleet = Fleet(bench, workers=2, lanes=2, age_seconds=10)
    if shared:
        bench.store.tenants.put(Tenant(name="a"))
    high = bench.submit(ENDLESS, queue="any.high", estimate_ms=ENDLESS)
    low = bench.submit(ENDLESS, queue="any.low", estimate_ms=ENDLESS)
    for _ in fleet.run(60):
        pass
    assert fleet.started[low] <= 10_000 + LEASE_MS + 1000, "SWEEP looks once a second"
    assert 0 < fleet.used[low] <= fleet.used[high] / 4


# -- why a job waits ------------------------------------------------------------------------------------------------


class Cluster:
    """A fleet as the API reports it, with one live CPU worker and the load."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def get(self) -> scheduler.Fleet:
        load = {queue: int(ms) / 1000 for queue, ms in self._bench.look().hash("ct:load").items()}
        kinds: dict[Device, Any] = {Device.CPU: [{"sum": 1}]}
        return scheduler.Fleet(lanes={Device.CPU: 4}, load_seconds=load, kinds=kinds)


def _is_true(reason: str, job: str, seen: Snapshot) -> None:
    """Return True if the reason is true now."""
    view = seen.jobs[job]
    part = seen.zset(f"ct:tenant_pending:{view.queue}:{view.tenant}")
    if reason.startswith("paused"):
        assert view.state == "paused"
        return
    if "reached max_jobs" in reason:
        admitted = seen.zset(f"ct:admitted:{view.tenant}")
        assert view.number("backlog") and len(admitted) >= seen.cap(view.tenant, "max_jobs") > 0
        return
    assert not view.number("backlog") and not seen.held(job)
    if "no live worker serves" in reason:
        assert view.queue.startswith("gpu.")
    elif "computes version" in reason:
        assert view.number("version") == 2
    elif "reached max_running" in reason:
        assert view.running(seen.now) >= view.number("max_running") > 0
    elif "last leases" in reason:
        assert view.leases and job not in part
    else:
        _position_is_true(reason, part, job)
        if "reached max_lanes" in reason:
            assert seen.is_capped(view.tenant)
        elif "higher priority" in reason:
            [named] = re.findall(r"served first \((.*?)\)", reason)
            assert all(int(seen.hash("ct:load")[queue]) > 0 for queue in named.split(", "))
        elif "used less" in reason:
            order = seen.zset(f"ct:order:{view.queue}")
            assert sum(at <= order[view.tenant] for at in order.values()) > 1


def _position_is_true(reason: str, part: dict[str, int], job: str) -> None:
    before = sum(turn < part[job] for turn in part.values())
    stated = re.search(r"(\d+) jobs? of its tenant (?:is|are) ahead", reason)
    assert (int(stated[1]) if stated else 0) == before, reason


def test_why_a_job_waits_is_true_at_each_moment(bench: Bench) -> None:
    fleet = Fleet(bench, workers=2, lanes=2)
    bench.store.tenants.put(Tenant(name="a", max_lanes=2))
    bench.store.tenants.put(Tenant(name="b", weight=3, max_jobs=2))
    for number in range(12):
        bench.submit(
            3000 + 500 * number,
            queue=["any.normal", "cpu.normal", "any.low", "any.high"][number % 4],
            tenant="ab"[number % 2],
            hold=True,
            estimate_ms=3000,
            max_running=number % 3,
        )
    bench.submit(10, queue="gpu.normal")
    bench.submit(10, version=2)
    paused = bench.submit(ENDLESS, queue="any.low", estimate_ms=ENDLESS)
    bench.store.jobs.pause(paused)
    reasons = JobQueries(bench.store, Cluster(bench))  # type: ignore[arg-type]
    said = set()
    for _ in fleet.run(40):
        seen = bench.look()
        bench.extra.update(dict.fromkeys(queues.ALL, 4))  # rung for helpers
        check(bench, seen)
        for row in reasons.by_ids(list(seen.jobs)):
            reason = row["waiting_because"]
            view = seen.jobs[row["job_id"]]
            if reason is None:
                assert view.state not in ("queued", "paused") or seen.held(row["job_id"]), (row["job_id"], view.state)
            else:
                _is_true(reason, row["job_id"], seen)
                said.add(_kind(reason))
    assert said >= {
        "max_jobs",
        "max_lanes",
        "no live worker serves",
        "computes version",
        "paused",
        "higher priority",
    }, said
    assert all(view.state == "done" for job, view in bench.look().jobs.items() if job in fleet.started)


KINDS = (
    "max_jobs",
    "max_lanes",
    "max_running",
    "no live worker serves",
    "computes version",
    "paused",
    "higher priority",
    "used less",
    "starts when",
    "last leases",
    "ahead in",
)


def _kind(reason: str) -> str:
    return next(kind for kind in KINDS if kind in reason)
