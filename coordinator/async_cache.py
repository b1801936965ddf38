"""Cache for values that are read asynchronously in one event loop."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

#: Minimum interval in seconds between two reads of a key by `refresh`.
REFRESH_SECONDS = 0.1
#: Maximum number of cache entries.
#: Seconds until a cache entry expires.
MAX_ENTRIES, KEEP_SECONDS = 10_000, 60.0

Value = TypeVar("Value")


@dataclass(kw_only=True, eq=False)
class _Entry(Generic[Value]):
    #: Start time of the last successful read, with the value that was read.
    last: tuple[float, Value] | None = None
    #: Start time of the last read, successful or not.
    started: float = 0.0
    reading: asyncio.Task[None] | None = None

    def is_older(self, not_before: float) -> bool:
        return self.last is None or self.last[0] < not_before


class AsyncCache(Generic[Value]):
    """Cache that reads a value again if the cached one is too old. Each key has at most one read in progress.

    Times are in seconds of the monotonic clock.
    """

    def __init__(self, read: Callable[[str], Awaitable[Value]]) -> None:
        self._read = read
        #: Cache entries, ordered by the start of their last read.
        self.entries: OrderedDict[str, _Entry[Value]] = OrderedDict()

    async def get(self, key: str, not_before: float) -> Value:
        """Return a value read at `not_before` or later. Concurrent callers share one read and its error."""
        return await self._get(key, self.entries.get(key) or _Entry(), not_before)

    async def refresh(self, key: str, not_before: float) -> Value:
        """Return a value read at `not_before` or later. Reads of a key are at least REFRESH_SECONDS apart.

        Call this if the cached value lacks an expected item.
        """
        entry = self.entries.get(key) or _Entry()
        if entry.last and entry.is_older(not_before):
            await asyncio.sleep(entry.last[0] + REFRESH_SECONDS - not_before)
        return await self._get(key, entry, not_before)

    async def _get(self, key: str, entry: _Entry[Value], not_before: float) -> Value:
        while entry.last is None or entry.is_older(not_before):
            if entry.reading is None or entry.reading.done():
                self._begin(key, entry)
            assert entry.reading
            await asyncio.shield(entry.reading)
        return entry.last[1]

    def _begin(self, key: str, entry: _Entry[Value]) -> None:
        entry.started, self.entries[key] = time.monotonic(), entry
        self.entries.move_to_end(key)
        entry.reading = asyncio.create_task(self._read_into(key, entry))
        entry.reading.add_done_callback(_retrieve_error)
        self._evict(entry.started)

    async def _read_into(self, key: str, entry: _Entry[Value]) -> None:
        began = time.monotonic()
        entry.last = began, await self._read(key)

    def _evict(self, now: float) -> None:
        """Remove expired and surplus entries. A read in progress continues for its callers."""
        while len(self.entries) > MAX_ENTRIES or next(iter(self.entries.values())).started < now - KEEP_SECONDS:
            self.entries.popitem(last=False)


def _retrieve_error(reading: asyncio.Task[None]) -> None:
    """Retrieve a read's error, so that asyncio does not log it when no caller is waiting."""
    if not reading.cancelled():
        reading.exception()
