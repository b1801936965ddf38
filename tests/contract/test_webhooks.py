"""Tests webhook deliveries in Redis: written when a job ends, leased, fair, limited, and separate by tenant."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from jobs.store import keys
from jobs.store.tenancy.tenants import Tenant
from jobs.store.webhooks import Delivery, Limits
from jobs.store.work.jobs import CapReached
from tests.contract.lease_model import Bench, new_job

URL = "https://receiver.example/path?key=1"
LEASE_MS, ATTEMPTS = 30_000, 8
LIMITS = Limits(lease_ms=LEASE_MS, attempts=ATTEMPTS, per_place=4, per_host=8, per_tenant=16)


def now(bench: Bench) -> int:
    return int(bench.client.get("test:clock"))


def take(bench: Bench, want: int = 64, limits: Limits = LIMITS, **busy: int) -> list[Delivery]:
    return bench.store.webhooks.take(want, limits, busy)[1]


def pending(bench: Bench, tenant: str = "default") -> int:
    return bench.store.webhooks.counts(tenant)["pending"]


def cancelled(bench: Bench, url: str = URL, **more: Any) -> str:
    """Return a finished job with a delivery."""
    job = bench.submit(notify=url, **more)
    bench.store.jobs.cancel(job)
    return job


def fill(bench: Bench, count: int, url: Callable[[int], str], tenant: str = "default") -> None:
    """Write deliveries like the functions do, without jobs."""
    pipe = bench.client.pipeline(transaction=False)
    for number in range(count):
        name, where = f"msg_{tenant}{number}", url(number)
        place = f"{tenant}|{'/'.join(where.split('/')[:3])}"
        pipe.hset(
            keys.delivery(name),
            mapping={
                "tenant": tenant,
                "url": where,
                "created": now(bench),
                "attempts": 0,
                "state": "pending",
                "type": "job.done",
                "job": f"j{number}",
                "kind": "sum",
            },
        )
        pipe.zadd(keys.deliveries_of(tenant, "pending"), {name: now(bench)})
        pipe.zadd(keys.outbox(place), {name: now(bench)})
        pipe.zadd(keys.DELIVERIES, {place: now(bench)})
    pipe.execute()


def test_each_end_of_a_job_is_one_delivery_and_a_job_without_a_webhook_has_none(bench: Bench) -> None:
    done, quiet = bench.submit(2, notify=URL), bench.submit(2)
    assert pending(bench) == 0
    bench.work()
    failed = cancelled(bench)
    assert bench.job(done).state == bench.job(quiet).state == "done"
    found = sorted((one.job, one.type, one.url, one.tenant) for one in take(bench))
    assert found == sorted([(done, "job.done", URL, "default"), (failed, "job.cancelled", URL, "default")])
    bench.store.jobs.retry(failed, 1)
    assert pending(bench) == 2
    bench.store.jobs.cancel(failed)
    assert pending(bench) == 3


def test_a_job_that_is_skipped_is_told_too_when_it_waited_and_at_once(bench: Bench) -> None:
    parent = bench.submit()
    waiting = bench.submit(after=(parent,), notify=URL)
    bench.store.jobs.cancel(parent)
    bench.wake()
    late = bench.submit(after=(parent,), notify=URL)
    assert {bench.job(job).state for job in (waiting, late)} == {"skipped"}
    assert {(one.job, one.type) for one in take(bench)} == {(waiting, "job.skipped"), (late, "job.skipped")}


def test_a_failure_is_told_with_its_error(bench: Bench) -> None:
    bench.submit(1, notify=URL)
    job = next(iter(bench.look().jobs))
    while bench.job(job).state != "failed":
        bench.hold("w")
        bench.fail(bench.grant(job).token, "the kernel raised: \N{SNOWMAN}")
        bench.advance(61_000)
        bench.sweep()
    [told] = take(bench)
    assert (told.type, told.error) == (
        "job.failed",
        bench.job(told.job).fields["error"],
    ) and "\N{SNOWMAN}" in told.error


def test_a_delivery_of_a_sender_that_died_is_taken_by_another_and_buried_after_its_attempts(bench: Bench) -> None:
    cancelled(bench)
    for number in range(1, ATTEMPTS + 1):
        [taken] = take(bench)
        assert taken.attempts == number and take(bench) == []
        bench.advance(LEASE_MS - 1)
        assert take(bench) == []
        bench.advance(1)
    assert take(bench) == []
    [dead] = bench.store.webhooks.listed("default", "dead", 10)
    assert (dead.attempts, dead.state) == (ATTEMPTS, "dead") and "died" in dead.said


def test_what_a_late_sender_says_counts_only_when_it_delivered(bench: Bench) -> None:
    cancelled(bench)
    [late] = take(bench)
    bench.advance(LEASE_MS)
    [now] = take(bench)
    end = bench.store.webhooks.end
    assert end(late, "dead", 0, "late") == "stale" and end(late, "again", 1, "late") == "stale"
    assert end(now, "again", 5000, "the receiver responded with HTTP status 500") == "again"
    assert take(bench) == []
    assert end(late, "delivered", 0, "200") == "ended"
    assert end(now, "dead", 0, "") == "missing"
    bench.advance(5000)
    assert take(bench) == []
    assert bench.store.webhooks.counts("default") == {"pending": 0, "delivered": 1, "dead": 0}


def test_one_slow_receiver_holds_up_no_other_of_any_tenant(bench: Bench) -> None:
    for tenant in ("a", "b"):
        bench.store.tenants.put(Tenant(name=tenant))
    fill(bench, 3000, lambda number: "https://slow.example/x", "a")
    fill(bench, 500, lambda number: f"https://slow{number}.example/x", "b")
    bench.advance(10)
    cancelled(bench, "https://other.example/", tenant="a")
    cancelled(bench, "https://other.example/")
    busy: dict[str, int] = {}
    seen: list[Delivery] = []
    for _ in range(12):
        for one in bench.store.webhooks.take(64 - len(seen), LIMITS, busy)[1]:
            seen.append(one)
            busy[one.place] = busy.get(one.place, 0) + 1
            busy[one.tenant] = busy.get(one.tenant, 0) + 1
        bench.advance(1)
    slow = [one for one in seen if one.url == "https://slow.example/x"]
    assert len(slow) == LIMITS.per_place
    assert len([one for one in seen if one.tenant == "b"]) == LIMITS.per_tenant
    assert {one.tenant for one in seen if one.url == "https://other.example/"} == {"a", "default"}


def test_a_flood_is_taken_once_each_and_no_call_is_long(bench: Bench) -> None:
    fill(bench, 10_000, lambda number: f"https://host{number % 500}.example/{number}")
    wide = Limits(lease_ms=LEASE_MS, attempts=ATTEMPTS, per_place=4, per_host=8, per_tenant=64)
    seen: set[str] = set()
    longest = 0.0
    while True:
        began = time.perf_counter()
        taken = take(bench, 64, wide)
        longest = max(longest, time.perf_counter() - began)
        if not taken:
            break
        assert not seen & {one.delivery_id for one in taken}
        seen |= {one.delivery_id for one in taken}
        for one in taken[::2]:
            bench.store.webhooks.end(one, "delivered", 0, "")
    assert len(seen) == 10_000
    assert bench.store.webhooks.counts("default") == {"pending": 5000, "delivered": 1000, "dead": 0}
    assert bench.client.hget(keys.WEBHOOKS, "delivered") == b"5000"
    # Of those that were pushed out of the list nothing is left.
    assert sum(1 for _ in bench.client.scan_iter(f"{keys.delivery('*')}", count=5000)) == 6000


def test_too_many_undelivered_refuse_further_webhooks_and_in_the_end_drop_them(bench: Bench) -> None:
    early = bench.submit(notify=URL)
    pipe = bench.client.pipeline(transaction=False)
    pipe.zadd(keys.deliveries_of("default", "pending"), {f"msg_{number}": 1 for number in range(10_000)})
    pipe.execute()
    [refused] = bench.store.jobs.submit([new_job(bench.new_id(), 1, "any.normal", notify=URL)])
    assert isinstance(refused, CapReached) and (refused.cap, refused.value) == ("notify", 10_000)
    assert bench.submit()
    bench.client.zadd(keys.deliveries_of("default", "pending"), {f"msg_{number}": 1 for number in range(100_000)})
    bench.store.jobs.cancel(early)
    assert bench.job(early).state == "cancelled"
    assert bench.client.hget(keys.WEBHOOKS, "dropped") == b"1" and pending(bench) == 100_000


def test_a_clock_that_steps_back_holds_up_no_delivery(bench: Bench) -> None:
    cancelled(bench)
    [taken] = take(bench)
    bench.store.webhooks.end(taken, "again", 5000, "500")
    bench.advance(-90_000_000)
    cancelled(bench, "https://other.example/")
    assert {one.url for one in take(bench)} == {"https://other.example/", URL}


def test_a_tenants_deliveries_are_its_own_and_end_with_it(bench: Bench) -> None:
    webhooks = bench.store.webhooks
    for tenant in ("a", "b"):
        bench.store.tenants.put(Tenant(name=tenant))
    cancelled(bench, tenant="a")
    cancelled(bench, "https://second.example/", tenant="a")
    first, second = take(bench)
    webhooks.end(first, "dead", 0, "the receiver responded with HTTP status 410")
    assert webhooks.retry("b", first.delivery_id) == "missing" and webhooks.one("b", first.delivery_id) is None
    assert webhooks.retry("a", first.delivery_id) == "ok"
    [again] = take(bench)
    assert (again.delivery_id, again.attempts) == (first.delivery_id, 1)
    webhooks.end(again, "dead", 0, "the receiver responded with HTTP status 410")
    webhooks.end(second, "again", 0, "the receiver responded with HTTP status 500")
    for job in [*bench.look().jobs]:
        bench.store.jobs.delete(job)
    assert bench.store.tenants.remove("a") == "ok"
    bench.store.tenants.put(Tenant(name="a"))
    assert webhooks.listed("a", "dead", 10) == [] and webhooks.retry("a", first.delivery_id) == "missing"
    bench.advance(1)
    assert take(bench) == [] and not bench.client.exists(keys.delivery(second.delivery_id))


def test_a_full_redis_delivers_what_ended(bench: Bench) -> None:
    job = bench.submit(1, notify=URL)
    bench.client.config_set("maxmemory", 1)
    try:
        bench.store.jobs.cancel(job)
        [taken] = take(bench)
        assert bench.store.webhooks.end(taken, "delivered", 0, "200") == "ended"
    finally:
        bench.client.config_set("maxmemory", 0)
