"""Small bodies that parsers stumble over."""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterator

ROUTES = ("/api/submit", "/api/submit-batch", "/api/results", "/api/nodes/worker-0/drain")
VALID = (
    b'{"type": "collatz", "parameters": {"start_number": 27, "number_count": 1}, "idempotency_key": "k"}',
    b'{"jobs": [{"type": "thread", "parameters": {"thread_count": 2, "replicas": 1}}, {"type": "collatz"}]}',
    b'{"job_ids": ["0123456789abcdef", "x"], "wait_seconds": 0}',
    b'{"on": false}',
)
TOKENS = (
    b"null", b"true", b"[]", b"{}", b'""', b"-0", b"1e5", b"1E400", b"0.1", b"NaN", b"Infinity", b'"\\ud800"', b"\x00",
    b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"1" * 400, b'"type"', b",", b":", b"[", b"}", b'"', b"\\",
    b"//",
    b"'", b"\xe2\x80\xae", b"9007199254740993", b"-1", b"0x10", b"01", b"+1", b"1.", b".5", b'"a":1,', b"[[[[[[[[",
)  # fmt: skip


def mutated(draw: random.Random) -> bytes:
    """A valid body with one to four changes."""
    body = bytearray(draw.choice(VALID))
    for _ in range(draw.randint(1, 4)):
        place, other = draw.randint(0, len(body)), draw.randint(0, len(body))
        low, high = sorted((place, other))
        change = draw.randrange(5)
        if change == 0:
            body[place:place] = draw.choice(TOKENS)
        elif change == 1:
            body[low:high] = b"" if high - low < 20 else draw.choice(TOKENS)
        elif change == 2:
            body[place:place] = body[low:high]
        elif change == 3 and place < len(body):
            body[place] = draw.randrange(256)
        else:
            body = bytearray(body.replace(draw.choice([b"1", b'"', b"{", b"27", b"["]), draw.choice(TOKENS), 1))
    return bytes(body)


def odd() -> Iterator[tuple[str, bytes]]:
    """Small bodies that parsers are known to stumble over, by name."""
    submit = VALID[0].decode()
    for coding in ("utf-8-sig", "utf-16", "utf-16-le", "utf-32", "utf-32-be", "utf-7", "cp037"):
        yield coding, submit.encode(coding)
    yield "nothing", b""
    yield "spaces", b" " * 5000
    yield "two bodies", VALID[0] * 2
    yield "zero byte", VALID[0] + b"\x00"
    yield "same key twice", b'{"type": "collatz", "type": "thread", "type": 7}'
    yield "lone surrogates", b'{"type": "\\ud800", "\\udfff": "\\ud83d"}'
    yield "surrogate key of parameters", b'{"type": "collatz", "parameters": {"\\ud800": 1}}'
    yield (
        "surrogate type in a batch",
        b'{"jobs": [{"type": "\\ud800"}, {"\\ud800": 1}, {"type": "thread", "parameters": {"\\ud800": 1}}]}',
    )
    yield "surrogate key of a job", b'{"type": "collatz", "parameters": {}, "idempotency_key": "\\ud800"}'
    yield "a float that overflows", b'{"type": "collatz", "parameters": {"start_number": 1e400, "number_count": 1}}'
    yield "exponent of a million", b'{"type": "thread", "parameters": {"confidence": 1e-1000000}}'
    yield "deep list", b"[" * 900 + b"]" * 900
    yield "deep object", b'{"a":' * 900 + b"1" + b"}" * 900
    yield "deep parameters", b'{"type": "collatz", "parameters": ' + b'{"a":' * 900 + b"1" + b"}" * 901
    yield "deep value", b'{"type": "thread", "parameters": {"cores": ' + b"[" * 700 + b"]" * 700 + b"}}"
    for value in (b"null", b"7", b'"x"', b"[]", b"[{}]", b"true", b"1.5", b'[["type", "collatz"]]', b"{}"):
        yield f"only {value.decode()}", value
    yield "gzip", gzip.compress(VALID[0])
