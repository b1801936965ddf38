"""Functions that wait for a job. They show a progress bar on a terminal, and print lines elsewhere.

Ctrl-C does not stop the job.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

from threads_cluster import errors
from threads_cluster.cli import show
from threads_cluster.cli.session import Session
from threads_cluster.client.api import Json
from threads_cluster.terminal import visible

#: Function that displays the current state of a job.
Reporter: TypeAlias = Callable[[Mapping[str, Any]], None]

#: Polling intervals in seconds with and without a terminal.
_LIVE_STEP, _STEP = 0.5, 4.0
#: Minimum interval in seconds between two lines about a job whose state has not changed.
_LOG_SECONDS = 10.0


class Interrupted(errors.ClientError):
    """The user pressed Ctrl-C while the command was waiting. The job continues."""

    exit_code = errors.INTERRUPTED


def wait_for_end(session: Session, job_id: str, *, quiet: bool = False, soon: bool = False) -> Json:
    """Wait until a job ends, and return the job. Its progress is reported on stderr.

    `soon` reports for the first time without delay. Raises Interrupted on Ctrl-C.
    """
    live = sys.stderr.isatty() and not quiet
    step = _LIVE_STEP if live else _STEP
    shown = nullcontext(_ignore) if quiet else bar() if live else nullcontext(Lines())
    first = _LIVE_STEP if soon else None
    job: Json = {}
    try:
        with shown as report:
            for job in session.cluster.follow(job_id, step=step, first=first):
                report(job)
    except KeyboardInterrupt:
        raise Interrupted(describe_running_job(job_id)) from None
    return job


def describe_running_job(job_id: str) -> str:
    return f"the job keeps running; watch it with: cluster watch {job_id}   stop it with: cluster cancel {job_id}"


def exit_code(job: Mapping[str, Any]) -> int:
    return 0 if job["state"] == "done" else errors.JOB_FAILED


def _ignore(job: Mapping[str, Any]) -> None:
    """Do nothing with the state of the job."""


class Lines:
    """Reporter without a terminal. It prints a line when the job's state changes, and sometimes in between."""

    def __init__(self) -> None:
        self._last, self._state, self._next = "", "", 0.0

    def __call__(self, job: Mapping[str, Any]) -> None:
        line, now = show.job_line(job), time.monotonic()
        early = job["state"] == self._state and now < self._next
        if line == self._last or job.get("ended") or early:
            return
        show.say(f"{job['job_id']} {line}")
        self._last, self._state, self._next = line, job["state"], now + _LOG_SECONDS


class bar(AbstractContextManager[Reporter]):  # noqa: N801 - used like the function nullcontext
    """Reporter for terminals. It shows a progress bar, which disappears when the job ends."""

    def __enter__(self) -> Reporter:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        described = TextColumn("{task.description}", markup=False)
        columns = (described, BarColumn(), TextColumn("{task.fields[line]}", markup=False))
        self.progress = Progress(*columns, console=Console(stderr=True, markup=False), transient=True)
        self.task = self.progress.add_task("", total=1, line="")
        self.progress.start()
        return self.show

    def show(self, job: Mapping[str, Any]) -> None:
        self.progress.update(
            self.task,
            completed=job.get("progress") or 0,
            description=visible(f"{job['type']} {job['job_id']}"),
            line=visible(show.job_line(job)),
        )

    def __exit__(self, *exc: object) -> None:
        self.progress.stop()
