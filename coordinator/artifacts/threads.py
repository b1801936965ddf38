"""Thread pools for file access, separate from other pools so that a hanging store does not block other calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Answer = TypeVar("Answer")

#: Thread pool for short operations.
_BOUNDED = ThreadPoolExecutor(12, "artifact-bytes")
#: Thread pool for operations that verify files of up to 64 GiB.
_WHOLE = ThreadPoolExecutor(4, "artifact-files")


async def run(work: Callable[[], Answer]) -> Answer:
    """Run a short file operation in a thread, and return its result."""
    return await asyncio.get_running_loop().run_in_executor(_BOUNDED, work)


async def run_long(work: Callable[[], Answer]) -> Answer:
    """Run a long file operation in a thread, and return its result."""
    return await asyncio.get_running_loop().run_in_executor(_WHOLE, work)


async def pieces(several: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the pieces of an iterator, and read each piece in a thread."""
    while (piece := await run(lambda: next(several, None))) is not None:
        yield piece
