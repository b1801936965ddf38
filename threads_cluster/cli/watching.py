"""Wait for a job: show a live bar on a terminal, or print occasional lines elsewhere. Ctrl-C does not stop the job."""

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

#: Function that displays a job's current state.
Reporter: TypeAlias = Callable[[Mapping[str, Any]], None]

#: Polling intervals in seconds: on a terminal, and elsewhere.
_LIVE_STEP, _STEP = 0.5, 4.0
#: Minimum interval in seconds between log lines about a job in the same state.
_LOG_SECONDS = 10.0


class Interrupted(errors.ClientError):
    """The user pressed Ctrl-C while waiting. The job continues."""

    exit_code = errors.INTERRUPTED


def wait_for_end(session: Session, job_id: str, *, quiet: bool = False, soon: bool = False) -> Json:
    """Wait for a job and return it once it has ended. Its progress is reported on stderr.

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
    """Ignore the job's state."""


class Lines:
    """Reporter for logs: prints a line when the state changes, and at intervals when other fields change."""

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
    """Reporter for terminals: a bar with rate and remaining time, removed when the job ends."""

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
