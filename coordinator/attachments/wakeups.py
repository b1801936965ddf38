"""Wait for changes to attachments. One reader per replica receives the wake-ups for all waiting calls."""

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

#: Interval in seconds at which waiting calls check their attachment, in case Redis loses a wake-up signal.
POLL_SECONDS = 2.0
#: Maximum number of waiting calls per replica.
MOST_WAITING = 2000
#: Maximum number of waiting calls per attachment, so that one client cannot use up the limit of the replica.
MOST_OF_ONE = 12
_BLOCK_MS = 300

Found = TypeVar("Found")


class Wakes:
    """Makes calls wait for changes to attachments. Use this only in the event loop passed to `start`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self.count = 0
        self._reader: _Reader | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the reader thread."""
        self._reader = _Reader(self._store, loop, self._wake)
        self._reader.start()

    def stop(self) -> None:
        """Stop the reader thread."""
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
        """Call `look` in a thread until `enough` accepts its result, the time is up, or the client disconnects.

        Return the last result. Raise OverLimit if too many calls are waiting.
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
                    await asyncio.wait_for(woken.wait(), min(left, POLL_SECONDS))

    @contextlib.contextmanager
    def _listening(self, attachment: str) -> Iterator[asyncio.Event]:
        if self.count >= MOST_WAITING:
            raise errors.OverLimit(
                f"{MOST_WAITING} calls are waiting at this replica, the maximum; try again", field="attachment"
            )
        if len(self._waiting.get(attachment, ())) >= MOST_OF_ONE:
            detail = f"{MOST_OF_ONE} calls are waiting for this shell at this replica, the maximum; wait for a response"
            raise errors.OverLimit(detail, field="attachment")
        woken = asyncio.Event()
        self.count += 1
        self._waiting.setdefault(attachment, set()).add(woken)
        self._update_reader()
        try:
            yield woken
        finally:
            self.count -= 1
            several = self._waiting[attachment]
            several.discard(woken)
            if not several:
                del self._waiting[attachment]
            self._update_reader()

    def _update_reader(self) -> None:
        if self._reader:
            self._reader.set_active(bool(self._waiting))

    def _wake(self, attachments: set[str] | None) -> None:
        """Wake the calls that wait for these attachments, or all calls if `attachments` is None."""
        for attachment in self._waiting.keys() if attachments is None else attachments:
            for woken in self._waiting.get(attachment, ()):
                woken.set()


class _Reader(RedisReader):
    """Reads wake-ups from Redis while calls are waiting, and passes them to the event loop."""

    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop, wake: Callable[[set[str] | None], None]) -> None:
        super().__init__("attachments", loop)
        self._store, self._wake = store, wake
        self._is_active = False
        self._position = ""

    def set_active(self, is_active: bool) -> None:
        """Start reading, or stop after the current read."""
        if is_active != self._is_active:
            with self._changed:
                self._is_active = is_active
                self._changed.notify()

    def read(self) -> None:
        """Wake the calls whose attachments changed, or all calls if a wake-up may have been missed."""
        if not self._position:
            self._position = self._store.attachments.newest_wake()
            self.call_in_loop(self._wake, None)
        self._position, woken = self._store.attachments.woken(self._position, block_ms=_BLOCK_MS)
        if woken:
            self.call_in_loop(self._wake, woken)
        if not self._wait_while_idle():
            self._position = ""

    def handle_error(self, error: Exception) -> None:
        """Discard the read position, so that the next read wakes all calls."""
        self._position = ""

    def _wait_while_idle(self) -> bool:
        """Return True if calls are waiting. Otherwise sleep until a call is waiting, and return False."""
        with self._changed:
            slept = not (self._is_active or self._ended)
            while not (self._is_active or self._ended):
                self._changed.wait()
        return not slept
