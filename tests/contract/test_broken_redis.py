"""Tests random corruption of data in Redis: intact jobs finish, and every list is returned."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import httpx
import pytest
import redis

from coordinator import app
from jobs import queues
from jobs.settings import Settings
from jobs.store import Store, keys
from jobs.store.server import connection, functions
from jobs.store.tenancy import tokens
from jobs.store.unreadable_entries import SKIPS
from jobs.store.work import lease_tokens, leases, wakeups
from jobs.store.work.leases import Grant
from jobs.store.work.slots import Held, Taken
from tests.contract.lease_model import CLOCK, encode, new_job, total_of

#: Texts that are not numbers, JSON or ranges, or exceed the limits.
NONSENSE = [
    b"",
    b"x",
    b"\xff\xfe\x00",
    b"-1",
    b"nan",
    b"inf",
    b"1e400",
    b"18446744073709551616",
    b"{",
    b"[" * 2000,
    b"NaN",
    b"null",
    b"[1,2]",
    b'{"id": 1}',
    b"0:0",
    b"9:1:0:0",
    b"a|b|c|d",
    b"use|x",
    b"0.5",
    b"9" * 5000,
]
#: Keys that can exist in addition to the present ones.
NAMES = [
    *(
        f"ct:{name}"
        for name in (
            "recheck",
            "jobs",
            "expiry",
            "slots",
            "slotjob",
            "workers",
            "workers:cpu",
            "workers:gpu",
            "nodes",
            "events",
            "load",
            "seq",
            "sweep:running",
            "sweep:gpu.normal",
            "leader",
            "span",
            "spans",
            "history",
            "history:now",
            "alerts",
            "pace",
            "units",
            "outcomes",
            "ended",
            "waits",
            "durations",
            "broken",
            "damaged",
            "worker:w",
            "worker:x",
            "mark:collatz:verified",
            "idem:anyone:k",
        )
    ),
    *(f"ct:in:{state}" for state in ("queued", "running", "finishing", "done", "failed", "cancelled", "paused")),
    *(f"ct:pending:{queue}" for queue in queues.ALL),
    *(f"rq:queue:{queue}" for queue in queues.ALL),
    "rq:queues",
    "rq:workers",
]
LISTINGS = [
    "/api/jobs",
    "/api/jobs?state=running",
    "/api/jobs?state=failed",
    "/api/snapshot",
    "/api/status",
    "/api/workers",
    "/api/history",
    "/api/stream",
    "/api/job-types",
    "/ready",
]


class Vandal:
    """Corrupts one key at a time; `bad` contains the jobs whose keys it may corrupt."""

    def __init__(self, client: redis.Redis, seed: int, bad: list[str]) -> None:
        self.client, self.random, self.bad = client, random.Random(seed), bad

    def spoil(self) -> None:
        parts = ["", "lease", "leases", "free", "dead", "retry", "parts", "acc", "ev", "result"]
        name, part = keys.job(self.random.choice(self.bad)), self.random.choice(parts)
        job = f"{name}:{part}" if part else name
        key = self.random.choice([job, self.random.choice(NAMES), self.random.choice(NAMES)])
        if self.random.random() < 0.4:
            self.replace(key)
        else:
            self.meddle(key)

    def replace(self, key: str) -> None:
        """Replace a key by one of another type, or delete it."""
        one, other = self.random.choices(NONSENSE, k=2)
        self.client.delete(key)
        make: list[Any] = [
            lambda: self.client.set(key, one),
            lambda: self.client.rpush(key, one, other),
            lambda: self.client.sadd(key, one, other),
            lambda: self.client.hset(key, one, other),
            lambda: self.client.zadd(key, {one: 1.5}),
            lambda: self.client.xadd(key, {one: other}),
        ]
        self.random.choice(make)()

    def meddle(self, key: str) -> None:
        """Change the contents of a key without changing its type."""
        one, other = self.random.choices(NONSENSE, k=2)
        found = self.client.type(key)
        if found == b"hash":
            fields = [*sorted(self.client.hkeys(key)), one]
            self.client.hset(key, self.random.choice(fields), other)
        elif found == b"list":
            self.random.choice([self.client.rpush, self.client.lpush])(key, one)
        elif found == b"zset":
            self.client.zadd(key, {one: self.random.choice([0, 1e18, float("inf"), -5])})
        elif found == b"set":
            self.client.sadd(key, one)
        elif found == b"stream":
            self.client.xadd(key, {self.random.choice([b"job", b"type", b"done", one]): other})
        else:
            self.client.set(key, one)


class Lane:
    """A worker with one lane that computes intact jobs exactly."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def turn(self) -> None:
        for _ in range(40):
            found = self.store.slots.next("w", queues.ALL)
            if isinstance(found, Taken):
                rows = zip(found.facts, found.jobs, strict=True)
                done = [
                    leases.Finished(job_id=job, token=token, result=encode(total_of(0, facts.total)), ms=1)
                    for facts, (job, token) in rows
                ]
                self.store.leases.done1_all(done, worker="w", device="cpu")
            elif isinstance(found, Held):
                self.serve(found.job_id)
            else:
                return

    def serve(self, job: str) -> None:
        if self.store.slots.facts([job], "cpu") == [None]:
            return
        for _ in range(20):
            answer = self.store.leases.lease(job, token := lease_tokens.new(), want=4, worker="w")
            if isinstance(answer, Grant):
                part = encode(total_of(answer.lo, answer.hi))
                self.store.leases.commit(job, token, answer.hi, part, ms=1, worker="w", device="cpu", pace=1.0)
            elif answer == "finishing":
                self.finish(job)
            else:
                return

    def finish(self, job: str) -> None:
        if (gathered := self.store.results.gather(job)).parts:
            self.store.results.fold(job, gathered, b"1")
        gathered = self.store.results.gather(job)
        if gathered.accumulator:
            self.store.results.finish(job, gathered, gathered.accumulator)


def _submit(store: Store, name: str, small: bool) -> str:
    """Submit a job. Rebuild the indexes first if the job is rejected because of a broken index."""
    try:
        answers: Any = store.jobs.submit([new_job(name, 8, "any.normal", small=small, estimate_ms=1)])
    except connection.Refused:
        store.repairs.reindex()
        return _submit(store, name, small)
    [(_, job)] = answers
    return str(job)


async def _listings(client: httpx.AsyncClient, jobs: list[str]) -> None:
    for path in LISTINGS:
        answer = await client.get(path)
        assert answer.status_code == 200, (path, answer.text)
        answer.json()
    for job in jobs:
        answer = await client.get(f"/api/jobs/{job}")
        assert answer.status_code in (200, 404, 409), answer.text
    answer = await client.post("/api/results", json={"job_ids": jobs})
    assert answer.status_code == 200, answer.text


@pytest.mark.timeout(240)
def test_two_thousand_corruptions_hold_up_nobody(any_redis_url: str) -> None:
    client = connection.connect(any_redis_url)
    wakeups.create_wakeup_job(Store(client))
    client.set("test:clock", round(time.time() * 1000))
    store, rounds, each = Store(client, clock=CLOCK), 100, 20
    made = app.create(Settings(redis_url=any_redis_url, metrics_port=0))
    cluster = made.state.coordinator.cluster
    vandal, lane = Vandal(client, 20261122, []), Lane(store)
    skips = SKIPS.counts.total()

    async def play() -> None:
        transport = httpx.ASGITransport(made)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:3000") as web:
            for number in range(rounds):
                good = [_submit(store, f"g{number}-{n}", n == 0) for n in range(3)]
                vandal.bad = [_submit(store, f"b{number}-{n}", n == 0) for n in range(2)]
                for _ in range(each):
                    vandal.spoil()
                await asyncio.to_thread(settle, good)
                cluster.queries.fleet_cache.forget()
                await _listings(web, [*vandal.bad, good[0]])

    def settle(good: list[str]) -> None:
        for _ in range(20):
            store.fleet.lead("me")
            store.fleet.sweep()
            store.repairs.reindex()
            lane.turn()
            client.incrby("test:clock", functions.LEASE_TTL_MS)
            if all(client.hget(keys.job(job), "state") == b"done" for job in good):
                return
        raise AssertionError([(job, client.hgetall(keys.job(job))) for job in good])

    asyncio.run(play())
    assert client.scard("ct:broken") > 0 and SKIPS.counts.total() > skips
    client.close()


@pytest.mark.parametrize("family", [keys.schedule, keys.service])
def test_one_record_of_another_type_hides_no_other(family: keys.Family, any_redis_url: str) -> None:
    client = connection.connect(any_redis_url)
    names = keys.schedules_of if family is keys.schedule else keys.services_of
    client.hset(names("default"), mapping={"bad": "b", "good": "g"})
    client.set(family("b"), "x")
    client.hset(family("g"), mapping={"tenant": "default", "name": "good", "engine": "http"})
    store = Store(client)
    found = store.schedules.of_tenant("default") if family is keys.schedule else store.services.of_tenant("default")
    assert [one.name for one in found] == ["good"]
    with pytest.raises(connection.ResponseError, match=f"HGETALL {family('b')}"):
        store.functions.read(("HGETALL", family("b")))
    client.close()


def test_a_text_in_place_of_a_number_hides_no_other_record(any_redis_url: str) -> None:
    client = connection.connect(any_redis_url)
    store = Store(client)
    records: dict[Any, Any] = {
        keys.schedule: (keys.schedules_of, "every", store.schedules.of_tenant, store.schedules.one),
        keys.service: (keys.services_of, "replicas", store.services.of_tenant, store.services.one),
        keys.profile: (keys.profiles_of, "hz", store.profiles.of_tenant, store.profiles.one),
    }
    for family, (names, number, of_tenant, one) in records.items():
        client.hset(names("default"), mapping={"bad": "b", "good": "g"})
        for record_id, name, text in (("b", "bad", "many"), ("g", "good", "7")):
            client.hset(family(record_id), mapping={"tenant": "default", "name": name, number: text})
        assert [each.name for each in of_tenant("default")] == ["good"]
        assert one("default", "bad") is None and one("default", "good") is not None
    for delivery, text in (("b", "many"), ("g", "7")):
        client.zadd(keys.deliveries_of("default", "dead"), {delivery: 1})
        client.hset(keys.delivery(delivery), mapping={"tenant": "default", "attempts": text})
    assert [each.attempts for each in store.webhooks.listed("default", "dead", 9)] == [7]
    assert all(SKIPS.counts[sort] > 0 for sort in ("schedule", "service", "profile", "webhook"))
    client.close()


def test_indexes_of_another_type_count_as_empty(any_redis_url: str) -> None:
    client = connection.connect(any_redis_url)
    store = Store(client)
    client.lpush(keys.TOKENS_VERSION, "x")
    assert store.tokens.state()[0] == b""
    store.tokens.create(tokens.mint(), name="a", scopes=("read",))
    assert store.tokens.state()[0] != b"", "a change of the tokens replaces the key"
    client.set(keys.service_replicas("a"), "x")
    client.hset(keys.service_replicas("b"), mapping={"1": "1|5|0", "2": "nonsense"})
    client.set(keys.replica("v-b-1"), "x")
    client.hset(keys.replica_busy("v-b-1"), mapping={"c": "many", "d": "3"})
    found = store.services.replicas(["a", "b"])
    assert found["a"] == [] and [(each.number, each.report, each.busy) for each in found["b"]] == [(1, None, 3)]
    client.close()
