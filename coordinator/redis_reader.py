"""Base class of threads that read from Redis for an event loop."""

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

#: Seconds to wait after a failed read.
_RETRY_SECONDS = 0.5


class RedisReader(threading.Thread):
    """Thread that calls `read` repeatedly until stopped.

    Errors do not end the thread, because live updates of this replica depend on it. A read must block in Redis for at
    most about one second.
    """

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(name=name, daemon=True)
        self._loop = loop
        self._changed = threading.Condition()
        self._ended = False
        #: Time of the last successful read, from time.monotonic.
        self.answered = time.monotonic()

    def read(self) -> None:
        """Read once, and pass the data to the event loop with `call_in_loop`."""
        raise NotImplementedError

    def handle_error(self, error: Exception) -> None:
        """Handle the error of a failed read. The default does nothing."""

    def run(self) -> None:
        """Call `read` until the thread is stopped."""
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
        self.handle_error(error)
        time.sleep(_RETRY_SECONDS)

    def call_in_loop(self, function: Callable[..., None], *arguments: Any) -> None:
        """Schedule a function call in the event loop."""
        with contextlib.suppress(RuntimeError):  # the event loop may be closed
            self._loop.call_soon_threadsafe(function, *arguments)

    def stop(self) -> None:
        """Stop the thread after the current read."""
        self._ended = True
        with self._changed:
            self._changed.notify()
        self.join(timeout=3)
