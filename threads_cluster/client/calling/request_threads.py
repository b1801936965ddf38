"""Threads that execute the requests of an executor: submissions of jobs, and reads of their results."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from typing import TypeAlias

Task: TypeAlias = Callable[[], object]


class RequestThreads:
    """Threads that execute tasks at their times. They do not keep the interpreter from ending."""

    def __init__(self, threads: int, name: str) -> None:
        self._waiting: list[tuple[float, int, Task]] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._is_open = True
        for number in range(threads):
            threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True).start()

    def add(self, task: Task, delay: float = 0.0) -> None:
        """Execute a task after `delay` seconds. Tasks must not raise exceptions."""
        with self._changed:
            heapq.heappush(self._waiting, (time.monotonic() + delay, next(self._numbers), task))
            self._changed.notify()

    def close(self) -> None:
        """End the threads after their current tasks."""
        with self._changed:
            self._is_open = False
            self._changed.notify_all()

    def _work(self) -> None:
        while (task := self._next()) is not None:
            task()
            del task

    def _next(self) -> Task | None:
        with self._changed:
            while self._is_open:
                delay = self._waiting[0][0] - time.monotonic() if self._waiting else None
                if delay is not None and delay <= 0:
                    return heapq.heappop(self._waiting)[2]
                self._changed.wait(delay)
        return None
