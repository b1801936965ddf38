"""Values by key that are as fresh as whoever asks needs them, and are read anew when they are older."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

#: Who misses something in what was read has it read again at most this often.
SOON_SECONDS = 0.1
#: Values that are kept, and seconds for which one is kept after it was read.
MOST, KEEP_SECONDS = 10_000, 60.0

Value = TypeVar("Value")


@dataclass(kw_only=True, eq=False)
class _Kept(Generic[Value]):
    #: When the last read that went well began, and what it found.
    last: tuple[float, Value] | None = None
    #: When the last read began.
    begun: float = 0.0
    reading: asyncio.Task[None] | None = None

    def is_older(self, moment: float) -> bool:
        return self.last is None or self.last[0] < moment


class Fresh(Generic[Value]):
    """Values by key, each read when somebody asks for it and it is too old, one read of a key at a time.

    For one event loop. Moments are seconds of the monotonic clock.
    """

    def __init__(self, read: Callable[[str], Awaitable[Value]]) -> None:
        self._read = read
        #: What was read last is at the end.
        self.entries: OrderedDict[str, _Kept[Value]] = OrderedDict()

    async def since(self, key: str, moment: float) -> Value:
        """Return the value, read at this moment or later; those who wait for the same read share its error."""
        return await self._since(key, self.entries.get(key) or _Kept(), moment)

    async def anew(self, key: str, moment: float) -> Value:
        """Return the same for who missed something in what there was, SOON_SECONDS after the read before at least."""
        kept = self.entries.get(key) or _Kept()
        if kept.last and kept.is_older(moment):
            await asyncio.sleep(kept.last[0] + SOON_SECONDS - moment)
        return await self._since(key, kept, moment)

    async def _since(self, key: str, kept: _Kept[Value], moment: float) -> Value:
        while kept.last is None or kept.is_older(moment):
            if kept.reading is None or kept.reading.done():
                self._begin(key, kept)
            assert kept.reading
            await asyncio.shield(kept.reading)
        return kept.last[1]

    def _begin(self, key: str, kept: _Kept[Value]) -> None:
        kept.begun, self.entries[key] = time.monotonic(), kept
        self.entries.move_to_end(key)
        kept.reading = asyncio.create_task(self._read_into(key, kept))
        kept.reading.add_done_callback(_heard)
        self._forget(kept.begun)

    async def _read_into(self, key: str, kept: _Kept[Value]) -> None:
        began = time.monotonic()
        kept.last = began, await self._read(key)

    def _forget(self, now: float) -> None:
        """Forget what nobody has asked for; a read that somebody waits for goes on."""
        while len(self.entries) > MOST or next(iter(self.entries.values())).begun < now - KEEP_SECONDS:
            self.entries.popitem(last=False)


def _heard(reading: asyncio.Task[None]) -> None:
    """Look at the error of a read: nobody may be left who waits for it."""
    if not reading.cancelled():
        reading.exception()
