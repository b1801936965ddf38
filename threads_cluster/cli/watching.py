"""Waiting for a job at a terminal: a live bar there, a line now and then elsewhere, and a Ctrl-C that harms nothing."""

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

#: Shows the job as it is now.
Reporter: TypeAlias = Callable[[Mapping[str, Any]], None]

#: Seconds between two looks: smooth for eyes; elsewhere so that a cluster that hangs is noticed soon.
_LIVE_STEP, _STEP = 0.5, 4.0
#: Seconds between two lines of a log about a job in the same state. The first comes after a look: many have ended then.
_LOG_SECONDS = 10.0


class Interrupted(errors.ClientError):
    """Ctrl-C while waiting; the job goes on."""

    exit_code = errors.INTERRUPTED


def until_end(session: Session, job_id: str, *, quiet: bool = False, soon: bool = False) -> Json:
    """The job when it has ended, shown on stderr meanwhile; `soon`: at once for the first time. Ctrl-C: Interrupted."""
    live = sys.stderr.isatty() and not quiet
    step = _LIVE_STEP if live else _STEP
    shown = nullcontext(_nothing) if quiet else bar() if live else nullcontext(Lines())
    first = _LIVE_STEP if soon else None
    job: Json = {}
    try:
        with shown as report:
            for job in session.cluster.follow(job_id, step=step, first=first):
                report(job)
    except KeyboardInterrupt:
        raise Interrupted(goes_on(job_id)) from None
    return job


def goes_on(job_id: str) -> str:
    return f"the job goes on; watch it with: cluster watch {job_id}   stop it with: cluster cancel {job_id}"


def exit_code(job: Mapping[str, Any]) -> int:
    return 0 if job["state"] == "done" else errors.JOB_FAILED


def _nothing(job: Mapping[str, Any]) -> None:
    """Shows nothing."""


class Lines:
    """For logs: a line when the state has changed, and now and then when something else has."""

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
    """For people: a bar with rate and time left; it is gone when the job has ended."""

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
