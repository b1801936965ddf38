"""Thread pools for file access, separate from other pools so that a hanging store does not block other calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Answer = TypeVar("Answer")

#: Thread pools for calls of bounded size, and for calls that read whole files of up to 64 GiB to verify them.
_BOUNDED = ThreadPoolExecutor(12, "artifact-bytes")
_WHOLE = ThreadPoolExecutor(4, "artifact-files")


async def run(work: Callable[[], Answer]) -> Answer:
    """Run a call that transfers at most one bundle, part or manifest, and return its result."""
    return await asyncio.get_running_loop().run_in_executor(_BOUNDED, work)


async def run_long(work: Callable[[], Answer]) -> Answer:
    """Run a call that reads a whole file, and return its result."""
    return await asyncio.get_running_loop().run_in_executor(_WHOLE, work)


async def pieces(several: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield pieces of data, reading each in a thread."""
    while (piece := await run(lambda: next(several, None))) is not None:
        yield piece
