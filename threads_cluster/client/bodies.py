"""Functions that read response bodies with limits on size and time, and parse JSON strictly."""

from __future__ import annotations

import json
import math
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

import httpx

#: Maximum size in bytes of a response after decompression.
LARGEST = 128 << 20
#: Minimum transfer rate in bytes per second once a response exceeds its time limit.
LEAST_RATE = 64 << 10
_PIECE = 1 << 20


class BadBody(ValueError):
    """The response body is too large, has an unknown encoding, or is not valid JSON."""


def read(answer: httpx.Response, seconds: float) -> bytes:
    """Return the complete response body after decompression.

    Raises BadBody above LARGEST bytes, and ReadTimeout if the transfer is too slow. The transfer can exceed `seconds`
    while its rate is at least LEAST_RATE.
    """
    began = time.monotonic()
    body = bytearray()
    for piece in unpacked(answer):
        body += piece
        if len(body) > LARGEST:
            raise BadBody(f"the response is larger than {LARGEST >> 20} MiB")
        if time.monotonic() - began > seconds + len(body) / LEAST_RATE:
            raise httpx.ReadTimeout("the response is too slow")
    return bytes(body)


def unpacked(answer: httpx.Response) -> Iterator[bytes]:
    """Yield the decompressed response body in pieces of limited size.

    httpx decompresses a whole chunk at once, which can be a thousand times as large.
    """
    if answer.is_stream_consumed:  # An in-memory transport has already read the body
        return iter([answer.content])
    encoding = answer.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding == "gzip":
        return _gunzipped(answer.iter_raw())
    if encoding not in ("", "identity"):
        raise BadBody(f"the response has the content encoding {encoding}, which was not requested")
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
        raise BadBody(f"the response is not valid gzip: {error}") from None


def parse(body: bytes | str, parse_int: Callable[[str], Any] = int) -> Any:
    """Parse strict JSON. Raises BadBody for invalid JSON, NaN, infinities and numbers that overflow."""
    decoder = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite, parse_int=parse_int)
    try:
        return decoder.decode(body if isinstance(body, str) else body.decode())
    except RecursionError:
        raise BadBody("JSON is nested too deeply") from None
    except ValueError as error:
        raise BadBody(f"not valid JSON: {error}") from None


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text[:20])
