"""Live progress of jobs, in a terminal as a bar of rich and in a notebook as HTML."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Protocol, Self

from threads_cluster.cli import formatting
from threads_cluster.client import display
from threads_cluster.client.interrupts import in_notebook

#: Minimum interval in seconds between two updates of the display.
_STEP_SECONDS = 0.1
#: Number of measured rates in the sparkline.
_RATES = 60


class _View(Protocol):
    def show(self, state: ProgressBar) -> None: ...

    def close(self) -> None: ...


class ProgressBar:
    """Display of how many units are done. Use it as a context manager, and call `update` with the current numbers.

    The display appears at the first update. It is written to stderr in a terminal and in a script, and below the cell
    in a notebook. Any thread can call the methods.
    """

    def __init__(self, title: str = "") -> None:
        self.title = title
        self.done, self.total, self.state = 0, 0, "running"
        #: Finished units per second, in the order of the measurements.
        self.rates: deque[float] = deque(maxlen=_RATES)
        self._began = self._measured = time.monotonic()
        #: Number of finished units at the last measurement.
        self._counted = 0
        self._view: _View | None = None
        #: Timer of the next update of the display, if one is due.
        self._timer: threading.Timer | None = None
        self._lock = threading.RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None and self.state == "running":
            self.state = "cancelled" if issubclass(kind, KeyboardInterrupt) else "failed"
        self.close()

    def close(self) -> None:
        """Show the last numbers, and end the display."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            if self._view is not None:
                self._view.show(self)
                self._view.close()
                self._view = None

    def update(self, done: int, total: int, state: str = "running") -> None:
        """Show that `done` of `total` units are done. Updates in quick succession are shown together."""
        with self._lock:
            self.done, self.total, self.state = done, total, state
            if self._view is None:
                self._view = _NotebookView() if in_notebook() else _TerminalView()
                self._view.show(self)
            elif done >= total or state != "running" or time.monotonic() - self._measured >= _STEP_SECONDS:
                self._show()
            elif self._timer is None:
                self._timer = threading.Timer(_STEP_SECONDS, self._show)
                self._timer.daemon = True
                self._timer.start()

    def _show(self) -> None:
        with self._lock:
            now, self._timer = time.monotonic(), None
            passed = now - self._measured
            if passed >= _STEP_SECONDS / 2:  # Rates over a shorter time are inaccurate
                self.rates.append(max(0.0, (self.done - self._counted) / passed))
                self._measured, self._counted = now, self.done
            if self._view is not None:
                self._view.show(self)

    def follow(self, job: Mapping[str, Any]) -> None:
        """Show the progress of a job."""
        self.title = self.title or str(job["title"])
        if job["started"] is not None:
            self.update(int(job["done"]), int(job["total"]), job["state"])

    @property
    def seconds(self) -> float:
        """Return the time since the start in seconds."""
        return self._measured - self._began

    def to_html(self) -> str:
        """Return the HTML with which notebooks display the progress."""
        rate = self.done / self.seconds if self.seconds > 0 else 0.0
        return display.block(
            display.heading(self.title, self.state, ""),
            display.bar(self.done / self.total if self.total else 0.0, self.state),
            display.note(f"{self.done:,} of {self.total:,}", formatting.duration(self.seconds), formatting.rate(rate)),
            display.sparkline(list(self.rates)),
        )


def follow(jobs: Iterable[Mapping[str, Any]], is_shown: bool) -> Mapping[str, Any]:
    """Wait for the last of a job's observations, and return it. If `is_shown`, show the progress meanwhile."""
    job: Mapping[str, Any] = {}
    with ProgressBar() as progress:
        for job in jobs:
            if is_shown:
                progress.follow(job)
    return job


class _NotebookView:
    """Output of a cell that is replaced at each update."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, state: ProgressBar) -> None:
        from IPython.display import HTML, display

        page = HTML(state.to_html())
        if self._handle is None:
            self._handle = display(page, display_id=True)
        else:
            self._handle.update(page)

    def close(self) -> None:
        pass


class _TerminalView:
    """Bar of rich. Without a terminal, rich writes only the last state."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        # rich would redirect the program's stdout to stderr, even if stdout is a file
        is_terminal = sys.stdout is not None and sys.stdout.isatty()
        self._bar = Progress(*columns, console=Console(file=sys.stderr), redirect_stdout=is_terminal)
        self._task = self._bar.add_task("")
        self._bar.start()

    def show(self, state: ProgressBar) -> None:
        self._bar.update(self._task, description=state.title, completed=state.done, total=state.total)

    def close(self) -> None:
        self._bar.stop()
