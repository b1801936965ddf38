"""Values by key that are as fresh as whoever asks needs them, and are read anew when they are older."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

#: Who misses something in what was read has it read again at most this often.
REFRESH_SECONDS = 0.1
#: Values that are entry, and seconds for which one is entry after it was read.
MAX_ENTRIES, KEEP_SECONDS = 10_000, 60.0

Value = TypeVar("Value")


@dataclass(kw_only=True, eq=False)
class _Entry(Generic[Value]):
    #: When the last read that went well began, and what it found.
    last: tuple[float, Value] | None = None
    #: When the last read began.
    begun: float = 0.0
    reading: asyncio.Task[None] | None = None

    def is_older(self, not_before: float) -> bool:
        return self.last is None or self.last[0] < not_before


class AsyncCache(Generic[Value]):
    """Values by key, each read when somebody asks for it and it is too old, one read of a key at a time.

    For one event loop. Moments are seconds of the monotonic clock.
    """

    def __init__(self, read: Callable[[str], Awaitable[Value]]) -> None:
        self._read = read
        #: What was read last is at the end.
        self.entries: OrderedDict[str, _Entry[Value]] = OrderedDict()

    async def get(self, key: str, not_before: float) -> Value:
        """Return the value, read at this not_before or later; those who wait for the same read share its error."""
        return await self._get(key, self.entries.get(key) or _Entry(), not_before)

    async def refresh(self, key: str, not_before: float) -> Value:
        """Return the value read at this time or later, at least REFRESH_SECONDS after the previous read."""
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
        entry.begun, self.entries[key] = time.monotonic(), entry
        self.entries.move_to_end(key)
        entry.reading = asyncio.create_task(self._read_into(key, entry))
        entry.reading.add_done_callback(_retrieve_error)
        self._evict(entry.begun)

    async def _read_into(self, key: str, entry: _Entry[Value]) -> None:
        began = time.monotonic()
        entry.last = began, await self._read(key)

    def _evict(self, now: float) -> None:
        """Forget what nobody has asked for; a read that somebody waits for goes on."""
        while len(self.entries) > MAX_ENTRIES or next(iter(self.entries.values())).begun < now - KEEP_SECONDS:
            self.entries.popitem(last=False)


def _retrieve_error(reading: asyncio.Task[None]) -> None:
    """Look at the error of a read: nobody may be left who waits for it."""
    if not reading.cancelled():
        reading.exception()
