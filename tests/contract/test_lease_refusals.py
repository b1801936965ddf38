"""Tests that a Redis that rejects writes counts as unreachable: callers wait and retry, and the API returns 503."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from coordinator import app
from jobs.settings import Settings
from jobs.store.server import connection
from jobs.store.work import wakeups
from jobs.store.work.leases import Finished
from tests.contract.lease_model import Bench, new_job
from tests.stuck_function import stuck

JOB = {"type": "collatz", "parameters": {"start_number": 1, "number_count": 1000}}


class Api:
    """A coordinator application without a server."""

    def __init__(self, redis_url: str) -> None:
        self._app = app.create(Settings(redis_url=redis_url))

    def post(self, path: str, body: object) -> httpx.Response:
        return asyncio.run(self._post(path, body))

    async def _post(self, path: str, body: Any) -> httpx.Response:
        transport = httpx.ASGITransport(self._app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.post(path, json=body)


@contextmanager
def set_to(client: redis.Redis, name: str, value: str | int, then: str | int) -> Iterator[None]:
    client.config_set(name, value)
    try:
        yield
    finally:
        client.config_set(name, then)


def full(client: redis.Redis) -> AbstractContextManager[None]:
    return set_to(client, "maxmemory", 1, 0)


def without_replicas(client: redis.Redis) -> AbstractContextManager[None]:
    return set_to(client, "min-replicas-to-write", 1, 0)


@contextmanager
def a_replica(client: redis.Redis) -> Iterator[None]:
    client.replicaof("127.0.0.1", "1")
    try:
        yield
    finally:
        client.replicaof("no", "one")


@contextmanager
def without_a_disk(client: Any) -> Iterator[None]:
    obstacle = Path(client.config_get("dir")["dir"]) / client.config_get("dbfilename")["dbfilename"]
    obstacle.unlink(missing_ok=True)
    obstacle.mkdir()
    _save(client)
    client.config_set("save", "3600 1")
    try:
        yield
    finally:
        client.config_set("save", "")
        obstacle.rmdir()
        _save(client)
        obstacle.unlink()


def a_stuck_function(client: redis.Redis) -> AbstractContextManager[None]:
    return stuck(client.connection_pool.connection_kwargs["port"])


def _save(client: redis.Redis) -> None:
    client.bgsave()
    while client.info("persistence")["rdb_bgsave_in_progress"]:
        time.sleep(0.01)


REFUSALS: dict[str, Callable[[redis.Redis], AbstractContextManager[None]]] = {
    "OOM": full,
    "NOREPLICAS": without_replicas,
    "READONLY": a_replica,
    "MISCONF": without_a_disk,
    "BUSY": a_stuck_function,
}
#: Status of the API if it differs from the error code.
WORDS = {"OOM": "redis is full", "BUSY": "an operator must stop it with FUNCTION KILL"}


@pytest.mark.parametrize("code", REFUSALS)
def test_every_refused_write_counts_as_unreachable(bench: Bench, code: str) -> None:
    """Pipelines and functions wrap the error, each version in its own way; some have no name in the library."""
    store, client = bench.store, bench.client
    calls: list[Callable[[], object]] = [
        lambda: store.jobs.submit([new_job("a", 1, "any.normal"), new_job("b", 1, "any.normal")]),
        lambda: store.functions.run("submit", "a", "", "", "any.normal", "default", 0, 0),
        lambda: client.set("a", 1),
        lambda: wakeups.create_wakeup_job(store),
    ]
    bench.submit(10, small=True)
    [(job, token)] = bench.take("w").jobs
    finished = Finished(job_id=job, token=token, result=b"{}", ms=1)
    with REFUSALS[code](client):
        for call in calls:
            with pytest.raises(connection.Unreachable, match=code):
                call()
        if code != "OOM":
            with pytest.raises(connection.Unreachable, match=code):
                store.fleet.lead("somebody")
            with pytest.raises(connection.Unreachable, match=code):
                store.leases.done1_all([finished], worker="w", device="cpu")
    assert store.fleet.lead("somebody") and bench.done1(token), "nothing was lost"
    assert not client.exists("ct:broken")


@pytest.mark.parametrize("code", REFUSALS)
def test_a_refused_submission_is_a_503_and_is_taken_when_sent_again(bench: Bench, redis_url: str, code: str) -> None:
    api = Api(redis_url)
    with REFUSALS[code](bench.client):
        for path, body in (("/api/submit", JOB), ("/api/submit-batch", {"jobs": [JOB, JOB]})):
            answer = api.post(path, body)
            assert (answer.status_code, answer.headers.get("retry-after")) == (503, "1"), answer.text
            assert WORDS.get(code, code) in answer.text
    assert api.post("/api/submit", JOB).status_code == 202
    assert bench.client.zcard("ct:jobs") == 1


def test_of_a_batch_that_fills_redis_each_job_is_answered(bench: Bench, redis_url: str) -> None:
    """One 503 for all would have those submitted twice that were taken."""
    api = Api(redis_url)
    bench.client.set("ballast", b"x" * 2_000_000)
    bench.client.function_flush()
    api.post("/api/submit-batch", {"jobs": [JOB] * 1000})  # so that the next one needs memory for its jobs alone
    with set_to(bench.client, "maxmemory", bench.client.info("memory")["used_memory"] + 300_000, 0):
        found = api.post("/api/submit-batch", {"jobs": [JOB] * 1000}).json()["answers"]
        taken = [one["job_id"] for one in found if "job_id" in one]
        assert 0 < len(taken) < 1000 and bench.client.zcard("ct:jobs") == len(taken) + 1000
    assert {one["error"]["status"] for one in found if "error" in one} == {503}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("LOADING Redis is loading the dataset in memory", redis.exceptions.BusyLoadingError),
        ("MASTERDOWN Link with MASTER is down", redis.exceptions.MasterDownError),
        ("BUSY Redis is busy running a script.", connection.Refused),
        ("BUSY Valkey is busy running a script.", connection.Refused),
        ("ERR Error running script: -LOADING Valkey is loading the dataset", redis.exceptions.BusyLoadingError),
        ("ERR Error running script (call to f_1): @user_script:1: -READONLY You can't", redis.exceptions.ReadOnlyError),
        ("BUSYGROUP Consumer Group name already exists", type(None)),
        ("ERR COMMIT of 1 outside (2, 3]", type(None)),
    ],
)
def test_refusals_are_known_by_their_words(text: str, kind: type) -> None:
    assert type(connection.refusal(text)) is kind
