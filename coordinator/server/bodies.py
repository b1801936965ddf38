"""Bodies of requests: read within bounds of size, time and memory, and parsed within bounds of values.

One call of C code parses a body, and no other thread runs meanwhile: so the body is bounded before it is parsed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from io import BytesIO
from typing import Any

from fastapi import Request
from pydantic_core import from_json
from starlette.concurrency import run_in_threadpool

from coordinator.state import shared_state
from jobs import errors

#: Largest bodies, in bytes: one submission, and a batch.
MAX_BODY = 1 << 20
MAX_BATCH_BODY = 16 << 20
#: Most values in them.
MAX_VALUES = 20_000
MAX_BATCH_VALUES = 150_000
#: Most bytes outside of texts, where digits cost much more than elsewhere, and backslashes in a body with more bytes.
_MAX_PLAIN = MAX_BATCH_BODY
_MAX_ESCAPES = 4 << 20
#: Bytes of bodies that are read or worked on at once; a request beyond it waits. Bodies up to _SMALL never wait.
_ROOM = 24 << 20
_SMALL = 1 << 16
#: Bodies over this size are worked on one after the other: parsed and decoded, each takes several times its size.
_LARGE = 8 << 20
#: The same room for bodies of files, which are no JSON, and the time in which one arrives: their senders may be slow.
FILE_ROOM = 40 << 20
FILE_SECONDS = 120.0
#: A body over the limit is read on and thrown away up to here, so that its sender hears the answer.
_SWALLOW = 256 << 20
#: Once there is room, a body must arrive within this many seconds.
READ_SECONDS = 60.0


class Bodies:
    """Room for the bodies that one replica reads at once."""

    def __init__(self, room: int = _ROOM, large: int = _LARGE) -> None:
        self._free = room
        self._freed = asyncio.Event()
        self._over = large
        self._large = asyncio.Lock()

    @asynccontextmanager
    async def room(self, size: int) -> AsyncIterator[None]:
        """Wait until `size` bytes are free, and hold them until the block ends."""
        while size > self._free:
            self._freed.clear()
            await self._freed.wait()
        self._free -= size
        try:
            yield
        finally:
            self._free += size
            self._freed.set()

    def turn(self, size: int) -> AbstractAsyncContextManager[None]:
        """Wait until no other large body is worked on, where this is one."""
        return self._large if size > self._over else nullcontext()


@asynccontextmanager
async def held(
    request: Request, limit: int, values: int, empty: Any = None, bodies: Bodies | None = None
) -> AsyncIterator[Any]:
    """Yield the parsed body, or `empty` for none, with room for it among `bodies` until the block ends.

    TooLarge over `limit` bytes or `values` values; TooSlow; MalformedBody when it is not JSON.
    """
    size = announced(request, limit)
    among: Bodies = bodies or shared_state(request).bodies
    async with among.room(size) if size > _SMALL else nullcontext():
        text = await read_body(request, limit)
        async with among.turn(len(text)):
            if not text and empty is not None:
                value = empty
            elif len(text) > _SMALL:
                value = await run_in_threadpool(parsed, text, values)
            else:
                value = parsed(text, values)
            del text  # which is as large as what was made of it
            yield value


async def body(request: Request, empty: Any = None, limit: int = MAX_BODY) -> Any:
    """Return the parsed body of a request for one thing, or `empty` for none; errors as `held`."""
    async with held(request, limit, MAX_VALUES, empty) as value:
        return value


@asynccontextmanager
async def octets(request: Request, limit: int, bodies: Bodies | None = None) -> AsyncIterator[bytes]:
    """Yield the body as it is, with room for it among `bodies` until the block ends; large ones one after the other.

    TooLarge over `limit` bytes; TooSlow.
    """
    among: Bodies = bodies or shared_state(request).file_bodies
    size = announced(request, limit)
    async with among.room(size) if size > _SMALL else nullcontext():
        body = await read_body(request, limit, FILE_SECONDS)
        async with among.turn(len(body)) if bodies else nullcontext():
            yield body


def announced(request: Request, limit: int) -> int:
    """Return the bytes that a body may need: its Content-Length, and the limit for one in chunks."""
    length = request.headers.get("content-length", "")
    return min(int(length), limit) if length.isdigit() else limit * ("transfer-encoding" in request.headers)


async def read_body(request: Request, limit: int, seconds: float = 0.0) -> bytes:
    kept, size = BytesIO(), 0
    seconds = seconds or READ_SECONDS
    try:
        async with asyncio.timeout(seconds):
            async for piece in request.stream():
                size += len(piece)
                if size <= limit:
                    kept.write(piece)
                elif size > _SWALLOW:
                    break
                else:
                    kept = BytesIO()
    except TimeoutError:
        detail = f"the body did not arrive within {seconds:g} s; send less at once"
        raise errors.TooSlow(detail, field="body") from None
    if size > limit:
        raise errors.TooLarge(f"the body has over {limit} bytes; split the batch or shorten it", field="body")
    return kept.getvalue()  # the buffer itself; of a bytearray the parser would make a copy


def parsed(text: bytes, values: int) -> Any:
    """Return the value of a JSON text. TooLarge over `values` values; MalformedBody over 200 levels and for NaN."""
    # Each value but the first of each level is after a comma or before an end; what stands in texts counts too.
    if sum(map(text.count, (b",", b"]", b"}"))) > values:
        detail = f"the body has over {values} values (commas and closing brackets); split the batch or shorten it"
        raise errors.TooLarge(detail, field="body")
    if len(text) > _MAX_PLAIN:
        _check_plain(text, values)
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise errors.MalformedBody(f"the body is not JSON: {_explained(text, str(error))}", field="body") from None


def _check_plain(text: bytes, values: int) -> None:
    """Raise TooLarge for a body that is costly to parse: with many escapes, or many bytes outside of texts."""
    if (escapes := text.count(b"\\")) > _MAX_ESCAPES:
        raise errors.TooLarge(f"the body has over {_MAX_ESCAPES} backslashes; split it", field="body")
    if escapes:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    if text.count(b'"') > 4 * values:  # each value is at most a key and a text
        raise errors.TooLarge(f"the body has over {2 * values} texts; split it", field="body")
    if sum(map(len, text.split(b'"')[::2])) > _MAX_PLAIN:
        raise errors.TooLarge(f"the body has over {_MAX_PLAIN} bytes of numbers and spaces; split it", field="body")


def _explained(text: bytes, complaint: str) -> str:
    if complaint.startswith("number out of range"):
        return f"{complaint}; write an integer of over 4,300 digits as a decimal string"
    place = re.search(r"line (\d+) column (\d+)$", complaint)
    if place is None or int(place[1]) > 1:
        return complaint
    near = text[max(0, int(place[2]) - 12) : int(place[2]) + 12]
    return f"{complaint}, near {near.decode(errors='replace')!r}"
