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

from threads_cluster.errors import CallFailed

if TYPE_CHECKING:
    from threads_cluster.client.interrupts import CancelOnInterrupt


class ClusterFuture(Future[Any]):
    """Future of one call. It is running from the time when the client sees that a runner has started the call.

    `cancel` succeeds until then. A call that starts at the same moment may still run; its result is dropped.
    """

    def __init__(self, interrupts: CancelOnInterrupt | None = None) -> None:
        """`interrupts` handles Ctrl-C while a thread waits for the call."""
        super().__init__()
        #: Handling of Ctrl-C, which the calls of an executor share.
        self.interrupts = interrupts
        #: ID of the job of the call, or None until the job is submitted.
        self.job_id: str | None = None
        #: Number of the call's unit in its job.
        self.unit = 0
        #: Result and exception of the call, or None before its end. A forked process reads this without a lock.
        self._outcome: tuple[Any, BaseException | None] | None = None
        self._changing = threading.RLock()
        self._on_submitted: list[Callable[[ClusterFuture], object]] = []
        _futures.add(self)

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait for the result in a coroutine. If its task is cancelled, the call is cancelled too."""
        return asyncio.wrap_future(self).__await__()

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the call, and return its result. Raises the exception of the call.

        Raises TimeoutError after `timeout` seconds. While it waits, the first Ctrl-C asks, and the second one cancels
        the calls of the executor.
        """
        try:
            with self._waiting():
                return super().result(timeout)
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
        if not self.start():
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

    def set_job(self, job_id: str, unit: int) -> None:
        """Set the job of the call, and call the functions that wait for it."""
        with self._changing:
            self.job_id, self.unit = job_id, unit
            waiting, self._on_submitted = self._on_submitted, []
        for function in waiting:
            function(self)

    def disown(self) -> None:
        """Prepare for use in a forked process. A call that has not ended fails there, and continues for the parent."""
        super().__init__()  # At the fork, another thread could have held the lock
        self._changing, self._on_submitted = threading.RLock(), []
        value, error = self._outcome or (None, _belongs_to_parent())
        if isinstance(error, CancelledError):
            self.cancel()
        else:
            self.finish(value, error)


def count_calls(futures: Iterable[Future[Any]]) -> str:
    """Return the number of calls that have not ended, for people."""
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
