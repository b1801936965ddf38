"""Tests that each request to an engine has its own connection, so that leftover bytes never reach the next client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest

from coordinator.services.gateway.openai import BadUpstream
from jobs.network import tunnel
from jobs.network.tunnel import Stream
from tests.unit.engine_fake import Asked, Engine, chunk, tokens, until
from tests.unit.test_service_gateway import STREAM, Client, Stored, run, with_engines
from tests.unit.test_tunnel import Pair

SECRET = b"the answer of another client"


def answer(text: bytes, *head: bytes, status: bytes = b"200 OK") -> bytes:
    lines = [b"HTTP/1.1 " + status, b"Content-Type: application/json", *head, b"", text]
    return b"\r\n".join(lines)


FORGED = answer(SECRET, b"Content-Length: %d" % len(SECRET))
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
STREAM_BODY = b"data: " + json.dumps(chunk("a")).encode() + b"\n\ndata: [DONE]\n\n"


async def beyond_its_length(asked: Asked) -> None:
    await asked.send(answer(b"{}", b"Content-Length: 2") + FORGED)


async def while_idle(asked: Asked) -> None:
    await asked.send(answer(b"{}", b"Content-Length: 2"))
    await asyncio.sleep(0.05)
    await asked.send(FORGED)


async def after_the_last_chunk(asked: Asked) -> None:
    await asked.send(answer(b"2\r\n{}\r\n0\r\n\r\n", b"Transfer-Encoding: chunked") + FORGED)


async def after_the_last_chunk_of_a_stream(asked: Asked) -> None:
    body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(STREAM_BODY), STREAM_BODY)
    await asked.send(STREAM_HEAD + body + FORGED)
    await asked.gone()


async def without_content(asked: Asked) -> None:
    await asked.send(answer(FORGED, b"Content-Length: %d" % len(FORGED), status=b"204 No Content"))


async def not_modified(asked: Asked) -> None:
    await asked.send(answer(FORGED, b"Content-Length: %d" % len(FORGED), status=b"304 Not Modified"))


async def interim(asked: Asked) -> None:
    await asked.send(b"HTTP/1.1 103 Early Hints\r\n\r\n" + answer(b"{}", b"Content-Length: 2") + FORGED)


LEFT_OVER = (
    beyond_its_length,
    while_idle,
    after_the_last_chunk,
    after_the_last_chunk_of_a_stream,
    without_content,
    not_modified,
    interim,
)


@pytest.mark.parametrize("behaviour", LEFT_OVER)
def test_bytes_after_an_answer_reach_no_other_client(behaviour: Callable[[Asked], Awaitable[None]]) -> None:
    async def first_only(asked: Asked) -> None:
        await (behaviour if asked.body.get("first") else tokens)(asked)

    async def work(client: Client, engines: list[Engine]) -> None:
        for pause in (0.0, 0.1):
            streams = behaviour is after_the_last_chunk_of_a_stream
            with suppress(BadUpstream):  # of 304, which is no answer
                assert SECRET not in await client.text({"model": "chat", "first": True, "stream": streams})
            await asyncio.sleep(pause)
            for body in ({"model": "chat"}, STREAM):
                text = await client.text(body)
                assert SECRET not in text and (b"abc" in text or b"[DONE]" in text)
        assert len(engines[0].asked) == 6, "every request has reached the engine"

    with_engines(1, work, first_only)


def test_an_answer_that_comes_before_its_request_reaches_no_other_client() -> None:
    connections = 0

    async def go() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1
            engine = Engine()
            if connections == 1:
                writer.write(FORGED * 2)
            await engine._serve(reader, writer)

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        listening = Engine()
        listening.port = server.sockets[0].getsockname()[1]
        client = Client(Stored(listening))
        try:
            assert SECRET in await client.text({"model": "chat"}), "it answered its own connection"
            assert b"abc" in await client.text({"model": "chat"})
        finally:
            await client.gateway.close()
            server.close()

    run(go)


def test_each_request_has_a_connection_that_ends_with_its_answer() -> None:
    ended = 0

    async def noting(asked: Asked) -> None:
        nonlocal ended
        assert "connection: close" in asked.head.lower()
        await tokens(asked)
        await asked.gone()
        ended += 1

    def have_ended(count: int) -> bool:
        return ended == count

    async def work(client: Client, engines: list[Engine]) -> None:
        for number in range(1, 4):
            assert b"abc" in await client.text({"model": "chat"})
            await until(partial(have_ended, number))
        assert len({asked.writer for asked in engines[0].asked}) == 3

    with_engines(1, work, noting)


def test_an_engine_with_one_thread_for_each_connection_keeps_no_other_coordinator_waiting() -> None:
    """llama.cpp has few threads, each of which waits five seconds for the next request on its connection."""
    thread = asyncio.Lock()

    class OneThread(Engine):
        async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            async with thread:
                await super()._serve(reader, writer)

    async def go() -> None:
        async with OneThread() as engine:
            coordinators = [Client(Stored(engine)) for _ in range(2)]
            try:
                async with asyncio.timeout(3):
                    for client in coordinators * 2:
                        assert b"abc" in await client.text({"model": "chat"})
            finally:
                for client in coordinators:
                    await client.gateway.close()

    run(go)


def test_bytes_after_an_answer_through_a_tunnel_reach_no_other_client() -> None:
    async def engine(stream: Stream) -> None:
        """Answer each request of a stream, and add extra bytes to the first response."""
        while True:
            heard = b""
            while b"}" not in heard:
                if not (come := await stream.read(1 << 16)):
                    return
                heard += come
            await stream.write(answer(b"{}", b"Content-Length: 2") + (FORGED if b'"first"' in heard else b""))

    async def go() -> None:
        pair = Pair()
        pair.serve = engine
        client = Client(Stored(Engine()))
        [one] = client.stored.list
        assert one.report
        client.stored.list = [replace(one, report=replace(one.report, address=tunnel.ADDRESS))]
        client.gateway.routes.tunnels.add("runner-1", pair.left)
        try:
            assert await client.text({"model": "chat", "first": True}) == b"{}"
            assert await client.text({"model": "chat"}) == b"{}"
            assert len(pair.accepted) == 2
        finally:
            await client.gateway.close()

    run(go)
