"""Tests that a replica has one copy of the fleet, which it reads again after FLEET_SECONDS."""

from __future__ import annotations

import json
from typing import Any

import pytest

from coordinator.jobs import scheduler
from coordinator.jobs.caches import fleet_cache
from coordinator.jobs.caches.fleet_cache import FLEET_SECONDS
from coordinator.queries import Queries
from jobs.models import Device
from jobs.settings import Settings
from jobs.store import Store
from jobs.store.server import connection
from jobs.store.tenancy.tenants import Tenant


class Reading:
    """A stopped clock, and a fleet whose lanes count the reads."""

    def __init__(self) -> None:
        self.now, self.reads, self.takes = 1000.0, 0, 0.0

    def monotonic(self) -> float:
        return self.now

    def read(self, _store: object, _table: object) -> scheduler.Fleet:
        self.reads += 1
        self.now += self.takes
        return scheduler.Fleet(lanes={Device.CPU: self.reads})


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Reading:
    found = Reading()
    monkeypatch.setattr("coordinator.jobs.caches.fleet_cache.time.monotonic", found.monotonic)
    monkeypatch.setattr(fleet_cache, "read_fleet", found.read)
    return found


def test_all_who_decide_see_a_fleet_at_most_a_quarter_of_a_second_old(reading: Reading, lonely: Queries) -> None:
    assert FLEET_SECONDS == 0.25
    assert lonely.jobs.fleet is lonely.fleet_cache
    for elapsed, reads in ((0.0, 1), (0.2, 1), (0.04, 1), (0.02, 2), (0.24, 2), (10.0, 3)):
        reading.now += elapsed
        assert lonely.fleet_cache.get().lanes == {Device.CPU: reads}


def test_its_age_counts_from_before_it_was_read(reading: Reading, lonely: Queries) -> None:
    reading.takes = 0.2
    lonely.fleet_cache.get()
    reading.now += 0.1
    assert lonely.fleet_cache.get().lanes == {Device.CPU: 2}


def test_live_workers_that_are_drained_are_counted_apart(any_redis_url: str) -> None:
    store = Store(connection.connect(any_redis_url))
    for name in ("works", "rests"):
        facts: dict[str, Any] = {"device": "cpu", "lanes": 2, "state": "idle", "kinds": "{}"}
        store.fleet.heartbeat(name, store.fleet.birth(), facts)
    store.fleet.drain("rests")
    fleet = Queries(store, Settings()).fleet_cache.get()
    assert (fleet.workers, fleet.drained, fleet.lanes) == ({Device.CPU: 1}, {Device.CPU: 1}, {Device.CPU: 2})


def test_live_workers_that_are_starting_are_known(any_redis_url: str) -> None:
    store = Store(connection.connect(any_redis_url))
    for name, state in (("a", "starting"), ("b", "idle")):
        store.fleet.heartbeat(name, store.fleet.birth(), {"device": "cpu", "lanes": 2, "state": state, "kinds": "{}"})
    fleet = Queries(store, Settings()).fleet_cache.get()
    assert (fleet.workers, fleet.starting) == ({Device.CPU: 2}, {Device.CPU: 1})


def test_runners_that_take_no_work_are_known_with_what_they_have_and_why(any_redis_url: str) -> None:
    store = Store(connection.connect(any_redis_url))
    offer = {"cpus": 2, "memory_mib": 1000, "gpus": [], "host": "h", "labels": []}
    for name, cordoned in (("works", ""), ("full", "its disk is full"), ("rests", "")):
        facts: dict[str, Any] = {
            "device": "runner",
            "lanes": 2,
            "kinds": "{}",
            "offer": json.dumps(offer),
            "cordoned": cordoned,
        }
        store.fleet.heartbeat(name, store.fleet.birth(), facts)
    store.fleet.drain("rests")
    fleet = Queries(store, Settings()).fleet_cache.get()
    assert fleet.runners == {"works": offer}
    drained = "it is drained; reactivate it with: cluster drain rests --off"
    assert fleet.resting == {"full": (offer, "its disk is full"), "rests": (offer, drained)}


def test_a_tenant_that_requires_labels_has_the_part_of_the_fleet_that_has_all_of_them(any_redis_url: str) -> None:
    store = Store(connection.connect(any_redis_url))
    for name, labels in (("plain", ""), ("half", "eu"), ("good", "eu,ssd,trusted"), ("rests", "eu,trusted")):
        facts: dict[str, Any] = {"device": "cpu", "lanes": 2, "state": "idle", "kinds": "{}", "labels": labels}
        store.fleet.heartbeat(name, store.fleet.birth(), facts)
    store.fleet.drain("rests")
    store.tenants.put(Tenant(name="a", requires=frozenset({"trusted", "eu"})))
    store.tenants.put(Tenant(name="b", requires=frozenset({"nowhere"})))
    fleet = Queries(store, Settings()).fleet_cache.get()
    assert fleet.workers == {Device.CPU: 3} == fleet.of("default").workers
    assert (fleet.of("a").workers, fleet.of("a").drained) == ({Device.CPU: 1}, {Device.CPU: 1})
    assert not fleet.of("b").workers


@pytest.fixture
def lonely() -> Queries:
    """Return queries whose Redis is never used."""
    return Queries(Store(connection.connect("redis://127.0.0.1:1")), Settings())


def test_workers_that_are_compiling_kernels_are_known(any_redis_url: str) -> None:
    store = Store(connection.connect(any_redis_url))
    for name, compiling in (("a", "collatz,thread"), ("b", "")):
        facts: dict[str, Any] = {
            "device": "cpu",
            "state": "idle",
            "lanes": 2,
            "kinds": "{}",
            "compiling": compiling,
        }
        store.fleet.heartbeat(name, store.fleet.birth(), facts)
    queries = Queries(store, Settings())
    assert queries.fleet_cache.get().compiling == {"a": (Device.CPU, frozenset({"collatz", "thread"}))}
    assert [worker.get("compiling") for worker in queries.fleet.workers()] == [["collatz", "thread"], None]
