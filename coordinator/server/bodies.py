"""Read and parse request bodies within limits of size, time, memory and number of values.

The limits are checked before parsing, because the parser is one C call during which no other thread can run.
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

#: Maximum size of a single submission in bytes.
MAX_BODY = 1 << 20
#: Maximum size of a batch of submissions in bytes.
MAX_BATCH_BODY = 16 << 20
#: Maximum number of JSON values in a single submission.
MAX_VALUES = 20_000
#: Maximum number of JSON values in a batch of submissions.
MAX_BATCH_VALUES = 150_000
#: Maximum number of bytes outside strings in a body. Such bytes are slow to parse.
_MAX_PLAIN = MAX_BATCH_BODY
#: Maximum number of backslashes in a large body.
_MAX_ESCAPES = 4 << 20
#: Memory budget in bytes for all bodies that are being read or processed. Only bodies over _SMALL bytes use it.
_MEMORY = 24 << 20
_SMALL = 1 << 16
#: Size in bytes above which bodies are processed one at a time, because parsing needs several times their size.
_LARGE = 8 << 20
#: Memory budget in bytes for file bodies.
FILE_MEMORY = 40 << 20
#: Timeout in seconds for receiving a file body from a slow sender.
FILE_SECONDS = 120.0
#: Maximum bytes of a rejected body that are read and discarded, so that its sender can read the error response.
_MAX_DISCARDED = 256 << 20
#: Timeout in seconds for receiving a body after its memory is reserved.
READ_SECONDS = 60.0


class BodyMemory:
    """Memory budget for the bodies that one replica processes at the same time."""

    def __init__(self, size: int = _MEMORY, large: int = _LARGE) -> None:
        self._free = size
        self._freed = asyncio.Event()
        self._large_size = large
        self._large = asyncio.Lock()

    @asynccontextmanager
    async def reserve(self, size: int) -> AsyncIterator[None]:
        """Wait until `size` bytes are free, and reserve them for the duration of the context."""
        while size > self._free:
            self._freed.clear()
            await self._freed.wait()
        self._free -= size
        try:
            yield
        finally:
            self._free += size
            self._freed.set()

    def lock_if_large(self, size: int) -> AbstractAsyncContextManager[None]:
        """Return a context manager that processes large bodies one at a time."""
        return self._large if size > self._large_size else nullcontext()


@asynccontextmanager
async def open_json(
    request: Request, limit: int, values: int, empty: Any = None, memory: BodyMemory | None = None
) -> AsyncIterator[Any]:
    """Yield the parsed body, or `empty` if there is none. Reserve memory for the body for the duration of the context.

    Raise TooLarge if the body has more than `limit` bytes or `values` values, TooSlow if it does not arrive in time,
    and MalformedBody if it is not JSON.
    """
    size = declared_size(request, limit)
    budget: BodyMemory = memory or shared_state(request).body_memory
    async with budget.reserve(size) if size > _SMALL else nullcontext():
        text = await read_bytes(request, limit)
        async with budget.lock_if_large(len(text)):
            if not text and empty is not None:
                value = empty
            elif len(text) > _SMALL:
                value = await run_in_threadpool(parse_json, text, values)
            else:
                value = parse_json(text, values)
            del text  # free the text, which can be as large as the value
            yield value


async def read_json(request: Request, empty: Any = None, limit: int = MAX_BODY) -> Any:
    """Return the parsed body of at most MAX_VALUES values, or `empty` if there is none.

    Raise the same errors as `open_json`.
    """
    async with open_json(request, limit, MAX_VALUES, empty) as value:
        return value


@asynccontextmanager
async def open_bytes(request: Request, limit: int, memory: BodyMemory | None = None) -> AsyncIterator[bytes]:
    """Yield the raw body. Reserve memory for the body for the duration of the context.

    With `memory`, large bodies are processed one at a time. Without it, the budget for files is used. Raise TooLarge if
    the body has more than `limit` bytes, and TooSlow if it does not arrive in time.
    """
    budget: BodyMemory = memory or shared_state(request).file_body_memory
    size = declared_size(request, limit)
    async with budget.reserve(size) if size > _SMALL else nullcontext():
        body = await read_bytes(request, limit, FILE_SECONDS)
        async with budget.lock_if_large(len(body)) if memory else nullcontext():
            yield body


def declared_size(request: Request, limit: int) -> int:
    """Return the bytes to reserve for a body: its Content-Length, or `limit` if the encoding is chunked."""
    length = request.headers.get("content-length", "")
    return min(int(length), limit) if length.isdigit() else limit * ("transfer-encoding" in request.headers)


async def read_bytes(request: Request, limit: int, seconds: float = 0.0) -> bytes:
    """Return the raw body. Raise TooLarge if it exceeds `limit` bytes, or TooSlow after `seconds`."""
    buffer, size = BytesIO(), 0
    seconds = seconds or READ_SECONDS
    try:
        async with asyncio.timeout(seconds):
            async for piece in request.stream():
                size += len(piece)
                if size <= limit:
                    buffer.write(piece)
                elif size > _MAX_DISCARDED:
                    break
                else:
                    buffer = BytesIO()
    except TimeoutError:
        detail = f"the body did not arrive within {seconds:g} s; send a smaller body"
        raise errors.TooSlow(detail, field="body") from None
    if size > limit:
        raise errors.TooLarge(f"the body has over {limit} bytes; split the batch or shorten it", field="body")
    return buffer.getvalue()  # getvalue() does not copy the buffer, but the JSON parser would copy a bytearray


def parse_json(text: bytes, values: int) -> Any:
    """Parse a JSON body.

    Raise TooLarge over `values` values, and MalformedBody if the text is not JSON, is nested deeper than 200 levels or
    contains NaN.
    """
    # Upper bound of the number of values, because commas and brackets within strings are counted, too.
    if sum(map(text.count, (b",", b"]", b"}"))) > values:
        detail = f"the body has over {values} values (commas and closing brackets); split the batch or shorten it"
        raise errors.TooLarge(detail, field="body")
    if len(text) > _MAX_PLAIN:
        _check_cost(text, values)
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise errors.MalformedBody(f"the body is not JSON: {_explain(text, str(error))}", field="body") from None


def _check_cost(text: bytes, values: int) -> None:
    """Raise TooLarge if a body is expensive to parse: many escapes, or many bytes outside strings."""
    if (escapes := text.count(b"\\")) > _MAX_ESCAPES:
        raise errors.TooLarge(f"the body has over {_MAX_ESCAPES} backslashes; split it", field="body")
    if escapes:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    if text.count(b'"') > 4 * values:  # each value has at most two strings: a key and a text
        raise errors.TooLarge(f"the body has over {2 * values} strings; split it", field="body")
    if sum(map(len, text.split(b'"')[::2])) > _MAX_PLAIN:
        raise errors.TooLarge(f"the body has over {_MAX_PLAIN} bytes of numbers and spaces; split it", field="body")


def _explain(text: bytes, message: str) -> str:
    if message.startswith("number out of range"):
        return f"{message}; write an integer of over 4,300 digits as a decimal string"
    position = re.search(r"line (\d+) column (\d+)$", message)
    if position is None or int(position[1]) > 1:
        return message
    column = int(position[2])
    near = text[max(0, column - 12) : column + 12]
    return f"{message}, near {near.decode(errors='replace')!r}"
