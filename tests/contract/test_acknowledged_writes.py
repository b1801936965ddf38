"""Tests REDIS_REPLICAS_TO_WAIT: a change is acknowledged when replicas have it, and otherwise may be lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import redis

from coordinator import app
from coordinator.access.principal import OWNER
from coordinator.cluster import Cluster
from coordinator.events.hub import Hub
from jobs.settings import Settings
from jobs.store import Store
from jobs.store.server import acknowledgement, connection
from jobs.store.work import wakeups
from tests.conftest import start_redis
from tests.integration.live import until
from tests.redis_servers import any_server

BODY: dict[str, Any] = {"type": "collatz", "parameters": {"start_number": 1, "number_count": 3}}
#: Maximum wait in seconds for a connected replica, because the machine can be busy.
PATIENCE_MS = 60_000


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[redis.Redis, redis.Redis]]:
    """Start a master and its replica."""
    binary = any_server()
    assert binary
    started = [start_redis(binary, tmp_path_factory.mktemp(name)) for name in ("master", "replica")]
    master, replica = (redis.Redis.from_url(url) for _, url in started)
    master.config_set("repl-diskless-sync-delay", 0)
    replica.replicaof("127.0.0.1", started[0][1].rpartition(":")[2].partition("/")[0])
    follows(replica)
    yield master, replica
    for process, _ in started:
        process.kill()
        process.wait()
    master.close()
    replica.close()


@pytest.fixture
def submitting(pair: tuple[redis.Redis, redis.Redis], monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Return a coordinator's cluster that waits for one replica, which lags for a requested time."""
    master, _ = pair
    master.flushall()
    master.config_resetstat()
    assert master.wait(1, PATIENCE_MS) == 1
    monkeypatch.setattr(acknowledgement, "WAIT_MS", PATIENCE_MS)
    client = connection.connect(f"redis://127.0.0.1:{port_of(master)}/0", retries=0, timeout=2 * PATIENCE_MS / 1000)
    store = Store(client, replicas=1)
    wakeups.create_wakeup_job(store)
    yield Cluster(store, Hub(store.events), Settings(redis_replicas_to_wait=1))
    client.close()


def port_of(client: redis.Redis) -> int:
    return int(client.connection_pool.connection_kwargs["port"])


def commands(client: redis.Redis, name: str) -> int:
    return int(client.info("commandstats").get(f"cmdstat_{name}", {}).get("calls", 0))


def lose_the_replica(pair: tuple[redis.Redis, redis.Redis], monkeypatch: pytest.MonkeyPatch) -> None:
    """Disconnect the replica, and shorten the wait for it."""
    monkeypatch.setattr(acknowledgement, "WAIT_MS", 50)
    pair[1].replicaof("NO", "ONE")


def bring_it_back(pair: tuple[redis.Redis, redis.Redis]) -> None:
    pair[1].replicaof("127.0.0.1", str(port_of(pair[0])))
    follows(pair[1])


def follows(replica: redis.Redis) -> None:
    """Wait until the replica is connected to its master."""
    until(lambda: replica.info("replication")["master_link_status"] == "up")


def test_what_was_acknowledged_is_on_the_replica(submitting: Cluster, pair: tuple[redis.Redis, redis.Redis]) -> None:
    """A submission, a batch and a cancellation each use one pipeline with one WAIT."""
    master, replica = pair
    [first] = submitting.submit([BODY], OWNER)
    assert isinstance(first, dict)
    submitting.steer(first["job_id"], "cancel", OWNER)  # from now on Redis knows both functions
    before = commands(master, "wait")
    [answer] = submitting.submit([BODY], OWNER)
    assert isinstance(answer, dict) and replica.exists(f"ct:job:{answer['job_id']}")
    batch = submitting.submit([BODY] * 70, OWNER)
    assert all(isinstance(one, dict) and replica.exists(f"ct:job:{one['job_id']}") for one in batch)
    submitting.steer(answer["job_id"], "cancel", OWNER)
    assert replica.hget(f"ct:job:{answer['job_id']}", "state") == b"cancelled"
    assert commands(master, "wait") - before == 3


def test_a_lagging_replica_is_unknown_and_a_repeat_finds_the_one_job(
    submitting: Cluster, pair: tuple[redis.Redis, redis.Redis], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repeated call writes nothing, and its response describes the write of the earlier call."""
    body = {**BODY, "idempotency_key": "k"}
    lose_the_replica(pair, monkeypatch)
    for _ in range(2):
        with pytest.raises(connection.Unacknowledged, match=r"0 of 1 replicas .* same idempotency key"):
            submitting.submit([body], OWNER)
    bring_it_back(pair)
    monkeypatch.setattr(acknowledgement, "WAIT_MS", PATIENCE_MS)
    [answer] = submitting.submit([body], OWNER)
    assert isinstance(answer, dict)
    assert [pair[number].zcard("ct:jobs") for number in range(2)] == [1, 1]


def test_a_replica_that_became_the_master_is_given_the_functions(
    submitting: Cluster, pair: tuple[redis.Redis, redis.Redis]
) -> None:
    """If the master dies at once, the functions may not have reached the replica."""
    pair[0].function_flush()
    [answer] = submitting.submit([BODY], OWNER)
    pair[0].function_flush()
    assert isinstance(answer, dict)
    submitting.steer(answer["job_id"], "cancel", OWNER)
    assert pair[1].hget(f"ct:job:{answer['job_id']}", "state") == b"cancelled"


def test_a_result_waits_too_and_an_end_that_changed_nothing_asks_for_no_further_write(
    submitting: Cluster, pair: tuple[redis.Redis, redis.Redis], monkeypatch: pytest.MonkeyPatch
) -> None:
    results = submitting.store.results
    nothing = results.gather("none")
    lose_the_replica(pair, monkeypatch)
    with pytest.raises(connection.Unacknowledged):
        submitting.submit([BODY], OWNER)
    with pytest.raises(connection.Unacknowledged):
        results.finish("none", nothing, b"{}")
    bring_it_back(pair)
    before = commands(pair[0], "set")
    monkeypatch.setattr(acknowledgement, "WAIT_MS", PATIENCE_MS)
    assert results.finish("none", nothing, b"{}") is False
    assert commands(pair[0], "set") == before, "workers may not write the coordinators' key"


def test_a_master_without_replicas_is_left_for_the_one_that_the_sentinels_name(
    pair: tuple[redis.Redis, redis.Redis], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client could otherwise keep using a master that is isolated from everything else."""
    cut_off, named = ("127.0.0.1", port_of(pair[1])), ("127.0.0.1", port_of(pair[0]))
    answers = [cut_off, named]
    monkeypatch.setattr(
        connection.SentinelServers, "discover_master", lambda self, name: answers.pop(0) if answers[1:] else answers[0]
    )
    pair[1].replicaof("NO", "ONE")
    pair[1].config_set("min-replicas-to-write", 1)
    client = connection.connect("redis+sentinel://127.0.0.1:1/main", retries=0)
    try:
        with pytest.raises(connection.Refused, match="NOREPLICAS"):
            client.set("ct:durable", 1)
        assert client.set("ct:durable", 1)
        answers.insert(0, cut_off)
        client.connection_pool.disconnect()
        with pytest.raises(connection.Unreachable):
            client.pipeline(transaction=False).set("ct:durable", 1).set("ct:durable", 2).execute()
        assert client.pipeline(transaction=False).set("ct:durable", 1).set("ct:durable", 2).execute() == [True, True]
    finally:
        pair[1].config_set("min-replicas-to-write", 0)
        client.close()
        bring_it_back(pair)


class Sentinel:
    """A fake sentinel that always names the same server as the master."""

    def __init__(self, port: int) -> None:
        self._state = {
            "ip": "127.0.0.1",
            "port": port,
            "is_master": True,
            "is_sdown": False,
            "is_odown": False,
            "num-other-sentinels": 2,
        }

    def sentinel_masters(self) -> dict[str, Any]:
        return {"main": self._state}


@pytest.mark.parametrize("wrong", ["nobody answers there", "it lacks replicas", "it is a replica"])
def test_a_sentinel_that_names_a_wrong_master_is_asked_last(pair: tuple[redis.Redis, redis.Redis], wrong: str) -> None:
    if wrong == "it lacks replicas":
        pair[1].replicaof("NO", "ONE")
        pair[1].config_set("min-replicas-to-write", 1)
    client = connection.connect("redis+sentinel://127.0.0.1:1,127.0.0.1:2/main", retries=0)
    named = 1 if wrong == "nobody answers there" else port_of(pair[1])
    client.connection_pool.sentinel_manager.sentinels = [Sentinel(named), Sentinel(port_of(pair[0]))]
    try:
        with pytest.raises(connection.Unreachable):
            client.set("ct:durable", 1)
        assert client.set("ct:durable", 1)
    finally:
        pair[1].config_set("min-replicas-to-write", 0)
        client.close()
        bring_it_back(pair)


def test_nothing_waits_unless_it_is_asked_for(pair: tuple[redis.Redis, redis.Redis]) -> None:
    client = connection.connect(f"redis://127.0.0.1:{port_of(pair[0])}/0", retries=0)
    store = Store(client)
    before = commands(pair[0], "wait")
    [answer] = Cluster(store, Hub(store.events), Settings()).submit([BODY], OWNER)
    assert isinstance(answer, dict)
    Cluster(store, Hub(store.events), Settings()).steer(answer["job_id"], "cancel", OWNER)
    assert commands(pair[0], "wait") == before
    client.close()


def test_http_answers_503_and_says_to_repeat_it() -> None:
    application = app.create(Settings(metrics_port=0))

    @application.get("/api/unknown")
    def unknown() -> None:
        raise connection.Unacknowledged("written, but 0 of 1 replicas have it: send it again")

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.get("/api/unknown")

    transport = httpx.ASGITransport(app=application, raise_app_exceptions=False)
    answer = asyncio.run(ask())
    assert answer.status_code == 503 and answer.headers["Retry-After"] == "1"
    assert answer.json()["detail"] == "written, but 0 of 1 replicas have it: send it again"
