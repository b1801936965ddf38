"""Tests the gateway against malicious engines and clients that do not read: each is answered or disconnected."""

from __future__ import annotations

import asyncio
import gzip
import json
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest
from fastapi import Response

from coordinator.services.gateway import gateway, openai
from coordinator.services.gateway.gateway import PassedStream
from coordinator.services.gateway.openai import BadUpstream, NoReplica, TooLate, UnknownModel
from coordinator.services.gateway.shares import SMALL, Shares
from jobs import errors
from tests.unit.engine_fake import Asked, Behaviour, Engine, tokens, until
from tests.unit.test_service_gateway import STREAM, Client, drip, run, with_engines

_STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n"
_HUGE = 10**400


def says(*pieces: bytes) -> Behaviour:
    async def behave(asked: Asked) -> None:
        for piece in pieces:
            await asked.send(piece)
        asked.writer.close()

    return behave


def whole(text: bytes, *head: bytes, status: int = 200) -> bytes:
    lines = [b"HTTP/1.1 %d X" % status, b"Content-Length: %d" % len(text), *head, b"", text]
    return b"\r\n".join(lines)


async def nothing_is_held(client: Client) -> None:
    route = await client.gateway.routes.find("default", "chat")
    assert (route.gate.active, route.gate.waiting) == (0, 0)
    assert not any(client.gateway.routes.busy.values()) and not any(client.gateway.routes.asked.values())


def answered(behaviour: Behaviour, body: dict[str, Any] | None = None) -> tuple[Response, bytes, Client]:
    """Return an engine's response, its text and its client, or None with BadUpstream."""
    got: list[tuple[Response, bytes, Client]] = []

    async def work(client: Client, _engines: list[Engine]) -> None:
        try:
            answer = await client.ask(body or {"model": "chat"})
            sent: list[bytes] = []
            await answer(_SCOPE, _stays, _into(sent))
            got.append((answer, b"".join(sent), client))
        finally:
            await nothing_is_held(client)
            assert len(client.ended) == 1, "counted once"

    with_engines(1, work, behaviour, request_timeout_seconds=20)
    return got[0]


_SCOPE = {"type": "http", "asgi": {"spec_version": "2.3"}}


async def _stays() -> dict[str, Any]:
    await asyncio.Event().wait()
    raise AssertionError


def _into(sent: list[bytes]) -> Any:
    async def send(message: dict[str, Any]) -> None:
        sent.append(bytes(message.get("body", b"")))

    return send


_BOMB = gzip.compress(bytes(1 << 20))


@pytest.mark.parametrize(
    ("said", "body"),
    [
        (whole(_BOMB, b"Content-Encoding: gzip"), {}),
        (_STREAM_HEAD + b"Content-Encoding: gzip\r\n\r\n" + _BOMB, STREAM),
        (whole(b"{}", status=600), {}),
        (whole(b"{}", status=999), {}),
        (whole(b"{}", status=305), {}),
        (b"HTTP/1.1 101 X\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nhello", {}),
        (whole(b"{}x", b"Content-Length: 2"), {}),
        (b"HTTP/1.1 200 X\r\nContent-Length: -2\r\n\r\n{}", {}),
        (b"HTTP/1.1 200 X\r\nA: " + b"x" * (1 << 20) + b"\r\n\r\n", {}),
        (b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n{}", {}),
    ],
    ids=lambda value: repr(value[:60]) if isinstance(value, bytes) else "",
)
def test_an_answer_that_is_none_is_a_502_and_holds_nothing(said: bytes, body: dict[str, Any]) -> None:
    with pytest.raises(BadUpstream):
        answered(says(said), {"model": "chat", **body})


def test_a_type_with_letters_that_no_header_may_have_is_bytes() -> None:
    answer, text, _ = answered(says(whole(b"{}", "Content-Type: application/json; x=ł".encode())))
    assert (answer.headers["content-type"], text) == ("application/octet-stream", b"{}")


@pytest.mark.parametrize("count", [_HUGE, 10**30, -1, 1.5, True, None, "7", float("nan")])
@pytest.mark.parametrize("streams", [False, True])
def test_counts_that_are_none_count_nothing(count: Any, *, streams: bool) -> None:
    last = json.dumps({"choices": [], "usage": {"prompt_tokens": count, "completion_tokens": 3}}).encode()
    said = _STREAM_HEAD + b"\r\ndata: %s\n\ndata: [DONE]\n\n" % last if streams else whole(last)
    *_, client = answered(says(said), {"model": "chat", "stream": streams})
    assert (client.ended[0].prompt_tokens, client.ended[0].answer_tokens, client.ended[0].status) == (0, 3, 200)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b'{"choices": [{"text": "say \\"usage\\": {"}], "usage": {"prompt_tokens": 1}}', {"prompt_tokens": 1}),
        (
            b'{"usage": {"prompt_tokens": 1}, "data": [' + b"{}," * 100_000 + b'{}], "of": "usage"}',
            {"prompt_tokens": 1},
        ),
        (b'{"usage" : null}', None),
        (b'{"usage":' + b"[" * 10_000, None),
        (b'{"usage":' + b'{"a":' * 10_000, None),
        (b'"usage"' * 10_000, None),
        (b'{"usage": {' + b'"a": 1, ' * 10_000, None),
        (b"", None),
        (b"\xff", None),
    ],
    ids=range(9),
)
def test_counts_are_found_without_reading_the_answer(text: bytes, found: Any) -> None:
    assert openai.usage(text) == found


def test_a_stream_that_always_has_more_ends_in_time() -> None:
    async def floods(asked: Asked) -> None:
        await asked.begin_stream()
        while not asked.writer.is_closing():
            await asked.send(b"data: {}\n\n" * 1000)

    async def work(client: Client, _engines: list[Engine]) -> None:
        text = b""
        while not text:
            with suppress(TooLate):  # on a machine so busy that even the first frame is late
                text = await client.text(STREAM)
        assert b"took longer than" in text.split(b"\n\n")[-2]
        await nothing_is_held(client)

    with_engines(1, work, floods, request_timeout_seconds=1)


@pytest.mark.parametrize("sleeps", [False, True])
def test_who_leaves_before_the_stream_begins_holds_nothing(*, sleeps: bool) -> None:
    async def left() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def work(client: Client, _engines: list[Engine]) -> None:
        there = client.stored.list
        for _ in range(5):
            client.stored.list = [] if sleeps else there
            answer = await client.ask(STREAM)
            assert isinstance(answer, PassedStream)
            await answer(_SCOPE, left, _into([]))
            await nothing_is_held(client)
        assert [one.status for one in client.ended] == [499] * 5

    with_engines(1, work, drip, max_concurrent_requests=2, **({"idle_seconds": 60} if sleeps else {}))


def test_an_engine_is_asked_for_plain_answers() -> None:
    async def plain(asked: Asked) -> None:
        assert "accept-encoding: identity" in asked.head.lower()
        await tokens(asked)

    assert b"abc" in answered(plain)[1]


def test_large_answers_wait_for_room_and_a_client_that_does_not_read_keeps_others_from_nothing_small(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gateway, "TAKE_SECONDS", 0.3)

    async def large(asked: Asked) -> None:
        await asked.answer(200, {"choices": [{"text": "x" * int(asked.body.get("size", 1))}]})

    async def never(_message: Any) -> None:
        await asyncio.Event().wait()

    async def work(client: Client, _engines: list[Engine]) -> None:
        client.gateway.answers = Shares(300_000, 200_000)
        first = await client.ask({"model": "chat", "size": 150_000})
        second = asyncio.create_task(client.ask({"model": "chat", "size": 150_000}))
        assert (await client.ask({"model": "chat"})).status_code == 200, "small ones never wait"
        assert not second.done()
        await first(_SCOPE, _stays, never)
        sent: list[bytes] = []
        await (await second)(_SCOPE, _stays, _into(sent))
        assert len(b"".join(sent)) > 150_000 and max(map(len, sent)) <= 1 << 16
        assert await free(client.gateway.answers, 200_000)

    with_engines(1, work, large)


async def free(shares: Shares, size: int) -> bool:
    async with shares.room("default", size, 5):
        return True


def test_a_request_holds_its_room_until_its_stream_begins() -> None:
    begins = asyncio.Event()

    async def slow(asked: Asked) -> None:
        await begins.wait()
        await drip(asked)

    async def work(client: Client, engines: list[Engine]) -> None:
        shares = Shares(300_000, 200_000)
        room = AsyncExitStack()
        await room.enter_async_context(shares.room("default", 150_000, 5))
        asking = asyncio.create_task(client.ask(STREAM, room=room))
        await until(lambda: engines[0].asked)
        with pytest.raises(errors.OverLimit, match="large requests"):
            await free_at_once(shares)
        begins.set()
        answer = await asking
        assert await free(shares, 200_000)
        await answer.body_iterator.aclose()  # type: ignore[attr-defined]

    with_engines(1, work, slow)


async def free_at_once(shares: Shares) -> None:
    async with shares.room("default", 150_000, 0.01):
        pass


@pytest.mark.parametrize("model", ["chat", "other"])
def test_a_request_that_is_refused_gives_its_room_back(model: str) -> None:
    async def work(client: Client, _engines: list[Engine]) -> None:
        shares = Shares(300_000, 200_000)
        async with AsyncExitStack() as room:
            await room.enter_async_context(shares.room("default", 150_000, 5))
            with pytest.raises((NoReplica, UnknownModel)):
                await client.ask({"model": model}, room=room)
        assert await free(shares, 200_000)

    with_engines(0, work)


def test_a_tenant_has_its_part_of_the_room_and_no_more() -> None:
    async def work() -> None:
        shares = Shares(300_000, 200_000)
        async with shares.room("one", 200_000, 5), shares.room("one", SMALL, 5):
            with pytest.raises(errors.OverLimit):
                await asyncio.wait_for(shares.room("one", 70_000, 0.01).__aenter__(), 5)
            async with shares.room("two", 100_000, 5):
                pass

    run(work)
