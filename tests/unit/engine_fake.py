"""Fake engine: a server that reads requests and answers them byte by byte as a test requires."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Self, TypeAlias

Json: TypeAlias = dict[str, Any]


async def until(what: Callable[[], Any]) -> None:
    """Wait until a condition is true."""
    while not what():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


class Asked:
    """A request, and a function that writes its response."""

    def __init__(self, head: str, body: Json, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.head, self.body, self.reader, self.writer = head, body, reader, writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, status: int, body: Json) -> None:
        text = json.dumps(body).encode()
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
        await self.send(head.encode() + text)

    async def begin_stream(self) -> None:
        await self.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")

    async def frame(self, body: Json) -> None:
        await self.send(b"data: " + json.dumps(body).encode() + b"\n\n")

    async def gone(self) -> None:
        """Wait until the gateway has closed the connection."""
        with suppress(ConnectionError):
            await self.reader.read()


Behaviour: TypeAlias = Callable[[Asked], Awaitable[None]]


def chunk(text: str) -> Json:
    return {"choices": [{"index": 0, "delta": {"content": text}}]}


USAGE = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}


async def tokens(asked: Asked) -> None:
    """Stream three tokens, with counts if requested, or send one complete answer."""
    if not asked.body.get("stream"):
        await asked.answer(200, {"choices": [{"text": "abc"}], "usage": USAGE["usage"]})
        return
    await asked.begin_stream()
    for letter in "abc":
        await asked.frame(chunk(letter))
    if asked.body.get("stream_options", {}).get("include_usage"):
        await asked.frame(USAGE)
    await asked.send(b"data: [DONE]\n\n")


class Engine:
    """A fake engine on its own port, used as an async context manager."""

    def __init__(self, behaviour: Behaviour = tokens) -> None:
        self.behaviour = behaviour
        self.asked: list[Asked] = []
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                [size] = [line.split(":")[1] for line in head.lower().splitlines() if line.startswith("content-length")]
                asked = Asked(head, json.loads(await reader.readexactly(int(size))), reader, writer)
                self.asked.append(asked)
                await self.behaviour(asked)
                if "event-stream" in head or asked.body.get("stream"):
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
