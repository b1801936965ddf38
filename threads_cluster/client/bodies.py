"""Bodies of answers, read within bounds of size and time, and JSON of nothing but numbers that are numbers."""

from __future__ import annotations

import json
import math
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

import httpx

#: Bytes of one answer at most, unpacked.
LARGEST = 128 << 20
#: Bytes a second that an answer must bring at least, once its time is over.
LEAST_RATE = 64 << 10
_PIECE = 1 << 20


class BadBody(ValueError):
    """The body is too large, packed in an unknown way, or no JSON; says what."""


def read(answer: httpx.Response, seconds: float) -> bytes:
    """The whole body, unpacked. BadBody over LARGEST bytes; ReadTimeout when it drips in.

    It may take `seconds`, and longer as long as it comes at LEAST_RATE.
    """
    began = time.monotonic()
    body = bytearray()
    for piece in unpacked(answer):
        body += piece
        if len(body) > LARGEST:
            raise BadBody(f"the answer has over {LARGEST >> 20} MiB")
        if time.monotonic() - began > seconds + len(body) / LEAST_RATE:
            raise httpx.ReadTimeout("the answer comes too slowly")
    return bytes(body)


def unpacked(answer: httpx.Response) -> Iterator[bytes]:
    """The body in pieces of bounded size: httpx would unpack a whole chunk at once, a thousandfold."""
    if answer.is_stream_consumed:  # by a transport in memory
        return iter([answer.content])
    encoding = answer.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding == "gzip":
        return _gunzipped(answer.iter_raw())
    if encoding not in ("", "identity"):
        raise BadBody(f"the answer is packed as {encoding}, which was not asked for")
    return answer.iter_raw()


def _gunzipped(chunks: Iterable[bytes]) -> Iterator[bytes]:
    unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        for packed in chunks:
            left = packed
            while left and not unpacker.eof:
                yield unpacker.decompress(left, _PIECE)
                left = unpacker.unconsumed_tail
    except zlib.error as error:
        raise BadBody(f"the answer is no gzip: {error}") from None


def parse(body: bytes | str, parse_int: Callable[[str], Any] = int) -> Any:
    """The JSON value. BadBody for anything else, also NaN, infinities and what overflows to one."""
    decoder = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite, parse_int=parse_int)
    try:
        return decoder.decode(body if isinstance(body, str) else body.decode())
    except RecursionError:
        raise BadBody("JSON that is nested too deeply") from None
    except ValueError as error:
        raise BadBody(f"not valid JSON: {error}") from None


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text[:20])
