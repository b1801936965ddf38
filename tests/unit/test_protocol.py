"""Tests that endless requests are closed and that headers are limited, without effects on other requests."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn

from coordinator.server import protocol
from tests.ports import free_port

GET = b"GET /a HTTP/1.1\r\nHost: localhost\r\n"


async def _echo(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the length of the body when it is complete."""
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size, more = size + len(message["body"]), message["more_body"]
    body = str(size).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


@contextlib.asynccontextmanager
async def serving(app: Any = _echo) -> AsyncIterator[int]:
    """Run a server configured like a coordinator's, on its own port."""
    port = free_port()
    config = uvicorn.Config(
        app, host="127.0.0.1", port=port, http=protocol.BoundedProtocol, lifespan="off", log_config=None
    )
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    try:
        yield port
    finally:
        server.should_exit = True
        await running


def heard(*pieces: bytes, end: bool = True, patience: float = 20.0) -> bytes:
    """Send these pieces 20 ms apart, and return the output until the server closes; `end` closes after each."""

    async def go() -> bytes:
        text = bytearray()
        async with serving() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.suppress(ConnectionError):
                for piece in pieces:
                    writer.write(piece.replace(b"Host", b"Connection: close\r\nHost") if end else piece)
                    await writer.drain()
                    await asyncio.sleep(0.02)
                while read := await asyncio.wait_for(reader.read(1000), patience):
                    text += read
            writer.transport.abort()
        return bytes(text)

    return asyncio.run(go())


@pytest.mark.parametrize("pieces", [(), (b"GET /a HT",), (GET,), (GET + b"X: ", b"a", b"b"), (b"\r\n",)])
def test_a_head_that_never_ends_is_closed(pieces: tuple[bytes, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(protocol.SECONDS, protocol.Stage.HEAD, 0.3)
    assert heard(*pieces) == b""


def test_the_second_request_of_a_connection_is_watched_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(protocol.SECONDS, protocol.Stage.HEAD, 0.3)
    assert heard(GET + b"\r\n", GET, end=False).endswith(b"\r\n\r\n0")


def test_a_body_that_never_ends_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(protocol.SECONDS, protocol.Stage.BODY, 0.3)
    assert heard(b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n", b"abc") == b""


def test_a_request_in_pieces_is_answered_and_its_connection_lives_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(protocol.SECONDS, protocol.Stage.HEAD, 5.0)
    post = b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc"
    pieces = (GET[:9], GET[9:] + b"\r\n", post, b"defghi", GET + b"Connection: close\r\n\r\n")
    answers = heard(*pieces, end=False)
    assert answers.count(b"200 OK") == 3 and answers.endswith(b"\r\n\r\n0") and b"\r\n\r\n9HTTP" in answers


@pytest.mark.parametrize(
    "pieces",
    [
        (GET, b"X: " + b"a" * 70_000 + b"\r\n\r\n"),
        (GET + b"X: a\r\n" * 20_000 + b"\r\n",),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",),
        (GET + b"X: ", *[b"a" * 60_000] * 9),
    ],
    ids=["header", "headers", "path", "pieces"],
)
def test_a_head_over_64_kib_is_a_431(pieces: tuple[bytes, ...]) -> None:
    # Nothing, where the client was still sending when the connection was closed.
    said = heard(*pieces)
    assert not said or said.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")


def test_a_large_head_and_a_large_body_pass() -> None:
    assert heard(GET + b"X: " + b"a" * 60_000 + b"\r\n\r\n").endswith(b"\r\n\r\n0")
    body = b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n" + b"a" * 3_000_000
    assert heard(body).endswith(b"\r\n\r\n3000000")


def test_what_is_no_request_is_a_400() -> None:
    assert heard(b"nonsense\r\n\r\n").startswith(b"HTTP/1.1 400 ")


def test_a_client_that_does_not_take_its_answer_is_cut_off_and_one_that_does_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    piece, count = b"x" * (1 << 18), 64

    async def go() -> None:
        ended = asyncio.Event()

        async def long(scope: Any, receive: Any, send: Any) -> None:
            await receive()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for _ in range(count):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
            ended.set()

        async with serving(long) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(GET + b"Connection: close\r\n\r\n")
            assert len(await asyncio.wait_for(reader.read(-1), 60)) > count * len(piece)
            writer.close()
            ended.clear()
            monkeypatch.setattr(protocol, "SEND_SECONDS", 0.3)
            silent = socket.create_connection(("127.0.0.1", port))
            silent.sendall(GET + b"\r\n")
            await asyncio.wait_for(ended.wait(), 60)
            silent.close()

    asyncio.run(go())
