"""Tests function libraries on the server: loaded next to other versions, and deleted when unused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from coordinator import health
from coordinator.background.leader import Leader
from jobs import releases
from jobs.store import Store, keys
from jobs.store.server import connection
from jobs.store.server.functions import Limits
from jobs.store.server.libraries import KEPT_MS
from jobs.store.tenancy.tenants import Tenant
from tests.contract.lease_model import CLOCK, Bench

#: A library that replaces ours and returns unexpected values.
REPLACED = "#!lua name={name}\nredis.register_function('{name}_hold', function() return 7 end)"


def other_version(bench: Bench) -> Store:
    """Return a process of another version, whose library has another text."""
    return Store(bench.client, clock=CLOCK, limits=Limits(expiries=2))


def test_two_versions_are_there_side_by_side(bench: Bench) -> None:
    other = other_version(bench)
    job = bench.submit(10)
    assert other.jobs.pause(job) == ["ok", "paused"] and bench.store.jobs.resume(job) == ["ok", "queued"]
    assert {bench.store.functions.library.name, other.functions.library.name} <= set(bench.store.libraries.names())


def test_a_library_that_is_missing_is_loaded(bench: Bench) -> None:
    """As on an empty server, or after a failover that lost the load."""
    bench.client.function_flush()
    job = bench.submit(10)
    bench.client.function_flush()
    assert bench.store.jobs.cancel(job) == ["ok", "cancelled"]
    bench.client.function_flush()
    assert not bench.store.slots.hold("w")


def test_a_coordinator_that_starts_replaces_what_has_its_name(bench: Bench) -> None:
    """A backup carries functions, and whoever may load can replace one."""
    name = bench.store.functions.library.name
    bench.client.function_load(REPLACED.format(name=name), replace=True)
    assert bench.store.functions.run("hold", "w", 1000) == 7
    Leader(bench.store).run_once()
    assert bench.store.functions.run("hold", "w", 1000) == 0


def test_a_library_of_another_program_is_never_deleted(bench: Bench) -> None:
    bench.client.function_load("#!lua name=tc_tools\nredis.register_function('t', function() return 7 end)")
    try:
        assert "tc_tools" not in bench.store.libraries.names()
    finally:
        bench.client.execute_command("FUNCTION DELETE", "tc_tools")


def test_a_function_of_another_library_with_the_same_name_is_reported(bench: Bench) -> None:
    bench.client.function_flush()
    name = bench.store.functions.function("hold")
    bench.client.function_load(f"#!lua name=theirs\nredis.register_function('{name}', function() return 7 end)")
    try:
        with pytest.raises(connection.Unreachable) as refused:
            bench.store.jobs.cancel("x")
    finally:
        bench.client.execute_command("FUNCTION DELETE", "theirs")
    reason = connection.reason(refused.value)
    assert f"Function {name} already exists" in reason and "FUNCTION DELETE" in reason


def test_a_full_redis_without_the_functions_is_reported(bench: Bench) -> None:
    """Finished jobs cannot be deleted without the functions."""
    bench.client.function_flush()
    bench.client.config_set("maxmemory", 1)
    try:
        with pytest.raises(connection.Full) as refused:
            bench.store.jobs.cancel("x")
    finally:
        bench.client.config_set("maxmemory", 0)
    assert "no memory for the functions of this version" in connection.reason(refused.value)


def test_a_coordinator_that_may_not_load_leads_if_the_functions_are_there_and_loads_them_later(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As in a full Redis."""
    leader, calls = Leader(bench.store), 0

    def load() -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise connection.Full("OOM")

    monkeypatch.setattr(bench.store.libraries, "load", load)
    for _ in range(3):
        leader.run_once()
        assert leader.is_leading
    assert calls == 2 and not caplog.records


def test_a_coordinator_is_ready_if_redis_has_the_functions_or_takes_them(bench: Bench) -> None:
    cluster: Any = SimpleNamespace(store=bench.store)
    bench.client.function_flush()
    health.ready(cluster)
    assert bench.store.functions.library.name in bench.store.libraries.names()
    worker: Any = SimpleNamespace(store=Store(bench.client, clock=CLOCK, limits=Limits(expiries=5), loads=False))
    with pytest.raises(connection.LibraryMissing):
        health.ready(worker)


def test_what_one_call_learned_is_forgotten_by_the_next(bench: Bench) -> None:
    """A library's variables live as long as the server."""
    bench.submit(10)
    bench.store.tenants.put(Tenant(name="a", max_jobs=1))
    bench.submit(10, tenant="a")
    bench.store.tenants.put(Tenant(name="a", max_jobs=2))
    job = bench.submit(10, tenant="a")
    assert bench.client.zscore("ct:admitted:a", job)
    bench.client.flushall()
    bench.client.set("test:clock", 1)
    assert bench.store.jobs.pause(bench.submit(10)) == ["ok", "paused"]
    assert not bench.client.keys("ct:admitted:*")


def test_the_leader_deletes_what_no_process_uses(bench: Bench) -> None:
    other, ours = other_version(bench), bench.store.functions.library.name
    other.fleet.heartbeat("w", "1", {"device": "cpu"})
    theirs = other.functions.library.name
    bench.store.fleet.lead("me")
    assert bench.store.libraries.delete_unused() == []
    bench.advance(KEPT_MS // 2)
    other.fleet.heartbeat("w", "1", {"device": "cpu"})
    bench.store.fleet.lead("me")
    bench.advance(KEPT_MS // 2 + 1)
    assert theirs not in bench.store.libraries.delete_unused(), "a worker uses it"
    bench.advance(KEPT_MS)
    bench.store.fleet.lead("me")
    assert theirs in bench.store.libraries.delete_unused()
    assert ours in bench.store.libraries.names() and theirs not in bench.store.libraries.names()
    assert other.fleet.heartbeat("w", "1", {"device": "cpu"}) == "ok", "it is loaded again"


def test_a_library_of_a_coordinator_that_is_about_to_lead_is_kept(bench: Bench) -> None:
    other = other_version(bench)
    other.libraries.load()
    bench.store.fleet.lead("me")
    assert bench.store.libraries.delete_unused() == []
    bench.advance(KEPT_MS - 1)
    assert bench.store.libraries.delete_unused() == [] and other.functions.library.name in other.libraries.names()


# -- data formats -----------------------------------------------------------------------------------------------------


def store_of(bench: Bench, *, loads: bool = True) -> Store:
    """Return a new process of this version."""
    return Store(bench.client, clock=CLOCK, loads=loads)


def test_a_coordinator_records_the_data_format_and_its_version(bench: Bench) -> None:
    store_of(bench).libraries.load()
    assert bench.client.get(keys.RELEASE).decode() == f"{releases.OWN.writes} {releases.OWN.version}"


@pytest.mark.parametrize("loads", [True, False])
def test_data_of_a_newer_format_are_refused_and_not_changed(bench: Bench, loads: bool) -> None:
    bench.client.set(keys.RELEASE, f"{releases.OWN.newest + 1} 7.2.0")
    before = sorted(bench.client.keys())
    for call in (lambda store: store.libraries.check(), lambda store: store.slots.hold("w")):
        with pytest.raises(connection.IncompatibleRelease, match=r"Start version 7\.2\.0 or later"):
            call(store_of(bench, loads=loads))
    assert sorted(bench.client.keys()) == before
    assert "Start version 7.2.0" in connection.reason(connection.IncompatibleRelease("Start version 7.2.0"))


def test_a_worker_refuses_a_coordinator_of_a_distant_version(bench: Bench) -> None:
    store_of(bench).libraries.load()
    bench.client.set(keys.RELEASE, f"{releases.OWN.writes} 7.2.0")
    with pytest.raises(connection.IncompatibleRelease, match=r"a coordinator has version 7\.2\.0"):
        store_of(bench, loads=False).libraries.check()
    store_of(bench).libraries.load()
    store_of(bench, loads=False).libraries.check()
