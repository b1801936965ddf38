"""Tests the functions of profiles: sampling, collection of recordings, and rejections."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest

from jobs.models import Actor
from jobs.store import keys, profiles
from jobs.store.profiles import PART_BYTES, Profile, Profiles, Recording
from tests.contract.lease_model import Bench

ID = "a1b2c3d4e5f60718"
MINE = Recording(name="w-1.1", host="h", devices=("host:h",))


def profile(profile_id: str = ID, name: str = "night", tenant: str = "default", **more: Any) -> Profile:
    fields: dict[str, Any] = {
        "state": "recording",
        "hz": 10,
        "hosts": (),
        "job": "",
        "created": 0,
        "until": 0,
        "ended": 0,
        "collecting": 0,
        "artifact": "",
        "trouble": "",
        "actor": Actor(),
    }
    return Profile(profile_id=profile_id, name=name, tenant=tenant, **(fields | more))


@pytest.fixture
def store(bench: Bench) -> Profiles:
    return bench.store.profiles


def begin(store: Profiles, **more: Any) -> None:
    one = profile(**more)
    assert store.start(one, 60) == ("new", one.profile_id)


def ended(sha: str, size: int) -> Recording:
    return replace(MINE, samples=3, reason="stopped", size=size, sha=sha)


def test_a_profile_that_records_is_told_to_workers_until_it_is_done(store: Profiles) -> None:
    begin(store, hosts=("h", "g"), hz=25)
    assert store.start(profile(), 60) == ("new", ID)  # after a lost answer
    [order] = store.orders()
    assert (order.profile_id, order.state, order.hz, order.hosts) == (ID, "recording", 25, ("h", "g"))
    one = store.one("default", "night")
    assert one and order.until - one.created == 60_000
    assert store.stop(ID) and not store.stop(ID)
    assert [order.state for order in store.orders()] == ["collecting"]
    assert store.end(ID, "ab" * 32) and store.orders() == ()
    one = store.one("default", "night")
    assert one and (one.state, one.artifact) == ("done", "ab" * 32)
    assert store.recover(ID) and [order.state for order in store.orders()] == ["collecting"]


def test_one_worker_samples_a_device_and_another_when_that_one_is_gone(store: Profiles, bench: Bench) -> None:
    begin(store)
    devices = ("host:h", "gpu:G")
    assert store.report(ID, "w-1", devices, []).devices == devices
    assert store.report(ID, "w-2", ("host:h",), []).devices == ()
    assert store.report(ID, "w-3", ("host:i",), []).devices == ("host:i",)
    bench.advance(profiles.CLAIM_MS - 1)
    assert store.report(ID, "w-2", ("host:h",), []).devices == ()
    bench.advance(1)
    assert store.report(ID, "w-2", ("host:h",), []).devices == ("host:h",)
    assert store.report(ID, "w-1", ("host:h",), []).devices == ()
    bench.advance(-3_600_000)  # a clock that steps back
    assert store.report(ID, "w-1", ("host:h",), []).devices == ("host:h",)
    store.stop(ID)
    assert store.report(ID, "w-1", ("host:h",), []).devices == ()


def test_parts_come_home_once_each_whatever_is_repeated(store: Profiles) -> None:
    begin(store)
    store.report(ID, "w-1", (), [MINE])
    data = os.urandom(PART_BYTES + 5)
    whole = ended("s" * 64, len(data))
    assert store.add_part(ID, "w-1", MINE.name, 0, data[:PART_BYTES]) == "gone"  # it records
    store.stop(ID)
    assert store.report(ID, "w-1", (), [whole]).wanted == {MINE.name: "0"}
    assert store.add_part(ID, "w-1", MINE.name, 0, b"short") == "size"
    assert store.add_part(ID, "w-2", MINE.name, 0, data[:PART_BYTES]) == "gone"
    for _ in range(2):
        assert store.add_part(ID, "w-1", MINE.name, 0, data[:PART_BYTES]) == "stored"
    assert store.report(ID, "w-1", (), [whole]).wanted == {MINE.name: "1"}
    assert store.part(ID, MINE.name, 0) == data[:PART_BYTES]
    for _ in range(2):
        store.keep_part(ID, MINE.name, 0, whole.sha)
    assert not store.recordings(ID)[0].whole
    assert store.add_part(ID, "w-1", MINE.name, 1, data[PART_BYTES:]) == "stored"
    assert store.parts() == [(ID, MINE.name, 1)]
    assert store.report(ID, "w-1", (), [whole]).wanted == {MINE.name: "wait"}
    store.keep_part(ID, MINE.name, 1, whole.sha)
    assert store.recordings(ID)[0].whole
    assert store.settle(ID, MINE.name, "kept", whole.sha) == "kept"
    assert store.report(ID, "w-1", (), [whole]).wanted == {MINE.name: "kept"}
    assert store.add_part(ID, "w-1", MINE.name, 1, data[PART_BYTES:]) == "gone"
    [known] = store.recordings(ID)
    assert (known.end, known.worker, known.row["samples"]) == ("kept", "w-1", 3)


def test_a_recording_whose_bytes_are_others_is_sent_anew_and_then_given_up(store: Profiles) -> None:
    begin(store)
    store.stop(ID)
    whole = ended("s" * 64, 4)
    for how in ("again", "again", "lost"):
        assert store.report(ID, "w-1", (), [whole]).wanted == {MINE.name: "0"}
        store.add_part(ID, "w-1", MINE.name, 0, b"1234")
        store.keep_part(ID, MINE.name, 0, whole.sha)
        assert store.settle(ID, MINE.name, "again", whole.sha) == how
    assert store.report(ID, "w-1", (), [whole]).wanted == {MINE.name: "lost"}


def test_redis_holds_few_parts_at_once(store: Profiles) -> None:
    begin(store)
    store.stop(ID)
    begin(store, profile_id="b", name="b")
    store.stop("b")
    many = [replace(ended("s" * 64, 1), name=f"w-1.{number}") for number in range(4)]
    store.report(ID, "w-1", (), many)
    answers = [store.add_part(ID, "w-1", one.name, 0, b"x") for one in many]
    assert answers == ["stored"] * profiles.PARTS_AT_ONCE + ["wait"] * 2
    store.report("b", "w-1", (), many)
    assert store.add_part("b", "w-1", many[0].name, 0, b"x") == "stored", "a profile that cannot be stored is alone"
    store.keep_part(ID, many[0].name, 0, many[0].sha)
    assert store.add_part(ID, "w-1", many[3].name, 0, b"x") == "stored"


def test_a_recording_that_comes_late_opens_a_profile_that_is_done(store: Profiles) -> None:
    begin(store)
    store.stop(ID)
    store.end(ID, "")
    assert store.report(ID, "w-1", (), [MINE]).state == "done"  # nothing to send yet
    found = store.report(ID, "w-1", (), [ended("s" * 64, 1)])
    assert (found.state, found.wanted) == ("collecting", {MINE.name: "0"})
    assert [order.state for order in store.orders()] == ["collecting"]


def test_a_recording_is_of_the_worker_that_was_heard_with_it_last(store: Profiles, bench: Bench) -> None:
    begin(store)
    store.report(ID, "w-1", (), [MINE])
    assert store.report(ID, "w-2", (), [MINE]).wanted == {MINE.name: "other"}
    bench.advance(profiles.CLAIM_MS)
    assert store.report(ID, "w-2", (), [MINE]).wanted == {MINE.name: "wait"}
    assert store.report(ID, "w-1", (), [MINE]).wanted == {MINE.name: "other"}


def test_what_is_refused(store: Profiles, bench: Bench) -> None:
    begin(store)
    assert store.start(profile("other"), 60) == ("exists", "night")
    begin(store, profile_id="b", name="b")
    assert store.start(profile("c", "c"), 60) == ("own", "2")
    assert store.start(profile("c", "c", "nobody"), 60) == ("missing", "nobody")
    for tenant in ("t", "u"):
        bench.client.zadd(keys.TENANTS, {tenant: 1})
    begin(store, profile_id="d", name="d", tenant="t")
    begin(store, profile_id="e", name="e", tenant="t")
    assert store.start(profile("f", "f", "u"), 60) == ("live", "4")
    assert store.one("u", "night") is None and store.delete("t", "night") is None


def test_what_is_deleted_leaves_nothing(store: Profiles, bench: Bench) -> None:
    before = set(bench.client.keys("ct:profil*"))
    begin(store)
    store.report(ID, "w-1", ("host:h",), [MINE])
    store.stop(ID)
    store.report(ID, "w-1", (), [ended("s" * 64, 1)])
    store.add_part(ID, "w-1", MINE.name, 0, b"x")
    assert store.delete("default", "night") == (ID, "")
    assert set(bench.client.keys("ct:profil*")) == before
    assert store.report(ID, "w-1", (), [MINE]).state == "gone"
    store.trouble(ID, "no room")
    assert set(bench.client.keys("ct:profil*")) == before
