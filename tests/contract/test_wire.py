"""Tests Redis calls within an event loop: each gets its own reply, and impossible ones run in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from jobs.store import Store, keys
from jobs.store.server import connection, wire
from jobs.store.server.wire import NoReply, Wire
from jobs.store.work.jobs import CapReached
from tests.contract.lease_model import new_job
from threads_protocol.states import JobState

#: Seconds that exceed every operation in these tests.
LONG = 60.0


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with much to do is not silent, and a connection is made anew soon."""
    monkeypatch.setattr(wire, "SILENCE_SECONDS", LONG)
    monkeypatch.setattr(wire, "RETRY_SECONDS", 0.02)


@pytest.fixture
def store(redis_url: str) -> Iterator[Store]:
    client = connection.connect(redis_url, retries=1, timeout=10)
    yield Store(client)
    client.close()


def within(store: Store, what: Callable[[Wire], Awaitable[Any]]) -> Any:
    """Return the result of a coroutine function that gets an open wire."""

    async def go() -> Any:
        try:
            await ready(store.wire)
            return await asyncio.wait_for(what(store.wire), LONG)
        finally:
            await store.wire.close()

    return asyncio.run(go())


async def ready(wire: Wire) -> None:
    """Wait until calls are possible."""
    wire.open()
    async with asyncio.timeout(LONG):
        while True:
            if wire.ready:
                return
            await asyncio.sleep(0.01)


async def gone(store: Store, connection: int) -> None:
    """Wait until the server has closed the connection."""
    async with asyncio.timeout(LONG):
        while True:
            if str(connection) not in [one["id"] for one in await asyncio.to_thread(store.client.client_list)]:
                return
            await asyncio.sleep(0.01)


def test_each_of_many_calls_at_once_has_its_own_replies(store: Store) -> None:
    async def go(wire: Wire) -> None:
        asked = [wire.call(("ECHO", number), ("ECHO", "x" * number)) for number in range(200)]
        for number, replies in enumerate(await asyncio.gather(*asked)):
            assert replies == [str(number).encode(), b"x" * number]

    within(store, go)


def test_an_error_stands_in_the_place_of_its_reply(store: Store) -> None:
    async def go(wire: Wire) -> None:
        first, wrong, last = await wire.call(("ECHO", "a"), ("LPOP",), ("ECHO", "b"))
        assert (first, last) == (b"a", b"b") and isinstance(wrong, connection.ResponseError)

    within(store, go)


def test_more_calls_than_may_be_under_way_are_refused_at_once(store: Store) -> None:
    async def go(given: Wire) -> None:
        asked = [asyncio.ensure_future(given.call(("ECHO", number))) for number in range(wire.MOST + 5)]
        ended = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(one) for one in ended[wire.MOST :]] == [NoReply] * 5
        assert ended[: wire.MOST] == [[str(number).encode()] for number in range(wire.MOST)]

    within(store, go)


def test_a_caller_that_goes_takes_nobody_elses_reply(store: Store) -> None:
    async def go(wire: Wire) -> None:
        gone = asyncio.ensure_future(wire.call(("ECHO", "gone"), ("ECHO", "too")))
        await asyncio.sleep(0)
        gone.cancel()
        assert await wire.call(("ECHO", "here")) == [b"here"]

    within(store, go)


def test_a_connection_that_is_lost_fails_its_calls_and_is_made_anew(store: Store) -> None:
    async def go(wire: Wire) -> None:
        [own] = await wire.call(("CLIENT", "ID"))
        waits = asyncio.ensure_future(wire.call(("BLPOP", "nothing", 0)))
        await asyncio.sleep(0)
        await asyncio.to_thread(store.client.client_kill_filter, _id=str(own))
        with pytest.raises(NoReply):
            await waits
        with pytest.raises(NoReply):
            await wire.call(("ECHO", "a"))
        await ready(wire)
        [other] = await wire.call(("CLIENT", "ID"))
        assert other != own

    within(store, go)


def test_a_redis_that_is_silent_is_given_up(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    async def go(given: Wire) -> None:
        monkeypatch.setattr(wire, "SILENCE_SECONDS", 0.3)
        calls = [asyncio.ensure_future(given.call(("BRPOP", "nothing", 0))) for _ in range(3)]
        assert [type(one) for one in await asyncio.gather(*calls, return_exceptions=True)] == [NoReply] * 3
        monkeypatch.setattr(wire, "SILENCE_SECONDS", LONG)
        await ready(given)
        assert await given.call(("ECHO", "a")) == [b"a"]
        # Workers that other tests left behind block with BLPOP.
        for one in await asyncio.to_thread(store.client.client_list):
            if one["cmd"] == "brpop":
                await gone(store, int(one["id"]))

    within(store, go)


def test_a_connection_that_is_closed_is_closed_at_the_server(store: Store) -> None:
    async def go(wire: Wire) -> Any:
        [own] = await wire.call(("CLIENT", "ID"))
        return own

    own = within(store, go)
    asyncio.run(gone(store, own))


def test_a_call_that_lasts_long_but_is_followed_by_none_does_not_end_later_ones(store: Store) -> None:
    async def go(wire: Wire) -> None:
        for number in range(3):
            assert await wire.call(("ECHO", number)) == [str(number).encode()]
            await asyncio.sleep(0.01)
        assert wire.ready

    within(store, go)


def test_a_wire_that_nobody_opened_connects_to_nothing(store: Store) -> None:
    """An application without its lifespan, whose loop ends with each call."""

    async def go() -> None:
        before = len(store.client.client_list())
        for _ in range(3):
            assert not store.wire.ready
            await asyncio.sleep(0.02)
        assert len(store.client.client_list()) <= before

    asyncio.run(go())


def test_it_logs_in_and_chooses_the_database_of_the_address(store: Store, redis_url: str) -> None:
    store.client.acl_setuser("w", enabled=True, passwords=["+a secret"], categories=["+@all"], keys=["*"])
    address = redis_url.replace("redis://", "redis://w:a%20secret@").replace("/0", "/3")
    client = connection.connect(address, retries=0, timeout=10)

    async def go(wire: Wire) -> list[Any]:
        return await wire.call(("ACL", "WHOAMI"), ("CLIENT", "INFO"))

    try:
        user, info = within(Store(client), go)
    finally:
        client.close()
        store.client.acl_deluser("w")
    assert user == b"w" and b" db=3 " in info


def test_a_wrong_password_leaves_calls_to_the_ordinary_way(store: Store, redis_url: str) -> None:
    async def go() -> None:
        refused = Wire(connection.connect(redis_url.replace("redis://", "redis://w:wrong@"), retries=0, timeout=10))
        refused.open()
        for _ in range(3):
            assert not refused.ready
            await asyncio.sleep(0.05)
        await refused.close()

    asyncio.run(go())


@pytest.mark.parametrize("address", ["rediss://127.0.0.1:1/0", "unix:///nowhere/redis.sock"])
def test_tls_and_sockets_of_this_machine_are_left_to_the_ordinary_way(address: str) -> None:
    assert connection.server_of(connection.connect(address, retries=0, timeout=1)) is None


def test_nothing_is_connected_where_nothing_listens() -> None:
    async def go() -> None:
        away = Wire(connection.connect("redis://127.0.0.1:1/0", retries=0, timeout=1))
        away.open()
        for _ in range(3):
            assert not away.ready
            with pytest.raises(NoReply):
                await away.call(("PING",))
            await asyncio.sleep(0.05)
        await away.close()
        assert not away.ready

    asyncio.run(go())


# -- submitting and reading ------------------------------------------------------------------------------------------


def rows(store: Store, *jobs: str) -> list[dict[bytes, bytes]]:
    """What is stored of jobs, but for what is of each alone."""
    stored = [store.client.hgetall(keys.job(job)) for job in jobs]
    return [{name: value for name, value in row.items() if name not in (b"seq", b"created")} for row in stored]


def test_a_job_is_written_as_the_ordinary_way_writes_it_and_once(store: Store) -> None:
    store.jobs.submit([new_job("first", 10, "any.normal")])

    async def go(wire: Wire) -> list[Any]:
        return [
            await store.jobs.submit_by(wire, new_job(job, 10, "any.normal")) for job in ("second", "second", "first")
        ]

    assert within(store, go) == [("new", "second"), ("same", "second"), ("same", "first")]
    one, other = rows(store, "first", "second")
    assert one == other and one[b"state"] == b"queued"
    assert store.client.zcard(keys.in_state("queued")) == 2


def test_a_limit_refuses_it_all_the_same(store: Store) -> None:
    store.jobs.submit([new_job("first", 10, "any.normal")])
    refused = within(store, lambda wire: store.jobs.submit_by(wire, new_job("second", 10, "any.normal"), 1))
    assert isinstance(refused, CapReached) and refused.cap == "MAX_QUEUED"
    assert not store.client.exists(keys.job("second"))


def test_a_server_that_knows_no_functions_is_left_to_the_ordinary_way(store: Store) -> None:
    store.client.function_flush()
    job = new_job("one", 10, "any.normal")
    assert within(store, lambda wire: store.jobs.submit_by(wire, job)) is None
    assert store.jobs.submit([job]) == [("new", "one")]


def test_what_must_be_acknowledged_is_left_to_the_ordinary_way(store: Store, redis_url: str) -> None:
    careful = Store(store.client, replicas=1)
    assert within(careful, lambda wire: careful.jobs.submit_by(wire, new_job("one", 10, "any.normal"))) is None
    assert not store.client.exists(keys.job("one"))


def test_a_full_redis_refuses_and_keeps_its_connection(store: Store) -> None:
    store.jobs.submit([new_job("first", 10, "any.normal")])
    store.client.config_set("maxmemory", 1)

    async def go(wire: Wire) -> None:
        assert await store.jobs.submit_by(wire, new_job("second", 10, "any.normal")) is None
        assert wire.ready

    try:
        within(store, go)
    finally:
        store.client.config_set("maxmemory", 0)
    assert not store.client.exists(keys.job("second"))


def test_a_server_that_is_no_master_any_more_is_left(store: Store) -> None:
    store.jobs.submit([new_job("first", 10, "any.normal")])
    store.client.replicaof("127.0.0.1", "1")

    async def go(wire: Wire) -> None:
        assert await store.jobs.submit_by(wire, new_job("second", 10, "any.normal")) is None
        assert not wire.ready

    try:
        within(store, go)
    finally:
        store.client.replicaof("NO", "ONE")


def test_a_short_result_is_read_with_the_state_and_others_are_not(store: Store) -> None:
    store.jobs.submit([new_job(job, 10, "any.normal") for job in ("waits", "done", "long", "odd", "bare")])
    for job, state, result in (("done", "done", b"{}"), ("long", "done", b"x" * 101), ("bare", "done", b"")):
        store.client.hset(keys.job(job), "state", state)
        if result:
            store.client.set(keys.job_result(job), result)
    store.client.rpush(keys.job_result("odd"), "x")

    async def go(wire: Wire) -> list[Any]:
        jobs = ("waits", "done", "long", "odd", "bare", "none")
        return [await store.job_reads.short_result(wire, job, 100) for job in jobs]

    assert within(store, go) == [(JobState.QUEUED, b""), (JobState.DONE, b"{}"), None, None, None, None]


def test_a_result_is_read_in_a_thread_where_redis_cannot_be_asked_here() -> None:
    away = Store(connection.connect("redis://127.0.0.1:1/0", retries=0, timeout=1))

    async def go() -> Any:
        away.wire.open()
        read = await away.job_reads.short_result(away.wire, "one", 100)
        return read, await away.jobs.submit_by(away.wire, new_job("one", 10, "any.normal"))

    assert asyncio.run(go()) == (None, None)
