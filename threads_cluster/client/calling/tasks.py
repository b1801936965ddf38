"""Tasks: functions that can be called on runners, and calls that depend on the results of other calls."""

from __future__ import annotations

import asyncio
import operator
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent import futures
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

from threads_cluster.client.calling.executor import ClusterExecutor
from threads_cluster.client.calling.futures import ClusterFuture, count_calls
from threads_cluster.client.calling.options import Options
from threads_cluster.client.interrupts import CancelOnInterrupt
from threads_cluster.errors import CallFailed

if TYPE_CHECKING:
    from threads_cluster.client.api import Cluster

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound="Future[Any]")


class Task(Generic[P, R]):
    """Function that can be called here or on runners.

        @cluster.task
        def double(number: int) -> int:
            return 2 * number

        double(3)                       # calls the function in this process
        double.submit(3).result()       # calls it on a runner
        list(double.map(range(100)))    # calls it on runners, once per number

    In a call on a runner, the task is the plain function.
    """

    def __init__(self, cluster: Cluster, function: Callable[P, R], options: dict[str, Any]) -> None:
        self._cluster, self._function, self._options = cluster, function, options
        Options(**options)  # Raises BadArgument for an invalid option
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._function(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return operator.getitem, ([self._function], 0)  # Runners lack this package

    def options(self, **options: Any) -> Task[P, R]:
        """Return the task with changed options, such as `gpus=1`. The options are those of `Cluster.executor`.

        Example:
            print(double.options(memory="2 GiB", retries=3).submit(3).result())
        """
        return Task(self._cluster, self._function, self._options | options)

    def submit(self, /, *args: Any, **kwargs: Any) -> ClusterFuture:
        """Call the function with `args` and `kwargs` on a runner, and return the future of the call.

        Arguments can be futures, also in lists, tuples and dicts. The call then starts when their results are there. If
        one of them fails or is cancelled, this call fails with CallFailed, whose cause is the error.

        Example:
            print(double.submit(double.submit(3)).result())  # 12
        """
        executor = self._cluster.task_executors.get(self._options)
        needed = list(dict.fromkeys(_futures_in([args, kwargs])))
        if not needed:
            return executor.submit(self._function, *args, **kwargs)
        return _Dependent(executor, self._function, args, kwargs).start(needed)

    def map(self, /, *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1) -> Iterator[R]:
        """Call the function on runners, once for each value, and return an iterator over the results in order.

        `iterables`, `timeout` and `chunksize` are the arguments of `ClusterExecutor.map`.

        Example:
            print(list(double.map(range(100), chunksize=10)))
        """
        executor = self._cluster.task_executors.get(self._options)
        return executor.map(self._function, *iterables, timeout=timeout, chunksize=chunksize)


class TaskExecutors:
    """Executors of the tasks of one client. Tasks with the same options share one."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._executors: dict[tuple[int, str], ClusterExecutor] = {}
        self._lock = threading.Lock()

    def get(self, options: dict[str, Any]) -> ClusterExecutor:
        """Return the executor for these options."""
        key = os.getpid(), repr(Options(**options))  # After a fork, the executors of the parent cannot be used
        with self._lock:
            if key not in self._executors:
                self._executors[key] = self._cluster.executor(**options)
            return self._executors[key]

    def close(self) -> None:
        """Accept no further calls."""
        for executor in self._executors.values():
            executor.shutdown(wait=False)


class _Dependent:
    """Call whose arguments contain the futures of other calls."""

    def __init__(
        self, executor: ClusterExecutor, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._executor, self._function, self._args, self._kwargs = executor, function, args, kwargs
        self._future = ClusterFuture(executor.interrupts)
        self._lock = threading.Lock()

    def start(self, needed: list[Future[Any]]) -> ClusterFuture:
        """Make the call when the futures are done. Return the future of this call."""
        self._left = len(needed)
        for future in needed:
            future.add_done_callback(self._take)
        return self._future

    def _take(self, future: Future[Any]) -> None:
        with self._lock:
            self._left -= 1
            is_last = not self._left
        if future.cancelled() or future.exception() is not None:
            self._fail(None if future.cancelled() else future.exception())
        elif is_last:
            self._call()

    def _fail(self, error: BaseException | None) -> None:
        why = "was cancelled" if error is None else f"failed: {type(error).__name__}: {error}"
        name = getattr(self._function, "__qualname__", "the function")
        failed = CallFailed(f"{name} was not called, because a call on which it depends {why}")
        failed.__cause__ = error
        self._future.finish(error=failed)

    def _call(self) -> None:
        try:
            self._executor.submit_for(self._future, self._function, _resolve(self._args), _resolve(self._kwargs))
        except BaseException as error:  # The executor was shut down, or an argument cannot be pickled
            self._future.finish(error=error)


def _futures_in(value: Any) -> Iterator[Future[Any]]:
    if isinstance(value, Future):
        yield value
    elif type(value) in (list, tuple):
        for inner in value:
            yield from _futures_in(inner)
    elif type(value) is dict:
        yield from _futures_in(list(value.values()))


def _resolve(value: Any) -> Any:
    """Return a value with results in place of futures."""
    if isinstance(value, Future):
        return value.result()
    if type(value) in (list, tuple):
        return type(value)(map(_resolve, value))
    if type(value) is dict:
        return {name: _resolve(inner) for name, inner in value.items()}
    return value


def as_completed(several: Iterable[F], timeout: float | None = None) -> Completions[F]:
    """Return several futures in the order in which they end, for `for` and for `async for`.

        for future in as_completed(double.submit(number) for number in range(10)):
            print(future.result())

    The loop raises TimeoutError if futures are left after `timeout` seconds.
    """
    return Completions(several, timeout)


class Completions(Generic[F]):
    """Futures in the order in which they end."""

    def __init__(self, several: Iterable[F], timeout: float | None) -> None:
        self._futures, self._timeout = list(dict.fromkeys(several)), timeout

    def __iter__(self) -> Iterator[F]:
        ended = cast(Iterator[F], futures.as_completed(self._futures, self._timeout))
        interrupts = self._interrupts()
        for _ in self._futures:
            with interrupts:
                future = next(ended)
            yield future

    def _interrupts(self) -> AbstractContextManager[object]:
        """Return the handling of Ctrl-C, which cancels the calls of all executors of the futures."""
        several = {future.interrupts for future in self._futures if isinstance(future, ClusterFuture)} - {None}
        cancels = [each.cancel for each in several if each is not None]
        if not cancels:
            return nullcontext()
        return CancelOnInterrupt(lambda: count_calls(self._futures), lambda: [cancel() for cancel in cancels])

    async def __aiter__(self) -> AsyncIterator[F]:
        loop = asyncio.get_running_loop()
        ended: asyncio.Queue[F] = asyncio.Queue()
        until = None if self._timeout is None else loop.time() + self._timeout
        for future in self._futures:
            future.add_done_callback(partial(_notify, loop, ended))
        for _ in self._futures:
            yield await asyncio.wait_for(ended.get(), None if until is None else until - loop.time())


def _notify(loop: asyncio.AbstractEventLoop, ended: asyncio.Queue[F], future: F) -> None:
    with suppress(RuntimeError):  # The loop was closed
        loop.call_soon_threadsafe(ended.put_nowait, future)
