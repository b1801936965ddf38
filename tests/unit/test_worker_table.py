"""Tests that workers are read again only when they have changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from coordinator.jobs.caches import worker_table
from coordinator.queries import Queries
from jobs.settings import Settings
from jobs.store import Store, keys
from jobs.store.fleet_reads import FleetReads
from jobs.store.server import connection


class Cluster:
    """Queries on a Redis, and the workers whose hashes they read."""

    def __init__(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = Store(connection.connect(url))
        self.queries = Queries(self.store, Settings(redis_url=url))
        self.read: list[str] = []
        monkeypatch.setattr(FleetReads, "workers", self._noting(FleetReads.workers))

    def _noting(self, workers: Callable[[FleetReads, list[bytes]], Any]) -> Callable[[FleetReads, list[bytes]], Any]:
        def noting(reads: FleetReads, names: list[bytes]) -> Any:
            self.read += sorted(name.decode() for name in names)
            return workers(reads, names)

        return noting

    def beat(self, worker: str, **facts: object) -> None:
        given = {"device": "cpu", "state": "idle", "lanes": "2"} | {name: str(value) for name, value in facts.items()}
        self.store.fleet.heartbeat(worker, "0000000000001-a", given)
        self.settle()

    def settle(self) -> None:
        """Return in a later millisecond of Redis' clock, when the data of the last millisecond is final."""
        began = self.store.client.time()
        while self.store.client.time()[1] // 1000 == began[1] // 1000:
            pass

    def states(self) -> dict[str, str]:
        return {row["id"]: row["state"] for row in self.queries.fleet.workers()}

    def reads(self) -> list[str]:
        """Return the workers that a status reads."""
        self.read.clear()
        self.queries.fleet.status()
        return self.read


@pytest.fixture
def cluster(any_redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    made = Cluster(any_redis_url, monkeypatch)
    yield made
    made.store.client.close()


def test_a_worker_is_read_again_after_its_heartbeat_alone(cluster: Cluster) -> None:
    for worker in "abc":
        cluster.beat(worker)
    assert cluster.reads() == ["a", "b", "c"]
    assert cluster.reads() == []
    cluster.beat("b", state="busy")
    assert cluster.states() == {"a": "idle", "b": "busy", "c": "idle"} and cluster.read == ["b"]
    cluster.queries.fleet_cache.get()
    assert cluster.read == ["b"], "decisions use the same copy"


def test_a_heartbeat_in_the_millisecond_of_a_reading_is_seen(cluster: Cluster) -> None:
    for state in ("idle", "busy") * 20:
        cluster.store.fleet.heartbeat("a", "0000000000001-a", {"device": "cpu", "state": state})
        assert cluster.states() == {"a": state}


def test_a_drain_is_seen_at_once(cluster: Cluster) -> None:
    cluster.beat("a")
    for on in (True, False):
        assert cluster.reads() in (["a"], [])
        cluster.store.fleet.drain("a", on)
        [row] = cluster.queries.fleet.workers()
        assert row["draining"] is on


def test_time_passes_for_a_worker_that_is_not_read_again(cluster: Cluster) -> None:
    cluster.beat("a", busy_lanes=2, job="j")
    cluster.beat("b")
    assert cluster.states() == {"a": "idle", "b": "idle"}
    client = cluster.store.client
    client.zadd(keys.WORKERS, {"a": client.zscore(keys.WORKERS, "a") - 60_000})
    [row, _] = cluster.queries.fleet.workers()
    assert (row["live"], row["state"], row["busy_lanes"], row["job"]) == (False, "lost", 0, "j")
    client.zrem(keys.NODES, "b")
    assert set(cluster.states()) == {"a"}


def test_what_changes_without_a_heartbeat_is_seen_after_a_while(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.beat("a")
    assert cluster.states() == {"a": "idle"}
    cluster.store.client.hset(keys.worker("a"), "state", "odd")
    monkeypatch.setattr(worker_table, "KEPT_MS", 0)
    assert cluster.states() == {"a": "odd"}
    cluster.store.client.delete(keys.worker("a"))
    assert cluster.states() == {}


def test_the_status_lists_the_kernels_that_live_workers_are_compiling(cluster: Cluster) -> None:
    cluster.beat("a", compiling="thread")
    cluster.beat("b", compiling="collatz,thread")
    assert cluster.queries.fleet.status().get("compiling") == ["collatz", "thread"]
    for worker in "ab":
        cluster.beat(worker, compiling="")
    assert "compiling" not in cluster.queries.fleet.status()
