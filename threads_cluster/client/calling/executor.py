"""Executor that calls Python functions on the cluster's runners, with the interface of `concurrent.futures`."""

from __future__ import annotations

import itertools
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from types import TracebackType
from typing import TYPE_CHECKING, Any

from threads_cluster.client.calling.batches import NOTHING, Call, Needs
from threads_cluster.client.calling.dispatcher import Dispatcher
from threads_cluster.client.calling.futures import ClusterFuture
from threads_cluster.client.calling.options import Options
from threads_cluster.client.calling.pickling import INLINE_FUNCTION_BYTES, Pickled

if TYPE_CHECKING:
    from threads_cluster.client.api import Cluster


class ClusterExecutor(Executor):
    """Executor whose calls run on runners. Functions of scripts and notebooks are pickled by value.

        with cluster.executor() as executor:
            print(executor.submit(pow, 2, 10).result())
            print(list(executor.map(lambda x: x + 1, range(100))))

    Exceptions of calls are raised here, with the traceback on the runner as their cause. A call raises CallFailed if
    its process died or its job was cancelled, and NoRunner if no live runner could ever take it.
    """

    def __init__(self, cluster: Cluster, **options: Any) -> None:
        """Prepare an executor with the fields of `Options`. Raises BadArgument if an option is invalid."""
        chosen = Options(**options)
        self._dispatcher, self.values = Dispatcher(cluster, chosen), cluster.values
        self._inline_bytes = chosen.inline_bytes
        self.interrupts = self._dispatcher.interrupts
        weakref.finalize(self, self._dispatcher.close).atexit = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> ClusterFuture:
        """Call `fn(*args, **kwargs)` on a runner, and return its future.

        Example:
            future = executor.submit(pow, 2, 10)
            print(future.result(timeout=60))
        """
        return self._submit(self._encode(fn), _name(fn), args, kwargs)

    def submit_for(
        self,
        future: ClusterFuture,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        needs: Needs = NOTHING,
    ) -> None:
        """Make the call of a `future` that was created before, unless the future has ended or was cancelled.

        `fn`, `args` and `kwargs` are the function and its arguments. `needs` names other calls whose results the call
        needs. Tasks use this method.

        Example:
            executor.submit_for(future, pow, (2, 10), {})
        """
        if not future.done():
            self._submit(self._encode(fn), _name(fn), args, kwargs, future, needs)

    def _encode(self, fn: Callable[..., Any]) -> Pickled:
        return self.values.encode(fn, INLINE_FUNCTION_BYTES)

    def _submit(
        self,
        function: Pickled,
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        future: ClusterFuture | None = None,
        needs: Needs = NOTHING,
    ) -> ClusterFuture:
        arguments = self.values.encode((args, kwargs), self._inline_bytes)
        future = future or ClusterFuture(self.interrupts)
        self._dispatcher.add(Call(name=name, function=function, arguments=arguments, future=future, needs=needs))
        return future

    def map(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> Iterator[Any]:
        """Return an iterator over the results of `fn` for the values of the iterables, in their order.

        `fn` is called with one value of each of the `iterables`. One call computes `chunksize` results. The iterables
        are read at once. With `buffersize`, they are read in steps, so that at most `buffersize` results are pending.
        The iterator raises TimeoutError if a result is not available `timeout` seconds after the call of `map`.

        Example:
            print(list(executor.map(pow, range(100), [2] * 100, chunksize=10)))
        """
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        if buffersize is not None and not isinstance(buffersize, int):
            raise TypeError("buffersize must be an integer or None")
        if buffersize is not None and buffersize < 1:
            raise ValueError("buffersize must be None or > 0")
        until = None if timeout is None else time.monotonic() + timeout
        values = zip(*iterables)  # noqa: B905  # Iterables can have different lengths
        if chunksize == 1:
            return self._map(fn, _name(fn), values, buffersize, until)
        chunks = ((chunk,) for chunk in iter(lambda: list(itertools.islice(values, chunksize)), []))
        most = None if buffersize is None else max(1, buffersize // chunksize)
        return itertools.chain.from_iterable(self._map(_in_chunks(fn), _name(fn), chunks, most, until))

    def _map(
        self,
        fn: Callable[..., Any],
        name: str,
        values: Iterator[tuple[Any, ...]],
        most: int | None,
        until: float | None,
    ) -> Iterator[Any]:
        function = self._encode(fn)

        def submit(count: int | None) -> list[ClusterFuture]:
            return [self._submit(function, name, args, {}) for args in itertools.islice(values, count)]

        with self._dispatcher.burst():
            futures = deque(submit(most))
        return _results(futures, lambda: submit(0 if most is None else 1), until)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no further calls. With `cancel_futures`, cancel those that no runner has started.

        With `wait`, return when all calls have ended.

        Example:
            executor.shutdown(cancel_futures=True)
        """
        self._dispatcher.close()
        if cancel_futures:
            self._dispatcher.cancel()
        if wait:
            self._dispatcher.wait()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Wait for all calls. After Ctrl-C and other exits of the program, cancel them instead."""
        self._dispatcher.close()
        if kind is not None and not issubclass(kind, Exception):
            self._dispatcher.abort()
        self.shutdown()


def _results(
    futures: deque[ClusterFuture], submit: Callable[[], Iterable[ClusterFuture]], until: float | None
) -> Iterator[Any]:
    """Yield the results of futures, and submit a further call after each. Cancel the rest at the end."""
    try:
        while futures:
            yield _take(futures, submit, until)  # No variable, because the generator must not keep the result
    finally:
        for future in futures:
            future.cancel()


def _take(futures: deque[ClusterFuture], submit: Callable[[], Iterable[ClusterFuture]], until: float | None) -> Any:
    futures[0].exception(None if until is None else until - time.monotonic())  # Waits
    value = futures.popleft().result()
    futures.extend(submit())
    return value


def _in_chunks(function: Callable[..., Any]) -> Callable[[list[tuple[Any, ...]]], list[Any]]:
    """Return a function that calls `function` once for each item of a list."""

    def call_chunk(chunk: list[tuple[Any, ...]]) -> list[Any]:
        return [function(*arguments) for arguments in chunk]

    call_chunk.__module__ = "__main__"  # Pickled by value, because runners lack this package
    return call_chunk


def _name(function: Callable[..., Any]) -> str:
    """Return the name of a function for people."""
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return str(name).rpartition("<locals>.")[2][:60]
