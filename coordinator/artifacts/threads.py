"""Thread pools for file access, separate from other calls, so that a hanging store does not block them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Answer = TypeVar("Answer")

#: Number of threads for calls of limited size, and for calls that read whole files, such as 64 GiB to verify.
_BOUNDED = ThreadPoolExecutor(12, "artifact-bytes")
_WHOLE = ThreadPoolExecutor(4, "artifact-files")


async def run(work: Callable[[], Answer]) -> Answer:
    """Run a call that reads or writes at most a bundle, a part or a manifest, and return its result."""
    return await asyncio.get_running_loop().run_in_executor(_BOUNDED, work)


async def run_long(work: Callable[[], Answer]) -> Answer:
    """Run a call that reads a whole file, and return its result."""
    return await asyncio.get_running_loop().run_in_executor(_WHOLE, work)


async def pieces(several: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the pieces. Each is read in a thread."""
    while (piece := await run(lambda: next(several, None))) is not None:
        yield piece
