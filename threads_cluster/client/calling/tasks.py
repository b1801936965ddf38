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

from threads_cluster.client.calling.dependents import Dependent
from threads_cluster.client.calling.executor import ClusterExecutor
from threads_cluster.client.calling.futures import ClusterFuture, count_calls
from threads_cluster.client.calling.options import Options
from threads_cluster.client.interrupts import CancelOnInterrupt

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

        Arguments can be futures, also in lists, tuples and dicts. The call then starts when their results are there.
        Runners read these results from the cluster, if possible. If one of the futures fails or is cancelled, this call
        fails with CallFailed, whose cause is the error. A large result stays in the cluster until you call `result`.

        Example:
            print(double.submit(double.submit(3)).result())  # 12
        """
        executor = self._cluster.task_executors.get(self._options)
        return Dependent(executor, self._function, args, kwargs).start()

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
