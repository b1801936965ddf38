"""Harmful request bodies: thousands of small ones, and decompression bombs of up to 16 MiB."""

from __future__ import annotations

import base64
import gzip
import json
import random
from collections.abc import Callable, Iterator

#: Maximum body size in bytes that the routes read.
ONE, BATCH = 1 << 20, 16 << 20

ROUTES = ("/api/submit", "/api/submit-batch", "/api/results", "/api/workers/worker-0/drain")
VALID = (
    b'{"type": "collatz", "parameters": {"start_number": 27, "number_count": 1}, "idempotency_key": "k"}',
    b'{"jobs": [{"type": "thread", "parameters": {"thread_count": 2, "replicas": 1}}, {"type": "collatz"}]}',
    b'{"job_ids": ["0123456789abcdef", "x"], "wait_seconds": 0}',
    b'{"on": false}',
)
TOKENS = (
    b"null",
    b"true",
    b"[]",
    b"{}",
    b'""',
    b"-0",
    b"1e5",
    b"1E400",
    b"0.1",
    b"NaN",
    b"Infinity",
    b'"\\ud800"',
    b"\x00",
    b"\xff",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"1" * 400,
    b'"type"',
    b",",
    b":",
    b"[",
    b"}",
    b'"',
    b"\\",
    b"//",
    b"'",
    b"\xe2\x80\xae",
    b"9007199254740993",
    b"-1",
    b"0x10",
    b"01",
    b"+1",
    b"1.",
    b".5",
    b'"a":1,',
    b"[[[[[[[[",
)


def mutated(draw: random.Random) -> bytes:
    """Return a valid body with one to four changes."""
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
    """Small bodies that often break parsers, keyed by name."""
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


def _filled(head: bytes, piece: bytes, tail: bytes, size: int) -> bytes:
    """Return `piece` as often as it fits."""
    return head + piece * ((size - len(head) - len(tail)) // len(piece)) + tail


def _jobs(values: str) -> bytes:
    return b'{"jobs": [' + values.encode() + b"]}"


def _parameter(name: str, value: str) -> bytes:
    return b'{"type": "collatz", "parameters": {"' + name.encode() + b'": ' + value.encode() + b"}}"


#: By name; each makes (route, body). Within the limits of size, so that it is read to the end.
BOMBS: dict[str, Callable[[], tuple[str, bytes]]] = {
    "integer of 100,000 digits": lambda: ("/api/submit", _parameter("number_count", "9" * 100_000)),
    "integer of a million digits": lambda: ("/api/submit", _parameter("n", "7" * 1_000_000)),
    "a string of a million digits": lambda: ("/api/submit", _parameter("n", f'"{"7" * 1_000_000}"')),
    "integers of 100,000 digits in a batch": lambda: (
        "/api/submit-batch",
        _filled(b'{"jobs": [', b"9" * 100_000 + b",", b"1]}", BATCH),
    ),
    "integers of 4,000 digits in a batch": lambda: (
        "/api/submit-batch",
        _filled(b'{"jobs": [', b"9" * 4000 + b",", b"1]}", BATCH),
    ),
    "millions of empty lists": lambda: ("/api/submit-batch", _filled(b'{"jobs": [', b"[],", b"[]]}", BATCH)),
    "millions of empty objects in a job": lambda: (
        "/api/submit-batch",
        _filled(b'{"jobs": [{"type": "collatz", "parameters": {"n": [', b"{},", b"{}]}}]}", BATCH),
    ),
    "millions of numbers": lambda: ("/api/submit-batch", _filled(b'{"jobs": [', b"1,", b"1]}", BATCH)),
    "a list of millions as a parameter": lambda: (
        "/api/submit",
        _filled(b'{"type": "thread", "parameters": {"cores": [', b"1,", b"1]}}", ONE),
    ),
    "an object of 1,300,000 keys": lambda: (
        "/api/submit-batch",
        (b'{"jobs": [{' + b",".join(b'"%d":1' % n for n in range(1_300_000)) + b"}]}")[:BATCH],
    ),
    "unknown keys in a submission": lambda: (
        "/api/submit",
        b"{" + b",".join(b'"%d":1' % n for n in range(90_000)) + b"}",
    ),
    "unknown keys in parameters": lambda: (
        "/api/submit",
        b'{"type": "thread", "parameters": {' + b",".join(b'"%d":1' % n for n in range(90_000)) + b"}}",
    ),
    "one key again and again": lambda: ("/api/submit-batch", _filled(b"{", b'"a":[],', b'"a":1}', BATCH)),
    "a million nested lists": lambda: ("/api/submit", b"[" * (ONE - 1)),
    "nested objects": lambda: ("/api/submit", (b'{"a":' * (ONE // 5))[:ONE]),
    "nested lists in a batch": lambda: (
        "/api/submit-batch",
        _filled(b'{"jobs": [', b"[" * 500 + b"]" * 500 + b",", b"1]}", BATCH),
    ),
    "a string of 16 MiB": lambda: ("/api/submit-batch", _filled(b'{"jobs": ["', b"x", b'"]}', BATCH)),
    "escapes": lambda: ("/api/submit-batch", _filled(b'{"jobs": ["', b"\\u0000", b'"]}', BATCH)),
    "wide letters": lambda: ("/api/submit-batch", _filled(b'{"jobs": ["', "\U0001f600".encode(), b'"]}', BATCH)),
    "a type that is long": lambda: ("/api/submit", _filled(b'{"type": "', b"t", b'"}', ONE)),
    "ids": lambda: ("/api/results", _filled(b'{"job_ids": [', b'"a",', b'"a"]}', ONE)),
    "ids that are objects": lambda: ("/api/results", _filled(b'{"job_ids": [', b"{},", b"{}]}", ONE)),
    "a thousand wrong jobs": lambda: (
        "/api/submit-batch",
        _jobs(
            ",".join(json.dumps({"type": "thread", "parameters": {"cores": [n, "x" * 15_000]}}) for n in range(1000))
        ),
    ),
    "jobs that are hard to plan": lambda: (
        "/api/submit-batch",
        _jobs(
            ",".join(
                json.dumps(
                    {
                        "type": "thread",
                        "parameters": {
                            "max_depth": 64,
                            "spawn": {"distribution": "poisson", "mean": 1e-300 * n, "shape": "linear"},
                            "work": {"distribution": "pareto", "mean_us": n, "alpha": 1.5, "max_ratio": 9000},
                            "replicas": 1,
                            "thread_count": 1,
                            "max_threads": 1,
                        },
                    }
                )
                for n in range(1, 201)
            )
        ),
    ),
    "spaces": lambda: ("/api/submit-batch", _filled(b'{"jobs":', b" ", b"[1]}", BATCH)),
    "half of everything": lambda: ("/api/submit-batch", _filled(b'{"jobs": [', VALID[0] + b",", b"", BATCH)),
    "floats": lambda: ("/api/submit-batch", _filled(b'{"jobs": [', b"0." + b"1" * 3000 + b"e-300,", b"1]}", BATCH)),
    "one float": lambda: ("/api/submit", _parameter("n", "0." + "1" * 1_000_000)),
}


def _call(name: str, **fields: object) -> tuple[str, bytes]:
    """Return a worker's request."""
    return name, json.dumps(fields).encode()


def _based(name: str, field: str, piece: bytes, **fields: object) -> tuple[str, bytes]:
    """Return a request about a lease with the maximum size, filled with pieces of a base64 text."""
    head = json.dumps({"job": "j", "token": "t", **fields}).encode()[:-1] + f', "{field}": "'.encode()
    return name, _filled(head, piece, b'"}', CALL)


def _committed(partial: bytes) -> tuple[str, bytes]:
    text = base64.b64encode(partial).decode()
    return _call("commit", job="j", token="t", upto=1, device="cpu", ms=1, partial=text)


def _done(result: bytes, count: int) -> tuple[str, bytes]:
    job = {"job_id": "j", "token": "t", "result": base64.b64encode(result).decode(), "ms": 1}
    return _call("done1-all", device="cpu", finished=[job] * count)


#: Maximum size of a worker's request.
CALL = 64 << 20
#: Large requests of workers.
WORKER_BOMBS: dict[str, Callable[[], tuple[str, bytes]]] = {
    "a partial of 47 MiB": lambda: _committed(b'{"a":"' + b"x" * (47 << 20) + b'"}'),
    "a partial that is no JSON": lambda: _committed(b"{" + b"[" * (1 << 20) + b"}"),
    "a partial of empty lists": lambda: _committed(_filled(b'{"a":[', b"[],", b"1]}", 1 << 20)),
    "a partial that is no base64": lambda: _based("commit", "partial", b"*", upto=1, device="cpu", ms=1),
    "a partial in escapes": lambda: _based("commit", "partial", b"\\u0041"),
    "an accumulator that is no object": lambda: _based("fold", "accumulator", b"eHh4", parts=1),
    "results of a megabyte": lambda: _done(_filled(b'{"a":[', b"1,", b"1]}", 1 << 20), 40),
    "results by the thousand": lambda: _done(b"{}", 18_000),
    "jobs that are none": lambda: _call("done1-all", device="cpu", finished=[7] * 140_000),
    "marks": lambda: _call("finish", job="j", marks=json.dumps([["a:b", "1-2", "x"]] * 50_000), result="e30="),
    "integers of 4,000 digits": lambda: ("lease", _filled(b'{"higher": [', b"9" * 4000 + b",", b"1]}", CALL)),
    "numbers beside a partial": lambda: (
        "commit",
        _filled(b'{"partial": "e30=", "upto": [', b"9" * 4000 + b",", b"1]}", CALL),
    ),
    "jobs without fields": lambda: _call("done1-all", device="cpu", finished=[{}] * 70_000),
    "kinds of long names": lambda: _call(
        "next", device="cpu", lanes=1, kinds={f"{'x' * 100}{number}": "1" for number in range(70_000)}
    ),
    "kinds": lambda: _call("next", device="cpu", lanes=1, kinds=dict.fromkeys(map(str, range(70_000)), 1)),
    "labels": lambda: _call("next", device="runner", lanes=1, offer={"labels": ["x"] * 140_000}),
    "leases": lambda: _call("heartbeat", leases=[["j", "t", 1]] * 30_000),
    "a row": lambda: _call("heartbeat", row={"kinds": "x" * (60 << 20)}),
    "an error": lambda: _call("fail-unit", error="x" * (60 << 20), row="{" * (1 << 20)),
    "unknown keys": lambda: _call("split", **dict.fromkeys(map(str, range(140_000)), 1)),
}
