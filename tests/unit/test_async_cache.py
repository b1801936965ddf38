"""Tests the cache of values that are read on demand: shared reads, repeated reads, and forgotten values."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from coordinator import async_cache
from coordinator.async_cache import AsyncCache


class Source:
    """A slow source: returns the number of its reads, or errors while `broken`."""

    def __init__(self) -> None:
        self.reads: Counter[str] = Counter()
        self.free = asyncio.Event()
        self.free.set()
        self.broken = False
        self.known = AsyncCache(self.read)

    async def read(self, key: str) -> str:
        self.reads[key] += 1
        number = self.reads[key]
        await self.free.wait()
        if self.broken:
            raise ConnectionError(f"read {number}")
        return f"{key}{number}"


def run(work: Callable[[Source], Awaitable[None]]) -> None:
    async def go() -> None:
        await work(Source())

    asyncio.run(asyncio.wait_for(go(), 60))


def test_what_is_fresh_is_not_read_again_and_other_keys_are_not_read_at_all() -> None:
    async def work(source: Source) -> None:
        began = time.monotonic()
        assert [await source.known.get("a", began) for _ in range(3)] == ["a1"] * 3
        assert await source.known.get("a", time.monotonic()) == "a2"
        assert await source.known.get("a", began) == "a2" and source.reads == {"a": 2}

    run(work)


def test_those_who_ask_at_once_share_one_read_of_a_key_and_wait_for_no_other_key() -> None:
    async def work(source: Source) -> None:
        source.free.clear()
        now = time.monotonic()
        asking: list[asyncio.Task[str]] = [asyncio.ensure_future(source.known.get("a", now)) for _ in range(50)]
        await asyncio.sleep(0)
        asking[0].cancel()
        others: asyncio.Task[str] = asyncio.ensure_future(source.known.get("b", now))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert source.reads == {"a": 1, "b": 1}, "the second key's read does not wait for the first's"
        source.free.set()
        found: list[Any] = await asyncio.gather(*asking, others, return_exceptions=True)
        assert isinstance(found[0], asyncio.CancelledError) and found[1:] == ["a1"] * 49 + ["b1"]
        assert source.reads == {"a": 1, "b": 1}

    run(work)


def test_a_read_that_began_before_is_not_new_enough() -> None:
    async def work(source: Source) -> None:
        source.free.clear()
        early = asyncio.ensure_future(source.known.get("a", time.monotonic()))
        await asyncio.sleep(0.01)
        late = asyncio.ensure_future(source.known.get("a", time.monotonic()))
        await asyncio.sleep(0)
        source.free.set()
        assert (await early, await late) == ("a1", "a2")

    run(work)


def test_an_error_comes_to_all_who_waited_and_the_next_one_reads_again() -> None:
    async def work(source: Source) -> None:
        source.broken = True
        now = time.monotonic()
        found = await asyncio.gather(*(source.known.get("a", now) for _ in range(3)), return_exceptions=True)
        assert [str(error) for error in found] == ["read 1"] * 3
        source.broken = False
        assert await source.known.get("a", now) == "a2"
        source.broken = True
        with pytest.raises(ConnectionError):
            await source.known.get("a", time.monotonic())
        assert await source.known.get("a", now) == "a2", "what was read before is as old as it was"

    run(work)


def test_who_misses_something_has_it_read_again_and_not_more_often_than_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work(source: Source) -> None:
        before = time.monotonic()
        assert await source.known.refresh("a", before) == "a1", "the first read is new: it waits for nothing"
        assert await source.known.refresh("a", before) == "a1"
        began = time.monotonic()
        for _ in range(3):
            await asyncio.gather(*(source.known.refresh("a", time.monotonic()) for _ in range(20)))
        # The twenty requests of a turn share one read, or two if the clock advances between them.
        assert source.reads["a"] <= 1 + (time.monotonic() - began) / 0.05 + 1

    monkeypatch.setattr(async_cache, "REFRESH_SECONDS", 0.05)
    run(work)


def test_what_nobody_asks_for_is_forgotten_the_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(source: Source) -> None:
        began = time.monotonic()
        for key in "abc":
            await source.known.get(key, began)
        await source.known.get("a", time.monotonic())
        monkeypatch.setattr(async_cache, "MAX_ENTRIES", 3)
        await source.known.get("d", began)
        assert list(source.known.entries) == ["c", "a", "d"]
        monkeypatch.setattr(async_cache, "KEEP_SECONDS", 0.0)
        await source.known.get("e", began)
        assert list(source.known.entries) == ["e"]
        assert (await source.known.get("a", began), source.reads["a"]) == ("a3", 3)

    run(work)


def test_a_value_that_is_forgotten_while_it_is_read_comes_to_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(source: Source) -> None:
        source.free.clear()
        began = time.monotonic()
        waiting = asyncio.ensure_future(source.known.get("a", began))
        await asyncio.sleep(0)
        monkeypatch.setattr(async_cache, "MAX_ENTRIES", 1)
        other = asyncio.ensure_future(source.known.get("b", began))
        await asyncio.sleep(0)
        assert list(source.known.entries) == ["b"]
        source.free.set()
        assert (await waiting, await other) == ("a1", "b1")

    run(work)
