"""Tests request bodies: which are parsed, which are rejected early, and how many are held at once."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from coordinator.jobs import submissions
from coordinator.server import bodies, patterns
from jobs import errors
from jobs.store.tenancy import tenants
from jobs.store.work.bounds import Octets

MB = 1 << 20


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'{"a": [1, -2.5, null, true]}', {"a": [1, -2.5, None, True]}),
        (b"7" * 4300, int("7" * 4300)),
        (b"[" * 199 + b"]" * 199, None),
        ('"\N{GRINNING FACE}"'.encode(), "\N{GRINNING FACE}"),
        (b'{"a":1,"a":2}', {"a": 2}),
        (b"18446744073709551617", 2**64 + 1),
    ],
)
def test_json_is_read_exactly(text: bytes, value: Any) -> None:
    assert value is None or bodies.parse_json(text, 1000) == value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"7" * 4301, "decimal string"),
        (b"7" * MB, "decimal string"),
        (b"[" * 300_000, "recursion"),
        (b"NaN", "NaN"),
        (b'{"a": -Infinity}', "-Infinity"),
        (b'"\xff"', "not JSON"),
        (b'"\\ud800"', "not JSON"),
        (b"{}}", "not JSON"),
        (b"\n\n nonsense", "line 3"),
    ],
)
def test_what_is_not_json_or_too_long_a_number_is_refused(text: bytes, words: str) -> None:
    with pytest.raises(errors.MalformedBody, match=words):
        bodies.parse_json(text, bodies.MAX_BATCH_VALUES)


@pytest.mark.parametrize(
    "text",
    [
        b"[" + b",".join([b"[]"] * 4 * MB) + b"]",
        b"[" + b"0," * 8 * MB + b"0]",
        b"[" + b"[[[]]]," * 2 * MB + b"0]",
        b"{" + b'"":0,' * 3 * MB + b'"":0}',
    ],
    ids=["lists", "numbers", "nested", "keys"],
)
def test_many_values_are_refused_unread(text: bytes) -> None:
    before = time.process_time()
    with pytest.raises(errors.TooLarge, match="values"):
        bodies.parse_json(text, bodies.MAX_BATCH_VALUES)
    assert time.process_time() - before < 0.5


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"[" + b"9" * 4000 + b"," + b" " * 17 * MB + b"0]", "bytes of numbers"),
        (b'["\\\\",' + b"9" * 17 * MB + b',"x"]', "bytes of numbers"),
        (b'["\\"",' + b"9" * 17 * MB + b"]", "bytes of numbers"),
        (b'["' + b"\\n" * 9 * MB + b'"]', "backslashes"),
        (b'["' + b'""' * 9 * MB + b'"]', "strings"),
    ],
    ids=["numbers", "after a backslash in a text", "after a quote in a text", "escapes", "texts"],
)
def test_large_bodies_that_are_costly_to_parse_are_refused_unread(text: bytes, words: str) -> None:
    with pytest.raises(errors.TooLarge, match=words):
        bodies.parse_json(text, bodies.MAX_BATCH_VALUES)


def test_large_texts_with_quotes_and_backslashes_are_read() -> None:
    text = '"\\' * (MB // 2) + "7" * 9 * MB
    assert bodies.parse_json(json.dumps([text, text]).encode(), 10) == [text, text]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"after": [7] * 900}, "after.0"),
        ({"after": ["x"] * 50 + [7] * 900}, "after.50"),
        ({"after": ["x"] * 500 + [7]}, "after.500"),
        ({"after": ["x"] * 500 + [7] * 400}, "body"),
    ],
    ids=["all", "within the first hundred", "one", "all after the first hundred"],
)
def test_of_many_errors_few_are_described(body: dict[str, Any], field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    described, real = [], submissions.problem

    def noted(error: ValidationError, *more: Any) -> errors.InvalidRequest:
        described.append(error.error_count())
        return real(error, *more)

    monkeypatch.setattr(submissions, "problem", noted)
    with pytest.raises(errors.InvalidRequest) as refused:
        submissions.validate(submissions.Submission, {"type": "collatz", **body})
    assert refused.value.field == field and sum(described) <= 100


def test_a_million_unknown_keys_are_one_complaint() -> None:
    before = time.process_time()
    for _ in range(3):
        with pytest.raises(errors.InvalidRequest, match="x0: is not a known field"):
            submissions.parse_submission({f"x{number}": 1 for number in range(300_000)})
    assert time.process_time() - before < 3


@pytest.mark.parametrize("size", [0, 1, 786_431, 786_432, 786_433, 2 * 786_432, 5 * MB + 1])
def test_base64_is_decoded_in_pieces(size: int) -> None:
    content = bytes(range(256)) * (size // 256 + 1)
    text = base64.b64encode(content[:size]).decode()
    octets: TypeAdapter[bytes] = TypeAdapter(Octets)
    assert octets.validate_python(text) == content[:size]
    for wrong in (text + "QUI=QUJD", text + "*", text[:-1] or "x", f"{'QUJD' * 262_143}QQ=={text}QUJD"):
        with pytest.raises(ValidationError, match="must be base64"):
            octets.validate_python(wrong)


def test_bodies_wait_for_room_and_give_it_back_however_they_end() -> None:
    async def go() -> list[str]:
        held, told = bodies.BodyMemory(), []

        async def one(name: str, size: int, seconds: float) -> None:
            async with held.reserve(size):
                told.append(f"{name} in")
                await asyncio.sleep(seconds)
                told.append(f"{name} out")

        first = asyncio.create_task(one("first", 20 * MB, 60))
        await asyncio.sleep(0)
        second, small = asyncio.create_task(one("second", 16 * MB, 0)), asyncio.create_task(one("small", MB, 0))
        await small
        first.cancel()
        await second
        return told

    assert asyncio.run(go()) == ["first in", "small in", "small out", "second in", "second out"]


def test_large_bodies_are_worked_on_one_after_the_other() -> None:
    """A body takes several times its size while it is parsed, so large ones are handled one after another."""

    async def go() -> list[str]:
        among, told = bodies.BodyMemory(96 * MB), []

        async def one(name: str, size: int) -> None:
            async with among.reserve(size), among.lock_if_large(size):
                told.append(f"{name} in")
                await asyncio.sleep(0.05 if size > MB else 0)
                told.append(f"{name} out")

        await asyncio.gather(one("first", 40 * MB), one("second", 40 * MB), one("small", MB))
        return told

    assert asyncio.run(go()) == ["first in", "small in", "small out", "first out", "second in", "second out"]


def test_a_pattern_is_stated_in_words() -> None:
    complaint = "String should match pattern '{}'".format
    assert patterns.explain(complaint(patterns.SCOPE)).startswith("must be one of read, submit")
    assert patterns.explain(complaint(tenants.NAME)).startswith("must be 1 to 32 lowercase letters")
    assert patterns.explain(complaint(patterns.TOKEN_ID)).endswith("List the IDs with `cluster token list`")
    assert patterns.explain(complaint("^x$")) == complaint("^x$") and patterns.explain("other") == "other"
