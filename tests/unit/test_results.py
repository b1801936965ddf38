"""Tests results of many jobs in one response: unchanged stored texts, and a limited size."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from coordinator.jobs import results
from jobs.store import Store, keys
from jobs.store.server import connection


@pytest.fixture
def store(any_redis_url: str) -> Store:
    return Store(connection.connect(any_redis_url))


def put(store: Store, job: str, result: bytes | None, state: str = "done", **more: str) -> str:
    store.client.hset(keys.job(job), mapping={"state": state, "kind": "sums", **more})
    if result is not None:
        store.client.set(keys.job_result(job), result)
    return job


def answers(store: Store, ids: list[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(results.many(store, ids))["answers"]
    return found


def test_each_job_is_answered_in_its_place(store: Store) -> None:
    ids = [
        put(store, "a", b'{"sum":1}'),
        "nosuch",
        put(store, "b", None, "failed", error="no \u00b5 luck"),
        put(store, "c", None, "running"),
        "a",
    ]
    done = {"job_id": "a", "type": "sums", "state": "done", "result": {"sum": 1}}
    assert answers(store, ids) == [
        done,
        {"job_id": "nosuch", "state": None, "error": "no job nosuch"},
        {"job_id": "b", "type": "sums", "state": "failed", "error": "no \u00b5 luck"},
        {"job_id": "c", "type": "sums", "state": "running"},
        done,
    ]


def test_a_result_travels_as_it_is_stored(store: Store) -> None:
    stored = b'{"pi":3.10e0, "big":' + b"9" * 5000 + b"}"
    put(store, "a", stored)
    assert stored in results.many(store, ["a"])


def test_an_answer_holds_so_much_and_tells_where_the_rest_is(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "RESULTS_BYTES", 1000)
    sizes = {"a": 10, "b": 600, "c": 600, "d": 100, "e": 350, "f": 200}
    for name, size in sizes.items():
        put(store, name, b'"' + b"x" * (size - 2) + b'"')
    found = {answer["job_id"]: answer for answer in answers(store, list(sizes))}
    assert {name for name, answer in found.items() if "result" in answer} == {"a", "b", "d", "f"}
    assert sum(sizes[name] for name in "abdf") <= 1000
    assert found["c"] == {
        "job_id": "c",
        "type": "sums",
        "state": "done",
        "result_at": "/api/jobs/c/result",
        "result_bytes": 600,
    }
    assert found["e"]["result_bytes"] == 350
    assert len(answers(store, ["a"] * 1000)) == 1000


def test_large_results_take_little_memory(store: Store) -> None:
    """Each result has many numbers, which would need many times the memory when parsed."""
    ids = [put(store, f"j{number}", b"[" + b"1.5," * 500_000 + b"1]") for number in range(40)]
    tracemalloc.start()
    text = results.many(store, ids)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(text) < results.RESULTS_BYTES + 100_000
    assert peak < 5 * results.RESULTS_BYTES, peak
