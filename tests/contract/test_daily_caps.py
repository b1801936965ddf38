"""Tests a tenant's caps on units and GPU seconds per day and on stored bytes, with a test clock across days."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import httpx
import pytest

from coordinator import app
from coordinator.jobs import scheduler
from coordinator.jobs.queries import JobQueries
from jobs import queues
from jobs.models import Device
from jobs.settings import Settings
from jobs.store.tenancy.tenants import Tenant
from jobs.store.work.jobs import CapReached
from jobs.store.work.leases import Finished
from jobs.store.work.slots import Held, Taken
from tests.contract.fleet_simulation import LEASE_MS, Fleet
from tests.contract.lease_invariants import check, sizes_agree
from tests.contract.lease_model import DAY_MS, START, Bench, encode, new_job, total_of

CPU, GPU = queues.for_worker(Device.CPU), queues.for_worker(Device.GPU)
#: Milliseconds from START to the end of its day.
EVENING = DAY_MS - START % DAY_MS
ENDLESS = 2**50


def compute(bench: Bench, job: str, units: int) -> None:
    bench.commit(bench.grant(job, units).token)


class FleetOf:
    """A fleet as the API reports it: lanes by device."""

    def __init__(self, **lanes: int) -> None:
        self._fleet = scheduler.Fleet(lanes={Device(name): count for name, count in lanes.items()})

    def get(self) -> scheduler.Fleet:
        return self._fleet


def why(bench: Bench, job: str, **lanes: int) -> str | None:
    fleet: Any = FleetOf(**lanes)
    return JobQueries(bench.store, fleet).job(job)["waiting_because"]


# -- units a day ----------------------------------------------------------------------------------------------------


def test_a_tenant_over_its_units_gets_no_grant_until_the_day_turns(bench: Bench) -> None:
    bench.store.tenants.put(Tenant(name="a", max_units={"sum": 10}))
    job, other = bench.submit(100, tenant="a"), bench.submit(100)
    bench.hold("w")
    compute(bench, job, 10)
    assert bench.lease(job) == "yield"
    bench.store.slots.leave("w")
    assert bench.hold("x") == other and bench.next("y") == "none"
    check(bench, bench.look())
    assert bench.look().deferred() == {job: "a:sum"}
    bench.sweep()
    assert not bench.look().members("rq:queue:any.normal"), "nobody hears of what nobody may take"
    bench.advance(EVENING - 1)
    bench.sweep()
    assert bench.look().deferred(), "a millisecond is left of the day"
    bench.advance(1)
    bench.sweep()
    assert not bench.look().deferred() and bench.look().waiting()[job] == "any.normal"
    bench.store.jobs.cancel(other)
    assert bench.hold("z") == job
    compute(bench, job, 10)
    assert bench.lease(job) == "yield", "and so on the next day"
    check(bench, bench.look())


def test_what_waits_says_cap_use_and_when_it_goes_on(bench: Bench) -> None:
    bench.store.tenants.put(Tenant(name="a", max_units={"sum": 10}))
    job = bench.submit(100, tenant="a")
    bench.hold("w")
    compute(bench, job, 10)
    bench.store.slots.leave("w")
    bench.advance(EVENING - 90_000)
    expected = "tenant a has reached max_units (10 of 10 units of sum today); the job continues at 00:00 UTC, in 90 s"
    assert why(bench, job, cpu=1) == expected, "before a worker has looked"
    assert bench.next("w") == "none" and why(bench, job, cpu=1) == expected
    [(tenant, use)] = bench.store.tenants.read(["a"])
    assert (tenant.max_units, use.units) == ({"sum": 10}, {"sum": 10})
    bench.advance(90_000)
    assert "max_units" not in (why(bench, job, cpu=1) or "")


def test_a_running_lease_is_not_cut_and_one_that_is_dropped_charges_nothing(bench: Bench) -> None:
    bench.store.tenants.put(Tenant(name="a", max_units={"sum": 10}))
    job = bench.submit(100, tenant="a")
    bench.hold("w", lanes=4)
    runs, dropped, died = (bench.grant(job, 8).token for _ in range(3))
    bench.release(dropped)
    bench.crash(died)
    assert bench.store.tenants.read(["a"])[0][1].units == {"sum": 0}
    compute(bench, job, 9)
    assert bench.lease(job, 5) and bench.grant(job, 5).hi, "one unit is left"
    compute(bench, job, 9)
    assert bench.lease(job) == "yield" and bench.beat(runs) == 1
    assert bench.commit(runs).merged, "and counts"
    assert bench.store.tenants.read(["a"])[0][1].units["sum"] > 10
    check(bench, bench.look())


def test_a_lease_is_no_longer_than_what_is_left_of_the_day(bench: Bench) -> None:
    bench.store.tenants.put(Tenant(name="a", max_units={"sum": 10}))
    job = bench.submit(100, tenant="a")
    bench.hold("w")
    compute(bench, job, 7)
    grant = bench.grant(job, 50)
    assert grant.hi - grant.lo == 3


def test_another_kind_of_the_same_tenant_is_served_behind_those_that_wait(bench: Bench) -> None:
    bench.store.tenants.put(Tenant(name="a", max_units={"sum": 1}))
    first = bench.submit(5, tenant="a")
    bench.hold("w")
    compute(bench, first, 1)
    bench.store.slots.leave("w")
    for _ in range(150):
        bench.submit(5, tenant="a")
    other = bench.submit(5, tenant="a", kind="other")
    answers = [bench.next("w") for _ in range(2)]  # one call looks at a hundred jobs
    assert Held(job_id=other) in answers
    check(bench, bench.look())


def test_small_jobs_are_taken_within_the_units_of_a_day(bench: Bench) -> None:
    bench.store.tenants.put(Tenant(name="a", max_units={"sum": 10}))
    jobs = [bench.submit(4, tenant="a", small=True, estimate_ms=1) for _ in range(8)]
    taken = bench.next("w", lanes=2)
    assert isinstance(taken, Taken) and [job for job, _ in taken.jobs] == jobs[:3], "4 and 4 leave room for a third"
    for _, token in taken.jobs[:2]:
        bench.done1(token)
    bench.release(taken.jobs[2][1])
    bench.sweep()  # the third was dropped: two units are left
    assert {job for job, _ in bench.take("x").jobs} <= set(jobs[2:]) and bench.next("y") == "none"
    check(bench, bench.look())
    bench.advance(DAY_MS)
    for _ in range(4):
        bench.sweep()
        bench.work()
        bench.advance(DAY_MS)
    assert all(view.state == "done" for view in bench.look().jobs.values())


def test_a_job_whose_last_lease_ends_is_finished_although_the_day_is_spent(bench: Bench) -> None:
    bench.store.tenants.put(Tenant(name="a", max_units={"sum": 10}))
    job, more = bench.submit(12, tenant="a"), bench.submit(5, tenant="a")
    bench.hold("w")
    token = bench.grant(job, 6).token
    compute(bench, job, 6)
    bench.store.slots.leave("w")
    spent = bench.submit(4, tenant="a")
    bench.hold("v")
    compute(bench, more, 4)
    bench.store.slots.leave("v")
    bench.next("x")
    assert set(bench.look().deferred()) == {more, spent}
    bench.commit(token)
    bench.advance(1000)
    bench.sweep()
    assert bench.hold("x") == job and bench.lease(job) == "finishing" and bench.finish(job)
    check(bench, bench.look())


def test_the_turn_of_the_day_calls_jobs_up_little_by_little(bench: Bench) -> None:
    """A single call for all jobs of many tenants would block Redis for seconds."""
    members = [f"t{number}:sum" for number in range(12)]
    for member in members:
        bench.client.zadd(f"ct:deferred:{member}", {f"gone{number}": number for number in range(1000)})
    bench.client.sadd("ct:deferred", *members)
    bench.store.tenants.put(Tenant(name="a"))
    for most in (11_100, 10_100):
        bench.sweep()
        assert 0 < sum(bench.client.zcard(f"ct:deferred:{member}") for member in members) <= most
    left = sum(bench.client.zcard(f"ct:deferred:{member}") for member in members)
    assert left > 9_000, "not all at once"


@pytest.mark.parametrize("how", ["cancel", "pause", "raise", "remove"])
def test_a_job_that_waits_for_the_next_day_may_be_steered(bench: Bench, how: str) -> None:
    bench.store.tenants.put(Tenant(name="a", max_units={"sum": 1}))
    spent, job = bench.submit(1, tenant="a"), bench.submit(5, tenant="a")
    bench.hold("w")
    compute(bench, spent, 1)
    bench.finish(spent)
    assert bench.next("w") == "none" and set(bench.look().deferred()) == {job}
    if how in ("cancel", "pause"):
        getattr(bench.store.jobs, how)(job)
        assert not bench.look().deferred()
        check(bench, bench.look())
        again = bench.store.jobs.retry(job, 1) if how == "cancel" else bench.store.jobs.resume(job)
        assert again[0] == "ok" and bench.next("w") == "none"
    else:
        bench.store.tenants.put(Tenant(name="a", max_units={"sum": 9} if how == "raise" else {}))
        bench.sweep()
        assert bench.hold("w") == job
        compute(bench, job, 5)
    check(bench, bench.look())


def test_a_refusal_for_max_jobs_says_that_the_jobs_wait_for_the_next_day(bench: Bench) -> None:
    bench.store.tenants.put(Tenant(name="a", max_units={"sum": 1}, max_jobs=1))
    job = bench.submit(5, tenant="a")
    bench.hold("w")
    compute(bench, job, 1)
    bench.store.slots.leave("w")
    assert bench.next("w") == "none"
    [over] = bench.store.jobs.submit([new_job("x", 1, "any.normal", tenant="a")])
    assert over == CapReached(cap="max_jobs", value=1, seconds=-(-EVENING // 1000), awaits="day")


def test_a_refusal_for_max_jobs_promises_no_day_if_only_the_first_jobs_wait_for_it(bench: Bench) -> None:
    bench.store.tenants.put(Tenant(name="a", max_jobs=17))
    jobs = [bench.submit(5, tenant="a") for _ in range(17)]
    for job in jobs[:16]:
        bench.client.hset(f"ct:job:{job}", "deferred", 1)
    [over] = bench.store.jobs.submit([new_job("x", 1, "any.normal", tenant="a")])
    assert isinstance(over, CapReached) and over.awaits == ""


def test_a_day_of_a_fleet_computes_its_units_and_no_lease_more_than_its_lanes(bench: Bench) -> None:
    """A tenant with caps and one without share four lanes for two days."""
    fleet = Fleet(bench, workers=2, lanes=2)
    most = 10 * LEASE_MS
    bench.store.tenants.put(Tenant(name="a", max_units={"sum": most}))
    capped, free = (bench.submit(ENDLESS, tenant=name, estimate_ms=ENDLESS) for name in ("a", "default"))
    for day in range(2):
        today = (START + bench.look().now - START) // DAY_MS
        for _ in fleet.run(15):
            reason = why(bench, capped, cpu=4)
            left = bench.look().left_today("a")
            assert ("max_units" in (reason or "")) == (left <= 0 and not bench.look().held(capped)), (reason, left)
        used = bench.store.usage.by_day(["a"], today)["a", today].units["sum"]
        assert most <= used <= most + 4 * LEASE_MS, day
        assert fleet.used[free] > 2 * fleet.used[capped]
        bench.advance(DAY_MS - bench.look().now % DAY_MS)
    assert fleet.used[capped] > most


# -- GPU seconds a day ----------------------------------------------------------------------------------------------


def spend_gpu(bench: Bench, job: str, ms: int) -> None:
    grant = bench.grant(job, 1, worker="g")
    bench.jobs[job].committed.append((grant.lo, grant.hi))
    bench.store.leases.commit(
        job,
        grant.token,
        grant.hi,
        b'{"sum": %d, "count": 1}' % grant.lo,
        ms=ms,
        worker="g",
        device=Device.GPU,
        device_ms=ms,
    )


@pytest.fixture
def gpu(bench: Bench) -> Bench:
    """Return a cluster with a GPU worker g, a CPU worker c, and a tenant with one GPU second per day."""
    bench.store.fleet.heartbeat("g", "1", {"device": "gpu"})
    bench.store.fleet.heartbeat("c", "1", {"device": "cpu"})
    bench.store.tenants.put(Tenant(name="a", max_gpu_seconds=1))
    return bench


def test_a_tenant_over_its_gpu_seconds_gets_no_gpu_until_the_day_turns(gpu: Bench) -> None:
    job = gpu.submit(100, tenant="a", queue="gpu.normal")
    gpu.hold("g", GPU)
    spend_gpu(gpu, job, 999)
    spend_gpu(gpu, job, 1)
    assert gpu.lease(job, worker="g") == "yield"
    assert gpu.next("g", GPU) == "none"
    gpu.sweep()
    assert not gpu.look().members("rq:queue:gpu.normal"), "the GPU would pop its own bell in a circle"
    reason = why(gpu, job, gpu=2, cpu=2)
    assert (reason or "").startswith(
        "tenant a has reached max_gpu_seconds (1 of 1 GPU seconds today); the job continues at"
    )
    other = gpu.submit(1, queue="gpu.normal")
    assert gpu.hold("g", GPU) == other
    gpu.store.slots.leave("g")
    gpu.store.jobs.cancel(other)
    gpu.store.fleet.heartbeat("g", "1", {"device": "gpu"})
    gpu.advance(EVENING)
    gpu.store.fleet.heartbeat("g", "1", {"device": "gpu"})
    gpu.sweep()
    assert gpu.look().members("rq:queue:gpu.normal") and gpu.hold("g", GPU) == job
    spend_gpu(gpu, job, 1)
    check(gpu, gpu.look())


def test_jobs_for_any_device_go_on_without_a_gpu(gpu: Bench) -> None:
    spender = gpu.submit(100, tenant="a", queue="gpu.normal")
    gpu.hold("g", GPU)
    spend_gpu(gpu, spender, 1000)
    gpu.store.slots.leave("g")
    job = gpu.submit(100, tenant="a", queue="any.normal")
    assert gpu.next("g", GPU) == "none"
    assert gpu.hold("c", CPU) == job
    compute(gpu, job, 1)
    assert gpu.next("g", GPU) == "none", "nor does it help"
    assert gpu.lease(job, worker="g") == "yield"
    assert why(gpu, spender, gpu=2, cpu=2) and not why(gpu, job, gpu=2, cpu=2)
    gpu.store.slots.leave("c")
    assert "max_gpu_seconds" in (why(gpu, job, gpu=2) or ""), "no CPU is there"
    check(gpu, gpu.look())


def test_a_small_job_on_a_gpu_uses_its_seconds(gpu: Bench) -> None:
    job = gpu.submit(4, tenant="a", small=True, queue="gpu.normal")
    token = gpu.grant(job, 4, worker="g").token
    finished = Finished(job_id=job, token=token, result=b"{}", ms=1200, device_ms=1100)
    assert gpu.store.leases.done1_all([finished], worker="g", device=Device.GPU) == [True]
    [(_, use)] = gpu.store.tenants.read(["a"])
    assert use.gpu_ms == 1100
    gpu.submit(4, tenant="a", small=True, queue="gpu.normal")
    assert gpu.next("g", GPU) == "none"


def test_a_result_that_is_missing_needs_no_gpu_seconds(gpu: Bench) -> None:
    """The worker dies between the last commit and the result."""
    gpu.store.fleet.heartbeat("h", "1", {"device": "gpu"})
    job, more = (gpu.submit(10, tenant="a", queue="gpu.normal") for _ in range(2))
    gpu.hold("g", GPU)
    lease = gpu.grant(job, 10, worker="g")
    gpu.jobs[job].committed.append((lease.lo, lease.hi))
    gpu.store.leases.commit(
        job,
        lease.token,
        lease.hi,
        encode(total_of(lease.lo, lease.hi)),
        ms=1500,
        worker="g",
        device=Device.GPU,
        device_ms=1500,
    )
    gpu.store.slots.leave("g")
    assert gpu.hold("h", GPU) == job and gpu.lease(job, worker="h") == "finishing" and gpu.finish(job)
    gpu.store.slots.leave("h")
    assert gpu.next("h", GPU) == "none" and gpu.look().jobs[more].state == "queued"
    check(gpu, gpu.look())


# -- stored bytes ---------------------------------------------------------------------------------------------------


def test_a_job_beyond_the_stored_bytes_is_refused_and_says_what_frees_them(bench: Bench) -> None:
    job = new_job("j", 4, "any.normal", tenant="a", small=True, spec={"text": "x" * 400}, ttl_seconds=500)
    bench.store.tenants.put(Tenant(name="a", max_stored_bytes=1000))
    assert bench.store.jobs.submit([job]) == [("new", "j")]
    size = bench.store.tenants.read(["a"])[0][1].stored_bytes
    assert size == bench.look().size("j") > 400
    grant: Any = bench.store.leases.lease("j", "t", want=4, worker="w")
    result = b'"' + b"y" * 398 + b'"'
    finished = Finished(job_id="j", token=grant.token, result=result, ms=1)
    assert bench.store.leases.done1_all([finished], worker="w", device="cpu") == [True]
    assert bench.store.tenants.read(["a"])[0][1].stored_bytes == size + 400
    for hold in (False, True):
        another = new_job("k", 4, "any.normal", tenant="a", spec={"text": "x" * 400}, hold=hold)
        [over] = bench.store.jobs.submit([another])
        assert over == CapReached(cap="max_stored_bytes", value=1000, seconds=500, used=size + 400, awaits="expiry")
    assert bench.store.jobs.submit([job]) == [("same", "j")]
    bench.store.jobs.delete("j")
    assert bench.store.tenants.read(["a"])[0][1].stored_bytes == 0
    assert bench.store.jobs.submit([another]) == [("new", "k")]


def test_what_was_there_before_the_cap_is_counted_when_it_is_set(bench: Bench) -> None:
    jobs = [bench.submit(4, tenant="a", small=True) for _ in range(3)]
    bench.work()
    other = bench.submit(4)
    bench.store.tenants.put(Tenant(name="a", max_stored_bytes=10**6))
    check(bench, bench.look())
    assert set(bench.look().hash("ct:stored:a")) == set(jobs)
    bench.store.tenants.put(Tenant(name="a"))
    assert not [key for key in bench.look().keys if key.startswith("ct:stored")]
    bench.store.tenants.put(Tenant(name="default", max_stored_bytes=10**6))
    assert set(bench.look().hash("ct:stored:default")) == {other}


def test_a_recount_mends_what_an_earlier_version_left(bench: Bench) -> None:
    """Coordinators of an earlier version purge and finish jobs without counting."""
    bench.store.tenants.put(Tenant(name="a", max_stored_bytes=10**6))
    purged, kept = bench.submit(4, tenant="a"), bench.submit(4, tenant="a")
    bench.client.hset("ct:stored:a", "gone", 77)
    bench.client.hdel("ct:stored:a", kept)
    bench.client.hset("ct:stored", "a", 12345)
    assert bench.store.stored_bytes.recount() == ["a"]
    assert set(bench.look().hash("ct:stored:a")) == {purged, kept}
    check(bench, bench.look())


class Storage:
    """Random submits, finishes, deletions and expiries, with functions flushed and writes lost in between."""

    def __init__(self, bench: Bench, seed: int) -> None:
        self.bench, self.dice = bench, random.Random(seed)
        self.backup = bench.back_up()
        self.refused: list[CapReached] = []

    def step(self) -> None:
        actions = ("submit", "submit", "submit", "finish", "cancel", "delete", "expire", "flush", "lose", "save")
        getattr(self, f"_{self.dice.choice(actions)}")()

    def _text(self, most: int) -> str:
        return "x" * self.dice.randrange(most)

    def _submit(self) -> None:
        new = new_job(
            self.bench.new_id(),
            3,
            "any.normal",
            tenant=self.dice.choice("ab"),
            small=True,
            spec={"text": self._text(500)},
            ttl_seconds=60,
        )
        [answer] = self.bench.store.jobs.submit([new])
        self.refused += [answer] if isinstance(answer, CapReached) else []

    def _finish(self) -> None:
        taken = self.bench.store.slots.next("w", queues.ALL)
        for job, token in taken.jobs[: self.dice.randrange(4)] if isinstance(taken, Taken) else ():
            result = f'"{self._text(300)}"'.encode()
            finished = Finished(job_id=job, token=token, result=result, ms=1)
            self.bench.store.leases.done1_all([finished], worker="w", device="cpu")

    def _cancel(self) -> None:
        self._steer("cancel")

    def _delete(self) -> None:
        self._steer("delete")

    def _steer(self, call: str) -> None:
        for job in self.dice.sample(ids := list(self.bench.look().jobs), min(1, len(ids))):
            getattr(self.bench.store.jobs, call)(job)

    def _expire(self) -> None:
        self.bench.advance(self.dice.randrange(20_000))
        self.bench.sweep()

    def _flush(self) -> None:
        self.bench.client.function_flush()

    def _save(self) -> None:
        self.backup = self.bench.back_up()

    def _lose(self) -> None:
        self.bench.come_back(self.backup)


def test_the_sum_is_what_is_stored_whatever_happens(bench: Bench) -> None:
    bench.store.tenants.put(Tenant(name="a", max_stored_bytes=10**6))
    bench.store.tenants.put(Tenant(name="b", max_stored_bytes=3000))
    storage = Storage(bench, seed=14)
    for _ in range(300):
        storage.step()
        seen = bench.look()
        for name in "ab":
            sizes_agree(seen, name, [view for view in seen.jobs.values() if view.tenant == name])
    assert storage.refused and {over.cap for over in storage.refused} == {"max_stored_bytes"}


BROKEN = ("shares", "deferred", "deferred:a:sum", "stored", "stored:a", "usage:a", "capped")


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_key_of_caps_holds_up_nobody(bench: Bench, name: str) -> None:
    bench.store.tenants.put(Tenant(name="a", max_units={"sum": 5}, max_gpu_seconds=1, max_stored_bytes=10**6))
    bench.submit(5, tenant="a")
    bench.work()
    waits = bench.submit(5, tenant="a", small=True)
    assert bench.next("w") == "none" and set(bench.look().deferred()) == {waits}
    bench.client.set(f"ct:{name}", "x", keepttl=False)
    later = []
    for tenant in ("a", "default"):
        bench.store.repairs.reindex()
        later.append(bench.submit(2, tenant=tenant))
    for _ in range(4):
        bench.store.fleet.lead("me")
        bench.sweep()
        bench.work()
        bench.advance(DAY_MS)
    states = bench.store.job_reads.states([waits, *later])
    assert all(state in ("done", None) for state in states), (name, states)
    bench.store.stored_bytes.recount()
    seen = bench.look()
    if name != "shares":
        sizes_agree(seen, "a", [view for view in seen.jobs.values() if view.tenant == "a"])


# -- what it costs --------------------------------------------------------------------------------------------------


def test_a_tenant_without_such_caps_costs_no_further_command_of_a_lease(bench: Bench) -> None:
    """Commands that LEASE, HEARTBEAT and COMMIT send, counted by Redis, with and without daily caps."""

    def commands(tenant: Tenant) -> int:
        bench.store.tenants.put(tenant)
        job = bench.submit(100, tenant="a")
        bench.client.config_resetstat()
        token = bench.grant(job, 1).token
        bench.beat(token)
        bench.commit(token)
        stats = bench.client.info("commandstats")
        return sum(one["calls"] for one in stats.values()) - stats["cmdstat_fcall"]["calls"]

    commands(Tenant(name="a"))
    free = commands(Tenant(name="a"))
    assert commands(Tenant(name="a", max_units={"sum": 10**9})) == free + 1, "one read of the day's use"


# -- the API --------------------------------------------------------------------------------------------------------


async def _talk(redis_url: str, calls: list[tuple[str, str, Any]]) -> list[httpx.Response]:
    """Return the responses of a coordinator application without a server to (method, path, body)."""
    transport = httpx.ASGITransport(app.create(Settings(redis_url=redis_url, cluster_token="t")))
    headers = {"Authorization": "Bearer t"}
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as client:
        return [await client.request(method, path, json=body) for method, path, body in calls]


def test_caps_are_set_and_shown_over_http_and_a_full_tenant_gets_a_429(any_redis_url: str) -> None:
    bench = Bench(any_redis_url)
    caps = {"max_units": {"collatz": 10**9}, "max_gpu_seconds": 3600, "max_stored_bytes": 200}
    job = {"type": "collatz", "parameters": {"start_number": 27, "number_count": 1}}
    unknown, put, first, over, got, log = asyncio.run(
        _talk(
            any_redis_url,
            [
                ("PUT", "/api/tenants/default", {"max_units": {"nonsense": 1}}),
                ("PUT", "/api/tenants/default", caps),
                ("POST", "/api/submit", job),
                ("POST", "/api/submit", {**job, "hold": True}),
                ("GET", "/api/tenants/default", None),
                ("GET", "/api/audit", None),
            ],
        )
    )
    assert (
        unknown.status_code == 422 and unknown.json()["field"] == "max_units" and "collatz" in unknown.json()["detail"]
    )
    none_used = {"units_today": {"collatz": 0}, "gpu_seconds_today": 0.0, "stored_bytes": 0}
    assert put.status_code == 200 and put.json() == {**put.json(), **caps, **none_used}
    assert first.status_code == 202, first.text
    stored = got.json()["stored_bytes"]
    assert 100 < stored <= 200
    assert over.status_code == 429 and over.json()["field"] == "max_stored_bytes"
    assert f"{stored} of 200 bytes are in use" in over.json()["detail"] and int(over.headers["Retry-After"]) == 3600
    assert json.loads(log.json()["lines"][0])["outcome"] == (
        "weight 1, max_lanes 0, max_jobs 0, max_units collatz 1000000000, max_gpu_seconds 3600, max_stored_bytes 200"
    )
    bench.client.close()
