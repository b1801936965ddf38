"""Tests that Redis never executes half of a script when it starts after a power cut."""

from __future__ import annotations

import itertools
import random
import time
from pathlib import Path

import pytest

from coordinator.background.aof import AofRewriter
from jobs.store import Store
from jobs.store.server import connection
from jobs.store.tenancy.audit_log import Position
from tests.contract.audit_kills import Server
from tests.contract.lease_model import new_job
from tests.integration.live import until
from tests.redis_servers import ALL, require_server

MULTI, EXEC = b"*1\r\n$5\r\nMULTI\r\n", b"*1\r\n$4\r\nEXEC\r\n"


def torn(log: bytes) -> int:
    """Return a length at which the log ends within a command of its last script."""
    begun, ended = log.rfind(MULTI), log.rfind(EXEC)
    assert 0 <= begun < ended, "Redis writes a script as a transaction"
    return (begun + ended) // 2


def await_log(store: Store) -> None:
    """Wait until Redis' log has every write, because Redis holds writes back during an fsync."""
    until(lambda: store.client.info("persistence")["aof_buffer_length"] == 0)


def chained(store: Store) -> Position:
    """Return the head of the audit log after checking that its entries are consecutive."""
    log = store.audit_log.read(0, 1000)
    place = log.dropped
    for entry in log.entries:
        assert entry.follows(place), entry
        place = Position(entry.seq, entry.hash)
    assert place == log.head
    return place


@pytest.mark.parametrize("version", ALL)
def test_a_log_torn_within_a_script_brings_no_half_of_it_at_a_later_start(version: str, tmp_path: Path) -> None:
    """Redis 7.0.15 left the script's start in the file, and executed it together with the next script."""
    server = Server(tmp_path, random.Random(1), require_server(version))
    try:
        server.store.jobs.submit([new_job(f"j{number}", 10, "any.normal") for number in range(3)])
        await_log(server.store)
        server.restart(torn)
        server.store.jobs.submit([new_job("later", 10, "any.normal")])
        head, listed = chained(server.store), server.store.client.zrange("ct:jobs", 0, -1)
        await_log(server.store)
        server.restart()
        assert server.store.client.zrange("ct:jobs", 0, -1) == listed
        assert chained(server.store) == head
        assert not server.store.client.smembers("ct:broken")
    finally:
        server.stop()


@pytest.mark.parametrize("version", ALL)
def test_a_redis_whose_disk_was_full_starts_again_with_every_job(version: str, tmp_path: Path) -> None:
    """Redis 7.0.15 left a gap where it had removed an incomplete write, and rejected its file at the next start."""
    server = Server(tmp_path, random.Random(1), require_server(version))
    try:
        rewriter = AofRewriter(server.store.aof)
        submit(server.store, "before", 50)
        await_log(server.store)
        assert rewriter.run_once()
        server.limit(100)
        with pytest.raises(connection.Unreachable):
            fill(server.store)
        assert not rewriter.run_once(), "nothing can be written yet"
        server.limit(None)
        until(lambda: not server.store.aof.state().unwritten)
        submit(server.store, "after", 1)
        listed = server.store.client.zrange("ct:jobs", 0, -1)
        until(rewriter.run_once)
        await_log(server.store)
        server.restart()
        assert server.store.client.zrange("ct:jobs", 0, -1) == listed
    finally:
        server.stop()


def fill(store: Store) -> None:
    """Submit jobs one by one until the log takes no more: Redis says so at the write after the one that failed.

    While an fsync lasts, Redis holds writes back for two seconds, and takes what comes.
    """
    deadline = time.monotonic() + 60
    for number in itertools.count():
        assert time.monotonic() < deadline, "the log takes all"
        submit(store, f"full{number}-", 1)


def submit(store: Store, name: str, count: int) -> None:
    store.jobs.submit([new_job(f"{name}{number}", 10, "any.normal") for number in range(count)])
