"""Live progress of the calls of an executor."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from threads_cluster.client.progress_bars import ProgressBar


class CallDisplay:
    """Live display of calls. It opens with the first call and closes when all calls have ended. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bar: ProgressBar | None = None
        self._name = ""
        self._total = self._done = self._failed = self._cancelled = self._holds = 0

    def add(self, name: str) -> None:
        """Show one more call. The first call names the display."""
        with self._lock:
            if self._bar is None:
                self._name, self._bar = name, ProgressBar(name)
                self._total = self._done = self._failed = self._cancelled = 0
            self._total += 1
            self._bar.update(self._done, self._total)

    def end(self, future: Future[Any]) -> None:
        """Show that a call has ended."""
        with self._lock:
            assert self._bar is not None
            self._count(future)
            self._bar.title = f"{self._name} ({self._failed:,} failed)" if self._failed else self._name
            self._update()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep the display while calls are added, even if all calls so far have ended."""
        with self._lock:
            self._holds += 1
        try:
            yield
        finally:
            with self._lock:
                self._holds -= 1
                self._update()

    def _update(self) -> None:
        if self._bar is None:
            return
        if self._holds or self._done + self._cancelled < self._total:
            self._bar.update(self._done, self._total)
            return
        self._bar.update(self._done, self._total, self._state)
        self._bar.close()
        self._bar = None

    def _count(self, future: Future[Any]) -> None:
        if future.cancelled():
            self._cancelled += 1
            return
        self._done += 1
        self._failed += future.exception() is not None

    @property
    def _state(self) -> str:
        if self._cancelled:
            return "cancelled"
        return "failed" if self._failed else "done"
