"""Functions that turn methods of the synchronous client into methods of `AsyncCluster` and its resources."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from threads_cluster.client import suspension

P = ParamSpec("P")
R = TypeVar("R")


class Wrapper:
    """Asynchronous version of an object of the synchronous client."""

    def __init__(self, wrapped: Any) -> None:
        self._wrapped = wrapped


def awaited(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """Return the asynchronous version of a method."""

    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await suspension.run(method, self._wrapped, *args, **kwargs)

    return wraps(method)(call)


def iterated(method: Callable[Concatenate[Any, P], Iterator[R]]) -> Callable[Concatenate[Any, P], AsyncIterator[R]]:
    """Return the asynchronous version of a method that returns an iterator. `async for` sends the requests."""

    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[R]:
        return suspension.iterate(method, self._wrapped, *args, **kwargs)

    return wraps(method)(call)


def delegated(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Return a method that sends no requests itself, and whose result uses threads."""

    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(self._threaded, *args, **kwargs)

    return wraps(method)(call)
