"""A receiver of webhooks on loopback with configurable responses."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

#: Function that answers on a connection after the request was read.
Answer: TypeAlias = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Got:
    """A received request."""

    line: str
    headers: dict[str, str]
    body: bytes
    #: Server name in the TLS handshake.
    name: str | None = None


def answers(status: int, *headers: str, body: bytes = b"") -> Answer:
    """Answer with a status."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        head = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(body)}", *headers, "", ""]
        writer.write("\r\n".join(head).encode() + body)
        await writer.drain()

    return answer


async def for_ever(writer: asyncio.StreamWriter) -> None:
    """Answer 200 with an endless body."""
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        writer.write(b"x" * 65536)
        await writer.drain()


async def go_on_for_ever(writer: asyncio.StreamWriter) -> None:
    """Send `100 Continue` again and again."""
    while True:
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)
        await writer.drain()


async def in_drops(writer: asyncio.StreamWriter) -> None:
    """Send an endless header, one character at a time."""
    writer.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.05)


async def silence(writer: asyncio.StreamWriter) -> None:
    """Send no response."""
    await asyncio.sleep(60)


async def nonsense(writer: asyncio.StreamWriter) -> None:
    """Send a response that is not HTTP."""
    writer.write(b"SSH-2.0-OpenSSH_9.6\r\n" + bytes(range(256)) * 8)
    await writer.drain()


@dataclass
class Receiver:
    """A server in its own thread."""

    answer: Answer = field(default_factory=lambda: answers(204))
    encryption: ssl.SSLContext | None = None
    got: list[Got] = field(default_factory=list)
    port: int = 0
    #: Maximum number of simultaneous connections.
    open: int = 0
    most: int = 0

    def __enter__(self) -> Receiver:
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(30)

    def url(self, path: str = "/hook?key=1", host: str = "127.0.0.1") -> str:
        return f"{'https' if self.encryption else 'http'}://{host}:{self.port}{path}"

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._taken, "127.0.0.1", 0, ssl=self.encryption)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._end.wait()
        server.close()

    async def _taken(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            shared = writer.get_extra_info("ssl_object")
            self.got.append(Got(head[0], headers, body, getattr(shared, "asked_name", None) if shared else None))
            await self.answer(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open -= 1
            writer.close()
