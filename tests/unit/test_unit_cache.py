"""Tests the cache of units: how often a job is read, how long the data is valid, and how much is stored."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from coordinator.jobs.caches import unit_cache
from coordinator.jobs.caches.unit_cache import UnitCache
from jobs import errors
from jobs.store.work.unit_reads import StoredUnits, UnitMark

STORED = StoredUnits(
    kind="command",
    state="running",
    total=10,
    cursor=0,
    accumulator=None,
    parts=(),
    free=(),
    retry=(),
    dead=(),
    leases=(),
)


class Reads:
    """A fake Redis with jobs of ten unfinished units."""

    def __init__(self) -> None:
        self.state, self.moved, self.total, self.kind = b"running", 0, 10, "command"
        self.count = 0
        self.go_on = threading.Event()
        self.go_on.set()

    def mark(self, _job: str) -> UnitMark:
        return UnitMark((self.state,), (self.moved,))

    def units(self, _job: str) -> StoredUnits:
        self.count += 1
        assert self.go_on.wait(20)
        return replace(STORED, total=self.total, kind=self.kind)


@pytest.fixture
def reads() -> Reads:
    return Reads()


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cache(reads: Reads, clock: Clock) -> UnitCache:
    return UnitCache(reads, clock)  # type: ignore[arg-type]


def test_units_that_did_not_change_are_read_once_by_all_who_ask(cache: UnitCache, reads: Reads) -> None:
    reads.go_on.clear()
    with ThreadPoolExecutor(5) as pool:
        several = [pool.submit(cache.get, "j") for _ in range(20)]
        reads.go_on.set()
        assert len({id(one.result()) for one in several}) == 1
    assert reads.count == 1
    reads.moved += 1
    assert cache.get("j") is cache.get("j")
    assert reads.count == 2


def test_what_was_dear_to_read_counts_for_four_times_as_long(
    cache: UnitCache, reads: Reads, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu = iter(range(1000))
    # Each read takes a second.
    monkeypatch.setattr("coordinator.jobs.caches.unit_cache.time.thread_time", lambda: float(next(cpu)))
    cache.get("j")
    for later, count in ((1.0, 1), (3.9, 1), (4.1, 2), (8.0, 2), (8.2, 3)):
        clock.now = 100.0 + later
        reads.moved += 1
        cache.get("j")
        assert reads.count == count, later
    reads.state = b"cancelled"
    cache.get("j")
    assert reads.count == 4, "what users do is seen at once"


def test_what_nobody_asks_for_is_dropped_and_all_that_is_kept_is_bounded(
    cache: UnitCache, reads: Reads, clock: Clock
) -> None:
    reads.total = 100_000
    for number in range(10):
        assert cache.get(f"j{number}")
    assert 1 < len(cache.entries) == unit_cache.MAX_BYTES // (100_000 * unit_cache.UNIT_BYTES)
    assert "j9" in cache.entries
    reads.total = 10**6  # more than there is room for: the last one is kept alone
    assert cache.get("j") and list(cache.entries) == ["j"]
    clock.now += unit_cache.IDLE_SECONDS + 1
    reads.total = 10
    assert cache.get("k") and list(cache.entries) == ["k"]


def test_nothing_is_kept_of_a_job_that_runs_no_programs(cache: UnitCache, reads: Reads) -> None:
    reads.kind = "collatz"
    for _ in range(2):
        with pytest.raises(errors.NotFound, match="runs no programs"):
            cache.get("j")
    assert reads.count == 2 and not cache.entries
