"""Stages of a long benchmark: each begins while there is time, says how far it is, and fails without the others."""

from __future__ import annotations

import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from types import FrameType, TracebackType
from typing import Any

from benchmarks.measure import Incomplete, Row


class Stages:
    """Rows of the stages that were run. Within the context, SIGTERM ends the benchmark as Ctrl-C does."""

    def __init__(self, goal: str, budget_seconds: float) -> None:
        self._goal = goal
        self._began = time.monotonic()
        self._until = self._began + budget_seconds
        self._rows: list[Row] = []
        self._missing: list[str] = []
        self._before: Any = None

    def __enter__(self) -> Stages:
        self._before = signal.signal(signal.SIGTERM, _interrupt)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        signal.signal(signal.SIGTERM, self._before)

    def say(self, text: str) -> None:
        """Print a line with the minutes and seconds since the beginning."""
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        print(f"{self._goal} {minutes}:{seconds:02d} {text}", file=sys.stderr, flush=True)

    def left(self) -> float:
        """Return the seconds that are left."""
        return self._until - time.monotonic()

    def run(self, name: str, measure: Callable[[], Iterable[Row] | None]) -> None:
        """Take the rows of a stage. One that fails is named at the end; so is one for which no time is left."""
        if self.left() <= 0:
            self._missing.append(name)
            self.say(f"{name}: left out, no time is left")
            return
        self.say(f"{name}: begins")
        try:
            self._rows.extend(measure() or ())
        except Exception:
            self._missing.append(name)
            traceback.print_exc()
            self.say(f"{name}: failed")

    def rows(self) -> list[Row]:
        """Return the rows of all stages; Incomplete when some are missing."""
        if self._missing:
            raise Incomplete(", ".join(self._missing), self._rows)
        return self._rows


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
