"""Tests the API's stream of work: complete, with merged spans if there are too many, and with unknown parts marked."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from coordinator.telemetry import spans
from coordinator.telemetry.spans import Span
from jobs.store import Store, keys
from jobs.store.server import connection, functions


@pytest.fixture
def store(any_redis_url: str) -> Store:
    return Store(connection.connect(any_redis_url))


def put(store: Store, count: int, lanes: int = 4, age_ms: int = 0) -> None:
    """Store spans of one second each, the newest of which ended at a given age."""
    now = round(time.time() * 1000) - age_ms
    pipe = store.client.pipeline(transaction=False)
    for number in range(count):
        end = now - (count - 1 - number) * 10
        text = f"job{number}:sum:cpu:{end - 1000}:{end}:900:7:2:1:0"
        pipe.xadd(f"{keys.PREFIX}spans", {"lane": f"w{number % lanes}/0", "span": text}, id=f"{end}-{number}")
    pipe.execute()


def test_every_span_of_the_time_asked_for_is_there(store: Store) -> None:
    put(store, 500)
    found = spans.read(store, 600, 5000)
    assert len(found["spans"]) == 500 and found["resolution_seconds"] == 0
    assert [lane["worker"] for lane in found["lanes"]] == ["w0", "w1", "w2", "w3"]
    assert found["complete_since"] == pytest.approx(time.time() - 3600, abs=5)
    few = spans.read(store, 2, 5000)
    assert 90 < len(few["spans"]) < 320, "those that reach into the last two seconds"


def test_it_is_read_in_a_full_redis(store: Store) -> None:
    put(store, 5)
    store.client.config_set("maxmemory", 1)
    try:
        assert len(spans.read(store, 600, 5000)["spans"]) == 5
    finally:
        store.client.config_set("maxmemory", 0)


def test_too_many_are_joined_and_nothing_is_lost(store: Store) -> None:
    put(store, 3000)
    found: Any = spans.read(store, 600, 100)
    assert len(found["spans"]) <= 100 and found["resolution_seconds"] > 0
    assert sum(span["units"] for span in found["spans"]) == 3000 * 7
    assert sum(span["leases"] for span in found["spans"]) == 3000 * 2
    assert sum(span["jobs"] for span in found["spans"]) == 3000
    single = [span for span in found["spans"] if span["job_id"] is not None]
    assert all(span["jobs"] == 1 for span in single) and len(single) <= 8, "at both ends of each lane"


def test_what_was_dropped_for_room_is_said(store: Store) -> None:
    put(store, 20_000, age_ms=1000)
    found = spans.read(store, 3600, 20_000)
    assert found["complete_since"] == pytest.approx(time.time() - 1 - 200, abs=5)


def test_a_lease_of_now_is_open_and_small_ones_are_together(store: Store) -> None:
    client, now = store.client, round(time.time() * 1000)
    for job, small in (("big", 0), ("s1", 1), ("s2", 1)):
        client.zadd(keys.in_state("running"), {job: 1})
        client.hset(keys.job(job), mapping={"kind": "sum", "small": small, "queue": "cpu.normal"})
        lane = "w" if small else "w/0"
        billed = "" if small else "628:"  # where there are tenants
        client.hset(keys.job_lease(job), f"token-{job}", f"0:9:0:0:0:{now - 500}:{billed}{lane}")
    store.fleet.heartbeat("w", store.fleet.birth(), {"device": "cpu"})
    found = spans.read(store, 60, 1000)
    by_lane = {found["lanes"][span["lane"]]["lane"]: span for span in found["spans"]}
    assert by_lane.keys() == {"w", "w/0"} and all(span["open"] for span in found["spans"])
    assert by_lane["w/0"]["job_id"] == "big" and by_lane["w"]["job_id"] is None and by_lane["w"]["jobs"] == 2
    assert by_lane["w"]["end"] == found["to"] and found["lanes"][0]["device"] == "cpu"


def test_work_of_a_lost_worker_ends_at_its_last_heartbeat_and_never_before_it_began(store: Store) -> None:
    client, now = store.client, round(time.time() * 1000)
    for worker, ago in (("live", 500), ("lost", 8000)):
        store.fleet.heartbeat(worker, store.fleet.birth(), {"device": "cpu"})
        client.hset(keys.worker(worker), "seen", now - ago)
        client.zadd(keys.WORKERS, {worker: now - ago + functions.WORKER_TTL_MS})
    client.zadd(keys.in_state("running"), {"j": 1})
    client.hset(keys.job("j"), mapping={"kind": "sum", "small": 0, "queue": "cpu.normal"})
    granted = {"live/0": 9000, "lost/0": 9000, "lost/1": 7500, "gone/0": 9000, "gone/1": 90_000}
    for lane, ago in granted.items():
        client.hset(keys.job_lease("j"), f"token-{lane}", f"0:9:0:0:0:{now - ago}:{lane}")
    found = spans.read(store, 60, 1000)
    by_lane = {found["lanes"][span["lane"]]["lane"]: span for span in found["spans"]}
    assert by_lane.keys() == granted.keys() - {"gone/1"}, "which ended before the time asked for"
    ends = {lane: round((span["end"] - span["start"]) * 1000) for lane, span in by_lane.items() if not span["open"]}
    assert ends == {"lost/0": 1000, "lost/1": 0, "gone/0": 0}
    assert {lane for lane, span in by_lane.items() if span.get("lost")} == ends.keys()
    assert by_lane["live/0"]["end"] == found["to"]


def test_a_worker_that_beats_no_more_is_not_known_to_compute(store: Store) -> None:
    """Between a worker's last heartbeat and its loss, its spans are open, and its work is unknown."""
    client, now = store.client, round(time.time() * 1000)
    for name, ago in (("beats", 500), ("silent", 3900)):
        store.fleet.heartbeat(name, store.fleet.birth(), {"device": "cpu"})
        client.hset(keys.worker(name), "seen", now - ago)
        client.zadd(keys.WORKERS, {name: now + 60_000})
    client.zadd(keys.in_state("running"), {"j": 1})
    client.hset(keys.job("j"), mapping={"kind": "sum", "small": 0, "queue": "cpu.normal"})
    for name in ("beats", "silent"):
        client.hset(keys.job_lease("j"), f"token-{name}", f"0:9:0:0:0:{now - 9000}:{name}/0")
    found = spans.read(store, 60, 1000)
    assert all(span["open"] for span in found["spans"])
    silent = {lane["worker"]: lane.get("silent_since") for lane in found["lanes"]}
    assert silent == {"beats": None, "silent": (now - 3900) / 1000}


def test_joining_keeps_lanes_apart_and_names_what_is_one_job() -> None:
    every = [
        Span(lane=lane, device="cpu", job=job, kind="sum", start=start, end=start + 50, units=1)
        for lane in ("a", "b")
        for start in range(0, 1000, 100)
        for job in ("x",)
    ]
    joined, resolution = spans.join_spans(every, 10, 4)
    assert resolution and len(joined) <= 4
    assert {(span.lane, span.job, span.jobs) for span in joined} == {("a", "x", 1), ("b", "x", 1)}
    assert sum(span.units for span in joined) == 20


def test_hidden_jobs_keep_their_time_and_nothing_else_also_where_spans_are_joined(store: Store) -> None:
    put(store, 300)
    now = round(time.time() * 1000)
    store.client.xadd(f"{keys.PREFIX}spans", {"lane": "w0/0", "span": f":sum:cpu:{now - 5}:{now}:5:9:3:3:1"})
    asked: list[str] = []

    def hidden(ids: Sequence[str]) -> set[str]:
        asked.extend(ids)
        return set(ids) - {"job7"}

    every, found = spans.read(store, 600, 5000), spans.read(store, 600, 5000, hidden)
    assert sorted(asked) == sorted(f"job{number}" for number in range(300))
    told = [span for span in found["spans"] if not span.get("untold")]
    assert [(span["job_id"], span["type"], span["units"]) for span in told] == [("job7", "sum", 7)]
    assert len(found["spans"]) == len(every["spans"]) == 301, "a lane at work is not shown idle"
    veiled = [span for span in found["spans"] if span.get("untold")]
    assert {(span["job_id"], span["type"], span["units"]) for span in veiled} == {(None, None, None)}
    few = spans.read(store, 600, 100, hidden)["spans"]
    assert {(span["job_id"], span["type"], span["units"]) for span in few} <= {(None, None, None), ("job7", "sum", 7)}


def test_nobody_who_sees_all_is_told_less(store: Store) -> None:
    put(store, 3)
    assert all("untold" not in span and span["units"] == 7 for span in spans.read(store, 600, 5000)["spans"])
