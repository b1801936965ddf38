"""Tests SUBMIT_DURABLE: a submission is acknowledged when it is on Redis' disk, or rejected before any write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from coordinator.access.principal import OWNER
from coordinator.cluster import Cluster
from coordinator.events.hub import Hub
from jobs import errors
from jobs.settings import Settings
from jobs.store import Store
from jobs.store.server import connection

BODY = {"type": "collatz", "parameters": {"start_number": 1, "number_count": 3}}


def cluster(url: str) -> Cluster:
    store = Store(connection.connect(url, retries=0))
    return Cluster(store, Hub(store.events), Settings(redis_url=url, submit_durable="true"))


def version(client: Any) -> tuple[int, ...]:
    return tuple(map(int, client.info("server")["redis_version"].split(".")))


def test_a_redis_that_cannot_tell_is_refused_with_the_way_out(redis_url: str) -> None:
    """Redis before 7.2 is rejected because of its version, and a later one because its log is disabled."""
    submitting = cluster(redis_url)
    client = submitting.store.client
    before = version(client) < (7, 2)
    for _ in range(2):
        with pytest.raises(errors.Unavailable) as refused:
            submitting.submit([BODY], OWNER)
        told = refused.value.detail
        assert client.info("server")["redis_version"] in told if before else "appendonly yes" in told
        assert "unset SUBMIT_DURABLE" in told
    assert not client.keys("ct:job:*")


class Disk:
    """A client whose Redis has WAITAOF and answers as the test says; records the order of commands."""

    def __init__(self, client: Any, answers: list[list[int]]) -> None:
        self._client = client
        self.answers = answers
        self.order: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def waitaof(self, local: int, replicas: int, timeout: int) -> list[int]:
        assert (local, replicas) == (1, 0)
        self.order.append("probe")
        return [0, 0]

    def pipeline(self, transaction: bool) -> Any:
        return Pipeline(self, self._client.pipeline(transaction=transaction))


class Pipeline:
    def __init__(self, disk: Disk, pipe: Any) -> None:
        self.disk, self.pipe, self.waits = disk, pipe, False

    @property
    def command_stack(self) -> Any:
        return self.pipe.command_stack

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Pipeline:
            self.disk.order.append(name)
            getattr(self.pipe, name)(*arguments)
            return self

        return call

    def waitaof(self, local: int, replicas: int, timeout: int) -> None:
        assert (local, replicas) == (1, 0) and 0 < timeout <= 2500
        self.disk.order.append("waitaof")
        self.waits = True

    def execute(self, **how: bool) -> Any:
        replies = self.pipe.execute(**how)
        unknown = any("Function not found" in str(reply) for reply in replies)
        return [*replies, [0, 0] if unknown else self.disk.answers.pop(0)] if self.waits else replies


def on_disk(url: str, *answers: list[int]) -> tuple[Cluster, Disk]:
    submitting = cluster(url)
    disk = Disk(submitting.store.client, list(answers))
    submitting.store.functions.client = disk
    return submitting, disk


def test_the_answer_waits_for_the_disk_with_a_write_after_the_jobs(any_redis_url: str) -> None:
    submitting, disk = on_disk(any_redis_url, [1, 0], [1, 0])
    [first, again] = [submitting.submit([{**BODY, "idempotency_key": "k"}], OWNER) for _ in range(2)]
    assert first[0]["job_id"] == again[0]["job_id"]  # type: ignore[index]
    order = [name for name in disk.order if name in ("probe", "fcall", "set", "waitaof")]
    assert order[0] == "probe" and order.count("probe") == 1
    assert order[-2:] == ["set", "waitaof"], "a known job was written by another connection"
    assert order.index("fcall") < order.index("set")


def test_a_disk_that_is_too_slow_is_a_503_and_a_repeat_finds_the_job(any_redis_url: str) -> None:
    submitting, _ = on_disk(any_redis_url, [0, 0], [1, 0])
    body = {**BODY, "idempotency_key": "k"}
    with pytest.raises(connection.Unacknowledged, match="same idempotency key"):
        submitting.submit([body], OWNER)
    [answer] = submitting.submit([body], OWNER)
    assert isinstance(answer, dict) and len(submitting.store.client.keys("ct:job:*")) == 1


def test_nothing_waits_where_nothing_was_written_or_asked_for(any_redis_url: str) -> None:
    submitting, disk = on_disk(any_redis_url)
    submitting.submit([7], OWNER)
    submitting.settings = Settings(redis_url=any_redis_url)
    submitting.submit([BODY], OWNER)
    assert not {"probe", "waitaof"} & set(disk.order)


def test_a_log_that_is_on_acknowledges(redis_url: str, tmp_path: Path) -> None:
    """This test requires a Redis with WAITAOF; older ones are rejected as tested above."""
    with redis.Redis.from_url(redis_url) as client:
        if version(client) < (7, 2):
            pytest.skip(f"Redis {version(client)} has no WAITAOF, which came with 7.2")
        client.config_set("appendonly", "yes")
        try:
            [answer] = cluster(redis_url).submit([BODY], OWNER)
            assert isinstance(answer, dict)
        finally:
            client.config_set("appendonly", "no")
