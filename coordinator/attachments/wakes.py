"""Waiting for what happens to attachments: one reader of their wakes a replica, however many wait here."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from coordinator.redis_reader import RedisReader
from jobs import errors
from jobs.store import Store

#: Seconds after which who waits looks anyway; a wake may be lost with Redis' last writes.
LOOK_SECONDS = 2.0
#: Calls that wait at one replica at most: both sides of every attachment wait for input and for output.
MOST_WAITING = 2000
#: Of these, of one attachment; so whoever asks again and again keeps no other's shell from typing.
MOST_OF_ONE = 12
_BLOCK_MS = 300

Found = TypeVar("Found")


class Wakes:
    """Wakes of one replica. Use inside its loop, once started."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self.count = 0
        self._reader: _Reader | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to hear while somebody waits."""
        self._reader = _Reader(self._store, loop, self._wake)
        self._reader.start()

    def stop(self) -> None:
        """End the thread."""
        if self._reader:
            self._reader.stop()

    async def until(
        self,
        request: Request,
        attachment: str,
        seconds: float,
        look: Callable[[], Found],
        enough: Callable[[Found], bool],
    ) -> Found:
        """Return what `look` finds, in a thread, as soon as it is enough, the time is over or nobody listens.

        OverLimit where too many wait here.
        """
        until = time.monotonic() + seconds
        with self._listening(attachment) as woken:
            while True:
                woken.clear()
                found = await run_in_threadpool(look)
                left = until - time.monotonic()
                if enough(found) or left <= 0 or await request.is_disconnected():
                    return found
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(woken.wait(), min(left, LOOK_SECONDS))

    @contextlib.contextmanager
    def _listening(self, attachment: str) -> Iterator[asyncio.Event]:
        if self.count >= MOST_WAITING:
            raise errors.OverLimit(f"{MOST_WAITING} calls wait at this replica; try again", field="attachment")
        if len(self._waiting.get(attachment, ())) >= MOST_OF_ONE:
            detail = f"{MOST_OF_ONE} calls wait for this shell at this replica; wait for their answers"
            raise errors.OverLimit(detail, field="attachment")
        woken = asyncio.Event()
        self.count += 1
        self._waiting.setdefault(attachment, set()).add(woken)
        self._heed()
        try:
            yield woken
        finally:
            self.count -= 1
            several = self._waiting[attachment]
            several.discard(woken)
            if not several:
                del self._waiting[attachment]
            self._heed()

    def _heed(self) -> None:
        if self._reader:
            self._reader.heed(bool(self._waiting))

    def _wake(self, attachments: set[str] | None) -> None:
        """Wake who waits for these; None: everybody."""
        for attachment in self._waiting.keys() if attachments is None else attachments:
            for woken in self._waiting.get(attachment, ()):
                woken.set()


class _Reader(RedisReader):
    """Reads wakes while anybody waits, and hands them to the loop."""

    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop, wake: Callable[[set[str] | None], None]) -> None:
        super().__init__("attachments", loop)
        self._store, self._tell = store, wake
        self._heeded = False
        self._place = ""

    def heed(self, heeded: bool) -> None:
        """Read from now on, or not; between two calls of one who waits it reads on for a moment."""
        if heeded != self._heeded:
            with self._changed:
                self._heeded = heeded
                self._changed.notify()

    def read(self) -> None:
        """Wake who waits for what came, or everybody where something may have been missed."""
        if not self._place:
            self._place = self._store.attachments.newest_wake()
            self.call_in_loop(self._tell, None)
        self._place, woken = self._store.attachments.woken(self._place, block_ms=_BLOCK_MS)
        if woken:
            self.call_in_loop(self._tell, woken)
        if not self._keeps_on():
            self._place = ""

    def handle_error(self, error: Exception) -> None:
        """Begin anew."""
        self._place = ""

    def _keeps_on(self) -> bool:
        """Return True where somebody waits; else sleep until somebody does."""
        with self._changed:
            slept = not (self._heeded or self._ended)
            while not (self._heeded or self._ended):
                self._changed.wait()
        return not slept
