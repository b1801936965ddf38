"""Execution of the synchronous client inside an asyncio event loop, without threads.

`run` executes a function in a greenlet. When the function reaches `wait_for`, the greenlet is suspended, and the event
loop continues until the awaited object is ready. SQLAlchemy's asyncio extension uses the same technique.
"""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, ParamSpec, TypeVar, cast

import httpx

P = ParamSpec("P")
R = TypeVar("R")

_END: Any = object()


async def run(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a synchronous function, and suspend it whenever it calls `wait_for`. Return its result."""
    from greenlet import getcurrent, greenlet

    running = greenlet(function)
    running.is_suspendable = True
    running.gr_context = getcurrent().gr_context  # The function uses the context variables of the task
    answer = running.switch(*args, **kwargs)
    while not running.dead:
        try:
            value = await answer
        except BaseException:  # A cancellation too: it ends the function
            answer = running.throw(*sys.exc_info())
        else:
            answer = running.switch(value)
    return cast(R, answer)


async def iterate(make: Callable[P, Iterator[R]], *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[R]:
    """Call a synchronous function that returns an iterator, and yield the items of the iterator."""
    items = await run(make, *args, **kwargs)
    try:
        while (item := await run(next, items, _END)) is not _END:
            yield item
    finally:
        if close := getattr(items, "close", None):
            await run(close)


def wait_for(awaitable: Awaitable[R]) -> R:
    """Suspend the function that `run` is executing until the awaitable is done, and return its result."""
    if not is_suspendable():
        if inspect.iscoroutine(awaitable):
            awaitable.close()
        raise RuntimeError("a method of an AsyncCluster was called outside its event loop; in other code, use Cluster")
    from greenlet import getcurrent

    return cast(R, getcurrent().parent.switch(awaitable))


def sleep(seconds: float) -> None:
    """Sleep. Inside `run`, only the calling function is suspended."""
    if is_suspendable():
        import asyncio  # A short command must not wait for this import

        wait_for(asyncio.sleep(seconds))
    else:
        time.sleep(seconds)


def is_suspendable() -> bool:
    """Return True inside a function that `run` executes."""
    greenlets = sys.modules.get("greenlet")  # Without an AsyncCluster, the package is not imported
    return greenlets is not None and hasattr(greenlets.getcurrent(), "is_suspendable")


class SuspendingTransport(httpx.BaseTransport):
    """Synchronous transport that sends requests with an asynchronous one, and suspends its caller meanwhile."""

    def __init__(self, transport: httpx.AsyncBaseTransport) -> None:
        self._transport = transport

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = wait_for(self._transport.handle_async_request(request))
        stream = _Body(cast(httpx.AsyncByteStream, answer.stream))
        return httpx.Response(answer.status_code, headers=answer.headers, stream=stream, extensions=answer.extensions)

    def close(self) -> None:
        wait_for(self._transport.aclose())


class _Body(httpx.SyncByteStream):
    """Body of a response whose caller is suspended until the next bytes arrive."""

    def __init__(self, stream: httpx.AsyncByteStream) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        pieces = aiter(self._stream)
        while (piece := wait_for(_next(pieces))) is not None:
            yield piece

    def close(self) -> None:
        wait_for(self._stream.aclose())


async def _next(pieces: AsyncIterator[bytes]) -> bytes | None:
    return await anext(pieces, None)
