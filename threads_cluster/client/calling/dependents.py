"""Calls whose arguments contain the futures of other calls.

Such a call becomes a job that the cluster starts after the jobs of the other calls, and its runner reads their results
from the cluster. If a job contains further calls, the dependent call would have to wait for them too. The client then
waits for the other calls instead, and makes the dependent call with references to their stored results.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeAlias

from threads_cluster.client.calling.batches import Needs
from threads_cluster.client.calling.executor import ClusterExecutor
from threads_cluster.client.calling.futures import ClusterFuture, when_done
from threads_cluster.client.calling.references import Reference
from threads_cluster.errors import CallFailed

#: Maximum numbers of units and of jobs on which the job of a dependent call can depend.
_MOST_UNITS, _MOST_JOBS = 1000, 100
#: Maximum number of files of stored results that become references of a call. A call can have 120 files.
_MOST_FILES = 100

#: Value of each future in the arguments of a call: its result, or a reference to it.
Values: TypeAlias = Mapping[Future[Any], Any]


class Dependent:
    """Call that needs the results of other calls."""

    def __init__(
        self, executor: ClusterExecutor, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._executor, self._function, self._args, self._kwargs = executor, function, args, kwargs
        self._future = ClusterFuture(executor.interrupts, is_lazy=True)
        self._needed = list(dict.fromkeys(futures_in([args, kwargs])))
        self._lock = threading.Lock()
        #: True if the call was made.
        self._is_made = False
        #: True if the client must load the results, because a runner could not read them from the cluster.
        self._must_load = False
        self._future.add_done_callback(self._forget)

    def _forget(self, future: Future[Any]) -> None:
        """Release the call, because futures refer to the functions that they have called."""
        self._future, self._needed, self._args, self._kwargs = _ENDED, [], (), {}

    def start(self) -> ClusterFuture:
        """Make the call as soon as possible, and return its future. Raises the errors of `ClusterExecutor.submit`."""
        future, needed = self._future, self._needed
        if not needed:
            self._executor.submit_for(future, self._function, self._args, self._kwargs)
            return future
        for other in needed:
            other.add_done_callback(self._check)
        unfinished = [other for other in needed if not other.done()]
        when_done(needed, self._call_with_results)
        calls = [other for other in unfinished if isinstance(other, ClusterFuture)]
        if calls and len(calls) == len(unfinished):
            left = Countdown(len(calls), lambda: self._call_after(calls))
            for call in calls:
                call.add_submitted_callback(left.count)
        return future

    def _check(self, future: Future[Any]) -> None:
        """Fail the call if it can never have its arguments."""
        if future.cancelled() or future.exception() is not None:
            self._fail(None if future.cancelled() else future.exception())

    def _fail(self, error: BaseException | None) -> None:
        why = "was cancelled" if error is None else f"failed: {type(error).__name__}: {error}"
        name = getattr(self._function, "__qualname__", "the function")
        failed = CallFailed(f"{name} was not called, because a call on which it depends {why}")
        failed.__cause__ = error
        self._future.finish(error=failed)

    # -- a job that the cluster starts ---------------------------------------------------------------------------------

    def _call_after(self, calls: list[ClusterFuture]) -> None:
        """Submit the call as a job after the jobs of other calls, unless these contain calls that it does not need."""
        units = [(call.job_id or "", call.unit) for call in calls]
        jobs = {call.job_id: call.job_units for call in calls}
        is_exact = sum(jobs.values()) == len(calls) and all(call.values is self._executor.values for call in calls)
        if is_exact and len(units) <= _MOST_UNITS and len(jobs) <= _MOST_JOBS:
            places: Values = {call: Reference(place, {}, lambda: None) for place, call in enumerate(calls)}
            others = [future for future in self._needed if future not in places]
            self._make(lambda: {**self._results(others), **places}, units)

    def _make(self, values: Callable[[], Values], units: Sequence[tuple[str, int]] = ()) -> None:
        with self._lock:
            if self._is_made or self._future.done():
                return
            self._is_made = True
        try:
            found = values()
            args, kwargs = _replace(self._args, found), _replace(self._kwargs, found)
            needs = Needs(futures=self._needed, units=units, again=self._call_again if units else None)
            self._executor.submit_for(self._future, self._function, args, kwargs, needs)
        except BaseException as error:  # The executor was shut down, or a value cannot be read or pickled
            self._future.finish(error=error)

    # -- a call with the results ---------------------------------------------------------------------------------------

    def _call_with_results(self) -> None:
        """Make the call when all needed results are available, unless it was made before."""
        self._make(lambda: self._results(self._needed))

    def _call_again(self) -> None:
        """Make the call again with the results, because the cluster could not provide them."""
        with self._lock:
            self._is_made, self._must_load = False, True
        when_done(self._needed, self._call_with_results)

    def _results(self, futures: Sequence[Future[Any]]) -> dict[Future[Any], Any]:
        """Return the results of futures that have ended, or references to those that are stored in the cluster."""
        stored = {future: future.stored for future in futures if isinstance(future, ClusterFuture)}
        references: dict[Future[Any], Reference] = {
            future: value.reference()
            for future, value in stored.items()
            if value is not None and value.values is self._executor.values and not self._must_load
        }
        if sum(len(each.sizes) for each in references.values()) > _MOST_FILES:
            references.clear()
        return {future: references.get(future) or future.result() for future in futures}


#: Future of a call that needs no further action.
_ENDED = ClusterFuture()
_ENDED.cancel()


class Countdown:
    """Calls a function after some events. Thread-safe."""

    def __init__(self, events: int, function: Callable[[], object]) -> None:
        self._left, self._function, self._lock = events, function, threading.Lock()

    def count(self, event: object) -> None:
        with self._lock:
            self._left -= 1
            is_last = not self._left
        if is_last:
            self._function()


def futures_in(value: Any) -> Iterator[Future[Any]]:
    """Yield the futures in a value, and in its lists, tuples and dicts."""
    if isinstance(value, Future):
        yield value
    elif type(value) in (list, tuple):
        for inner in value:
            yield from futures_in(inner)
    elif type(value) is dict:
        yield from futures_in(list(value.values()))


def _replace(value: Any, values: Values) -> Any:
    """Return a value with other values in place of futures."""
    if isinstance(value, Future):
        return values[value]
    if type(value) in (list, tuple):
        return type(value)(_replace(inner, values) for inner in value)
    if type(value) is dict:
        return {name: _replace(inner, values) for name, inner in value.items()}
    return value
