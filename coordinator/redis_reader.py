"""Threads that read from Redis for the event loop of a replica."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from jobs.store.server.connection import RedisError, Unreachable

log = logging.getLogger(__name__)

#: Rest after a read that failed.
_RETRY_SECONDS = 0.5


class RedisReader(threading.Thread):
    """Calls `read` repeatedly until it is stopped, whatever fails: all live updates of this replica depend on it.

    One read waits in Redis for at most about a second.
    """

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(name=name, daemon=True)
        self._loop = loop
        self._changed = threading.Condition()
        self._ended = False
        #: When Redis last answered, or nothing was to be read, by time.monotonic.
        self.answered = time.monotonic()

    def read(self) -> None:
        """Read once, and hand over what came. `failed` hears of an error."""
        raise NotImplementedError

    def failed(self, error: Exception) -> None:
        """Do what is to be done after a read that failed."""

    def run(self) -> None:
        """Read until stopped."""
        while not self._ended:
            try:
                self.read()
                self.answered = time.monotonic()
            except (RedisError, *Unreachable) as error:
                log.warning("reading %s failed: %s", self.name, error)
                self._rest(error)
            except Exception as error:
                log.exception("reading %s failed", self.name)
                self._rest(error)

    def _rest(self, error: Exception) -> None:
        self.failed(error)
        time.sleep(_RETRY_SECONDS)

    def hand_over(self, function: Callable[..., None], *arguments: Any) -> None:
        """Have the loop call a function soon."""
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            self._loop.call_soon_threadsafe(function, *arguments)

    def stop(self) -> None:
        """End the thread, within the time of a read."""
        self._ended = True
        with self._changed:
            self._changed.notify()
        self.join(timeout=3)
