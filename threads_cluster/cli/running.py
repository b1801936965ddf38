"""Implementation of `cluster run`: print a program's output, return its exit code, and cancel it on Ctrl-C."""

from __future__ import annotations

import errno
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from threads_cluster import errors
from threads_cluster.cli import formatting, show
from threads_cluster.cli import program_options as options
from threads_cluster.cli.session import Session
from threads_cluster.client.api import Cluster, Json
from threads_cluster.client.output import Shown, Stream
from threads_cluster.client.programs import exit_code, failure
from threads_cluster.terminal import Visible
from threads_protocol.states import TERMINAL

#: Interval in seconds at which the command checks why a program has not started.
_POLL_SECONDS = 8.0
#: Seconds within which an idle runner starts a new job.
_SETTLES_SECONDS = 1.0
#: Timeout in seconds for a request that waits for the end of a job.
_END_SECONDS = 5.0
#: HTTP status if users already follow the maximum number of outputs.
_TOO_MANY = 429
#: Signals that cancel the program like Ctrl-C.
_ENDING = (signal.SIGTERM, signal.SIGHUP)


class StoppedWaiting(errors.ClientError):
    """The user stopped waiting. The message tells what is still running."""

    exit_code = errors.INTERRUPTED


class _JobEnded(Exception):
    """The job has ended, or its unit will not run."""


def note(text: str) -> None:
    """Print a line on stderr, with a prefix that distinguishes it from the program's output."""
    show.say(f"cluster: {text}")


def write(stream: Stream, data: bytes) -> None:
    """Write output unchanged. Raises OSError if stdout fails. Errors of stderr are ignored."""
    if stream == "stdout":
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    with suppress(OSError):
        sys.stderr.flush()
        sys.stderr.buffer.write(data)
        sys.stderr.buffer.flush()


def check_reader() -> None:
    """Raise BrokenPipeError if the program that reads stdout has exited, as in: cluster run -- yes | head

    A local program would notice at its next write, but `cluster` may have nothing to write.
    """
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):  # Stdout has no file descriptor, as in tests
        return
    if any(events & select.POLLERR for _, events in poll.poll(0)):
        raise BrokenPipeError(errno.EPIPE, "the reader of the output has exited")


def wait_for_start(cluster: Cluster, job_id: str) -> Json:
    """Return a job. If the job is waiting, read it again after a moment, because idle runners start jobs quickly."""
    job = cluster.job(job_id)
    return cluster.job(job_id, wait_seconds=_SETTLES_SECONDS) if job.get("waiting_because") else job


class Unit:
    """Output of one unit of a job, which is printed while the unit is running."""

    def __init__(self, session: Session, job_id: str, number: int, shown: Shown) -> None:
        self._cluster = session.cluster
        self._programs = session.cluster.programs
        self._job_id, self._number = job_id, number
        self._shown = shown
        self._looked, self._because = 0.0, ""
        self._said_wait = False

    def follow(self) -> Json:
        """Print the output of the unit while it is running, and then the remaining output. Return the unit."""
        with suppress(_JobEnded):
            self._report_wait(first=True)
            while True:
                self._show_live()
                self._wait_for_end()
        return self.print_remaining()

    def _show_live(self) -> None:
        try:
            for piece in self._programs.follow(self._job_id, self._number, self._report_wait):
                self._show(piece)
        except errors.ApiError as error:
            if error.status != _TOO_MANY:
                raise
            note("too many outputs are being streamed; this output is printed when the unit ends")

    def _show(self, piece: Any) -> None:
        if self._shown.begins_again(piece):
            note("the program was restarted; its output follows from the beginning")
        self._shown.add(piece)
        if self._shown.waits and not self._said_wait:
            note("some output was skipped; the rest is printed when the unit ends")
            self._said_wait = True

    def _report_wait(self, *, first: bool = False) -> None:
        """Print from time to time why the program has not started. Raises _JobEnded if its job has ended."""
        check_reader()
        now = time.monotonic()
        if not first and (self._shown.place or now - self._looked < _POLL_SECONDS):
            return
        self._looked = now
        try:
            job = wait_for_start(self._cluster, self._job_id) if first else self._cluster.job(self._job_id)
        except (errors.Unreachable, errors.ApiError) as error:
            if first or (isinstance(error, errors.ApiError) and error.status < 500):
                raise
            return  # The code that follows the output also notices the failure. It retries for longer.
        because = job.get("waiting_because") or ""
        if because != self._because and because and not self._is_running():
            note(f"{self._job_id} is waiting: {because}")
        self._because = because
        if job["state"] in TERMINAL:
            raise _JobEnded

    def _is_running(self) -> bool:
        """Return True if this unit is running. Its job can still be waiting for capacity."""
        return bool(self._programs.unit(self._job_id, self._number)["state"] == "running")

    def _wait_for_end(self) -> None:
        """Wait a few seconds until the job ends. Raises _JobEnded if the unit will not run again."""
        check_reader()
        job = next(self._cluster.follow(self._job_id, first=_END_SECONDS))
        if job["state"] in TERMINAL or self._programs.unit(self._job_id, self._number)["state"] in ("done", "dead"):
            raise _JobEnded

    def print_current(self) -> None:
        """Print the output that the unit has written so far, even if it is still running."""
        if self._is_running():
            for piece in self._programs.current(self._job_id, self._number):
                self._show(piece)
        if self._is_running():
            so_far = "" if self._shown.place else " and has written nothing yet"
            note(f"unit {self._number} is running{so_far}; follow it with: {self._follow_command()}")
        else:
            self.print_remaining()

    def _follow_command(self) -> str:
        return f"cluster logs {self._job_id} -f --unit {self._number}"

    def print_remaining(self) -> Json:
        """Print stored output that was not printed yet. Return the unit."""
        row = self._programs.unit(self._job_id, self._number)
        before = self._shown.place
        same, lost = self._programs.show_rest(row, self._shown)
        if not same and before:
            note("the output above is from an earlier attempt; the output of the last attempt follows")
        elif not before and (row.get("attempts") or 0) > 1:
            note(f"this is the output of attempt {row['attempts']}; the output of earlier attempts was not stored")
        if self._shown.waits and self._shown.place == before:
            note("the rest of the output was not stored")
        if self._shown.skipped:
            skipped = formatting.size(self._shown.skipped)
            note(f"skipped {skipped} of fast output; print all stored output with: cluster logs {self._job_id}")
        if lost:
            note(f"{formatting.size(lost)} in the middle were not stored: the output exceeds the limit")
        return row


def run(session: Session, job_id: str, *, quiet: bool = False) -> tuple[Json, int]:
    """Print the output of a job's only unit until the unit ends. Return the unit and the exit code.

    With `quiet`, print no note about new files that were not kept.

    Ctrl-C, SIGTERM and SIGHUP cancel the job. A second Ctrl-C raises StoppedWaiting.
    """
    # On a terminal, output that arrives too fast is skipped. A file or pipe receives every byte in order.
    unit = Unit(session, job_id, 0, Shown(write, skips=sys.stdout.isatty()))
    with ending_signals() as received:
        try:
            row = unit.follow()
            job = session.cluster.wait(job_id)
        except KeyboardInterrupt:
            return _cancelled(session, job_id, unit), 128 + (received[0] if received else signal.SIGINT)
        except OSError:
            with suppress(errors.ClientError):
                session.cluster.cancel(job_id)
            raise
    if not quiet:
        note_new_files(session, job)
    return row, program_exit_code(job, row)


def _cancelled(session: Session, job_id: str, unit: Unit) -> Json:
    try:
        cancel(session, job_id)
        row = unit.follow()
        state = session.cluster.wait(job_id)["state"]
    except KeyboardInterrupt:
        raise StoppedWaiting(describe_remaining(session, job_id)) from None
    note(f"job {job_id} is {state} and has no running processes")
    return row


def describe_new_files(result: Mapping[str, Any]) -> str:
    """Describe the new files of a job's programs that were not kept, or return an empty string if there are none."""
    if not (found := result.get("new_files")):
        return ""
    count, names = found["count"], ", ".join(found["names"])
    more = ", ..." if count > len(found["names"]) else ""
    what = "1 new file was" if count == 1 else f"{count:,} new files were"
    return f"{what} not kept ({names}{more}); declare outputs with -o"


def note_new_files(session: Session, job: Mapping[str, Any]) -> None:
    """Print a note about new files that a finished job did not keep. Does nothing if its result cannot be read."""
    if job["type"] != "command" or job["state"] != "done":
        return
    with suppress(errors.ClientError):
        if text := describe_new_files(session.cluster.result(job["job_id"])["result"]):
            note(text)


def cancel(session: Session, job_id: str) -> None:
    """Cancel a job, unless it has already ended."""
    note(f"cancelling {job_id}; press Ctrl-C again to stop waiting")
    try:
        session.cluster.cancel(job_id)
    except errors.ApiError as error:
        if session.cluster.job(job_id)["state"] not in TERMINAL:
            raise error from None


def describe_remaining(session: Session, job_id: str) -> str:
    """Describe which parts of a cancelled job may still be running."""
    state, where = "cancelling", ""
    with suppress(errors.ClientError, KeyboardInterrupt):
        state = session.cluster.job(job_id)["state"]
        running = [row for row in session.cluster.programs.units(job_id, state="running") if row.get("worker")]
        names = ", ".join(sorted({row["worker"] for row in running}))
        where = f"; it can still run on {names} for a few seconds" if names else ""
    return f"job {job_id} is {state}{where}; show it with: cluster job {job_id}"


def program_exit_code(job: Mapping[str, Any], row: Mapping[str, Any]) -> int:
    """Return the exit code of the program. Explain on stderr why it failed if its output does not show this."""
    if row["state"] not in ("done", "dead"):
        why = f": {job['error']}" if job.get("error") else ""
        what = f"was {job['state']}" if job["state"] in ("cancelled", "skipped") else job["state"]
        note(f"job {job['job_id']} {what}{why}")
        return CLUSTER_FAILURE
    code, reason = exit_code(row), row.get("reason")
    if reason or code == CLUSTER_FAILURE:
        why = options.translate_parameters(failure(row))
        note(why if reason in (None, "", "not started", "lost", "disk") else f"ended by the cluster: {why}")
    return code


#: Exit code for a failure of the cluster instead of the program.
CLUSTER_FAILURE = 125


@contextmanager
def ending_signals() -> Iterator[list[int]]:
    """Handle SIGTERM and SIGHUP like Ctrl-C. Yield a list that receives the signal numbers."""
    received: list[int] = []

    def interrupt(number: int, _frame: Any) -> None:
        received.append(number)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    # Ignored signals stay ignored, so that nohup works.
    before = {number: signal.getsignal(number) for number in _ENDING if signal.getsignal(number) != signal.SIG_IGN}
    for number in before:
        signal.signal(number, interrupt)
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def print_log(session: Session, job_id: str, number: int, stream: str | None, *, follow: bool, raw: bool) -> None:
    """Print the output of a unit so far on stdout. With `follow`, continue until the unit ends."""
    visible = Visible() if sys.stdout.isatty() and not raw else None

    def one(each: Stream, data: bytes) -> None:
        if stream in (None, each):
            write("stdout", data if visible is None else visible.add(data))

    shown = Shown(one, skips=True)
    unit = Unit(session, job_id, number, shown)
    unit.follow() if follow else unit.print_current()
    if visible is not None:
        write("stdout", visible.end())
