"""Threads for bytes of files, apart from those of all other calls: a store that hangs holds up nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Answer = TypeVar("Answer")

#: Calls of a bounded size, and those that read whole files, such as the verification of one of 64 GiB.
_BOUNDED = ThreadPoolExecutor(12, "artifact-bytes")
_WHOLE = ThreadPoolExecutor(4, "artifact-files")


async def run(work: Callable[[], Answer]) -> Answer:
    """Return what the call returns, which reads or writes at most a bundle, a part or a manifest."""
    return await asyncio.get_running_loop().run_in_executor(_BOUNDED, work)


async def run_long(work: Callable[[], Answer]) -> Answer:
    """Return what the call returns, which reads a whole file."""
    return await asyncio.get_running_loop().run_in_executor(_WHOLE, work)


async def pieces(several: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the pieces, each of which a thread reads."""
    while (piece := await run(lambda: next(several, None))) is not None:
        yield piece
