"""Threads behind an executor: they submit calls as jobs, and read the results."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from threads_cluster.client.calling.batches import Call, CallQueue
from threads_cluster.client.calling.call_display import CallDisplay
from threads_cluster.client.calling.call_jobs import CallJob
from threads_cluster.client.calling.futures import count_calls
from threads_cluster.client.calling.launching import Launching
from threads_cluster.client.calling.options import Options
from threads_cluster.client.calling.request_threads import RequestThreads
from threads_cluster.client.interrupts import CancelOnInterrupt
from threads_cluster.errors import ClientError
from threads_protocol.states import TERMINAL

if TYPE_CHECKING:
    from threads_cluster.client.api import Cluster

#: Number of threads that send requests.
_THREADS = 4
#: Seconds after a read in which results can arrive without an event, because the cluster limits progress events.
_SILENT_SECONDS = 0.25
#: State of a job after its first unit has started.
_RUNNING = "running"


class Dispatcher:
    """Makes the calls of one executor. Its threads do not refer to the executor, so that it can be collected."""

    def __init__(self, cluster: Cluster, options: Options) -> None:
        self._cluster, self._options, self._watcher = cluster, options, cluster.watcher
        self._launching = Launching(cluster, options)
        self._queue = CallQueue()
        self._open_calls: set[Future[Any]] = set()
        self._jobs: set[CallJob] = set()
        #: Number of jobs whose submission has not ended.
        self._submissions = 0
        self._changed = threading.Condition(threading.RLock())
        self._is_open, self._has_started, self._has_runner = True, False, options.queue
        self._why_closed = "cannot schedule new futures after shutdown"
        self._display = CallDisplay() if options.progress else None
        #: Handling of Ctrl-C while a thread waits for calls.
        self.interrupts = CancelOnInterrupt(lambda: count_calls(self._open_calls), self.abort)

    # -- calls ---------------------------------------------------------------------------------------------------------

    def add(self, call: Call) -> None:
        """Make a call. Raises RuntimeError after `close`."""
        with self._changed:
            if not self._is_open:
                raise RuntimeError(self._why_closed)
            if not self._has_started:
                self._start()
            if self._display is not None:  # Before the call, which could end before a slow display has appeared
                self._display.add(call.name)
                call.future.add_done_callback(self._display.end)
            self._open_calls.add(call.future)
            self._queue.put(call)
        call.future.add_done_callback(self._forget)

    def close(self) -> None:
        """Accept no further calls. The threads end when all calls have ended."""
        with self._changed:
            if self._is_open:
                self._is_open = False
                self._queue.close()
                self._end_if_done()

    def disown(self) -> None:
        """Accept no calls in a forked process, in which the threads do not exist."""
        self._changed = threading.Condition(threading.RLock())
        self._is_open, self._has_started = False, False
        self._open_calls, self._jobs = set(), set()
        self._why_closed = "this executor belongs to the parent process; after a fork, create another executor"

    def cancel(self) -> None:
        """Cancel the calls that no runner has started."""
        with self._changed:
            calls = list(self._open_calls)
        for future in calls:
            future.cancel()

    def abort(self) -> None:
        """Cancel all calls, even those that are running."""
        self.cancel()
        with self._changed:
            jobs = list(self._jobs)
        for job in jobs:
            with suppress(ClientError):
                job.cancel()

    def wait(self) -> None:
        """Wait until all calls have ended and no request is open. The second Ctrl-C cancels the calls."""
        with self.interrupts, self._changed:
            self._changed.wait_for(lambda: not self._open_calls and not self._jobs)

    def _forget(self, future: Future[Any]) -> None:
        with self._changed:
            self._open_calls.discard(future)
            if not self._open_calls:
                self.interrupts.forget()
            self._changed.notify_all()
            self._end_if_done()

    @contextmanager
    def burst(self) -> Iterator[None]:
        """Combine calls of one function that are added in this context into one job, and show all of them together."""
        with self._queue.burst(), nullcontext() if self._display is None else self._display.held():
            yield

    # -- threads -------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        self._has_started = True
        self._watcher.enter()
        self._tasks = RequestThreads(_THREADS, "cluster-executor")
        threading.Thread(target=self._send, name="cluster-executor-sender", daemon=True).start()
        _dispatchers.add(self)

    def _end_if_done(self) -> None:
        """End the threads if all calls have ended and no more can be added. Call this with the lock."""
        if self._has_started and not (self._is_open or self._open_calls or self._jobs):
            self._has_started = False
            self._tasks.close()
            self._watcher.leave()

    def _send(self) -> None:
        while self._send_next():
            pass

    def _send_next(self) -> bool:
        """Submit the next calls, and return False after the last ones. While this waits, nothing refers to calls."""
        batches, is_open = self._queue.take(self._is_idle)
        for batch in batches:
            job = CallJob(self._cluster, batch, self._options, self._launching)
            with self._changed:
                self._jobs.add(job)
                self._submissions += 1
            job.add_settled_callback(partial(self._run, self._settle, job))
            self._run(self._submit, job)
        return is_open

    def _is_idle(self) -> bool:
        """Return True if a call need not wait for others that could join its job."""
        return not self._submissions and self._options.max_running is None

    def _run(self, step: Callable[[CallJob], None], job: CallJob, delay: float = 0.0) -> None:
        """Execute one step of a job in another thread."""
        self._tasks.add(partial(self._step, step, job), delay)

    def _step(self, step: Callable[[CallJob], None], job: CallJob) -> None:
        step(job)
        if job.has_ended:
            self._watcher.remove(job.job_id)
            job.delete_artifacts()
            with self._changed:
                self._jobs.discard(job)
                self._changed.notify_all()
                self._end_if_done()

    def _submit(self, job: CallJob) -> None:
        has_ended = job.submit(check_runner=not self._has_runner)
        with self._changed:
            self._submissions -= 1
        self._has_runner = self._has_runner or bool(job.job_id)
        if has_ended:
            job.read(True)
        else:
            self._watcher.add(job.job_id, partial(self._schedule, job))

    def _settle(self, job: CallJob) -> None:
        # The job has ended, the cluster does not answer, or the client was closed
        with suppress(ClientError, RuntimeError):
            job.drop_cancelled()

    def _schedule(self, job: CallJob, state: str | None) -> None:
        """Read the results of a job: at once if it has ended, else after a pause."""
        has_ended = None if state is None else state in TERMINAL
        if has_ended is False:
            if job.is_read_due or (state == _RUNNING and job.start_only_call()):
                return
            job.is_read_due = True
        delay = 0.0 if has_ended else job.next_read - time.monotonic()
        self._run(partial(self._read, has_ended=has_ended), job, delay)

    def _read(self, job: CallJob, has_ended: bool | None) -> None:
        job.is_read_due = False
        job.read(has_ended)
        if has_ended is False and not job.has_ended:
            self._run(partial(self._read_again, read_at=job.next_read), job, _SILENT_SECONDS)

    def _read_again(self, job: CallJob, read_at: float) -> None:
        """Read results that arrived too soon after an event to get another one, unless the job was read since."""
        if job.next_read == read_at:
            job.read(False)


_dispatchers: WeakSet[Dispatcher] = WeakSet()


def _disown_all() -> None:
    for dispatcher in list(_dispatchers):
        dispatcher.disown()
    _dispatchers.clear()


if hasattr(os, "register_at_fork"):  # Windows cannot fork
    os.register_at_fork(after_in_child=_disown_all)


@atexit.register
def _finish_all() -> None:
    """Wait for the calls of executors that were not shut down, as other executors do. Ctrl-C cancels the calls."""
    for dispatcher in list(_dispatchers):
        dispatcher.close()
        try:
            dispatcher.wait()
        except KeyboardInterrupt:
            dispatcher.abort()
