"""Futures of calls on the cluster."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import CancelledError, Future
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from threads_cluster.client.calling.stored_values import StoredValue
from threads_cluster.errors import CallFailed

if TYPE_CHECKING:
    from threads_cluster.client.calling.values import ValueStore
    from threads_cluster.client.interrupts import CancelOnInterrupt


class ClusterFuture(Future[Any]):
    """Future of one call. It is running from the time when the client sees that a runner has started the call.

    `cancel` succeeds until then. A call that starts at the same time may still run; its result is dropped. A large
    result of a task stays in the cluster until `result` is called.
    """

    def __init__(self, interrupts: CancelOnInterrupt | None = None, *, is_lazy: bool = False) -> None:
        """`interrupts` handles Ctrl-C while a thread waits for the call. If `is_lazy`, large results are not loaded."""
        super().__init__()
        self.is_lazy = is_lazy
        #: Jobs of unfinished calls that need the result.
        self.users: set[object] = set()
        #: Handling of Ctrl-C, which the calls of an executor share.
        self.interrupts = interrupts
        #: ID of the job of the call, or None until the job is submitted.
        self.job_id: str | None = None
        #: Number of the call's unit in its job, and number of units of the job.
        self.unit = self.job_units = 0
        #: Values of the client that made the call, or None until the job is submitted.
        self.values: ValueStore | None = None
        #: Result and exception of the call, or None before its end. A forked process reads this without a lock.
        self._outcome: tuple[Any, BaseException | None] | None = None
        self._changing = threading.RLock()
        self._on_submitted: list[Callable[[ClusterFuture], object]] = []
        _futures.add(self)

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait for the result in a coroutine. If its task is cancelled, the call is cancelled too."""
        return self._wait().__await__()

    async def _wait(self) -> Any:
        await asyncio.wrap_future(self._end())
        return self.result() if self.stored is None else await asyncio.to_thread(self.result)

    def _end(self) -> Future[None]:
        """Return a future without a value that ends and is cancelled together with this one."""
        ended: Future[None] = Future()
        ended.add_done_callback(lambda ended: self.cancel() if ended.cancelled() else None)
        self.add_done_callback(lambda _: ended.cancel() if self.cancelled() else _set_done(ended))
        return ended

    @property
    def stored(self) -> StoredValue | None:
        """Return the result of a call that has ended, if it is stored in the cluster, and None otherwise."""
        if not self.done() or self.cancelled() or self.exception() is not None:
            return None
        value = super().result()
        return value if isinstance(value, StoredValue) else None

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the call, and return its result. Raises the exception of the call.

        Raises CallFailed if the result was deleted, and TimeoutError after `timeout` seconds. During the wait, the
        first Ctrl-C prints a message, and the second one cancels the calls of the executor.
        """
        try:
            with self._waiting():
                value = super().result(timeout)
            return value.load() if isinstance(value, StoredValue) else value
        finally:
            del self  # The traceback of an exception must not keep the future, which keeps the exception

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the call, and return its exception, or None if it returned a value. Otherwise like `result`."""
        with self._waiting():
            return super().exception(timeout)

    def _waiting(self) -> AbstractContextManager[object]:
        return nullcontext() if self.interrupts is None or self.done() else self.interrupts

    def cancel(self) -> bool:
        """Cancel the call if no runner has started it. Return False if it is running or has ended."""
        with self._changing:
            was_cancelled = self.cancelled()
            is_cancelled = super().cancel()
            if is_cancelled and not was_cancelled:
                self.set_running_or_notify_cancel()  # Wakes `wait` and `as_completed`
                self._outcome = None, CancelledError()
            return is_cancelled

    def start(self) -> bool:
        """Mark the call as running. Return False if it was cancelled or has ended."""
        with self._changing:
            return not self.done() and (self.running() or self.set_running_or_notify_cancel())

    def finish(self, value: Any = None, error: BaseException | None = None) -> None:
        """Set the result or the exception, unless the call was cancelled."""
        with self._changing:  # A call and the calls on which it depends can fail at the same time
            if not self.start() or self._outcome is not None:
                return
            self._outcome = value, error
        if error is None:
            self.set_result(value)
        else:
            self.set_exception(error)

    def add_submitted_callback(self, function: Callable[[ClusterFuture], object]) -> None:
        """Call `function` with this future as soon as `job_id` is known, or now if it is."""
        with self._changing:
            if self.job_id is None:
                self._on_submitted.append(function)
                return
        function(self)

    def set_job(self, job_id: str, unit: int, units: int = 1, values: ValueStore | None = None) -> None:
        """Set the job and the unit of the call, and run the callbacks. `units` is the number of units of the job."""
        with self._changing:
            self.job_id, self.unit, self.job_units, self.values = job_id, unit, units, values
            waiting, self._on_submitted = self._on_submitted, []
        for function in waiting:
            function(self)

    def disown(self) -> None:
        """Prepare for use in a forked process. A call that has not ended fails there, and continues for the parent."""
        super().__init__()  # At the fork, another thread could have held the lock
        self._changing, self._on_submitted = threading.RLock(), []
        (value, error), self._outcome = self._outcome or (None, _belongs_to_parent()), None
        if isinstance(value, StoredValue):
            value.disown()
        if isinstance(error, CancelledError):
            self.cancel()
        else:
            self.finish(value, error)


def _set_done(ended: Future[None]) -> None:
    if ended.set_running_or_notify_cancel():
        ended.set_result(None)


def when_done(futures: Iterable[Future[Any]], function: Callable[[], object]) -> None:
    """Call a function when all of the futures have ended. It is called now if they have."""
    several = list(futures)
    left, lock = [len(several)], threading.Lock()

    def count(future: Future[Any] | None) -> None:
        with lock:
            left[0] -= 1
            is_last = not left[0]
        if is_last:
            function()

    for future in several:
        future.add_done_callback(count)
    if not several:
        function()


def count_calls(futures: Iterable[Future[Any]]) -> str:
    """Return a text with the number of calls that have not ended."""
    count = sum(not future.done() for future in list(futures))
    return "1 call" if count == 1 else f"{count:,} calls"


def _belongs_to_parent() -> CallFailed:
    error = CallFailed("the result of the call goes to the parent process, because this process was forked from it")
    error.next = "make the call again in this process"
    return error


_futures: WeakSet[ClusterFuture] = WeakSet()


def _disown_all() -> None:
    for future in list(_futures):
        future.disown()


if hasattr(os, "register_at_fork"):  # Windows cannot fork
    os.register_at_fork(after_in_child=_disown_all)
