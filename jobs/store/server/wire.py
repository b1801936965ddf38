"""Pipelined connection to Redis in an event loop. Many calls can be in progress, and no thread waits for replies.

Use it for calls that can be repeated. If Redis is unavailable, NoReply is raised at once. The caller then makes the
call in a thread with the ordinary client, which handles a Redis that is down, was replaced, or has lost its functions.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeAlias, cast

import hiredis

from jobs.store.server import connection
from jobs.store.server.connection import KEEPALIVE, Client, Server, Unreachable

log = logging.getLogger(__name__)

Command: TypeAlias = Sequence[str | bytes | int | float]
#: Maximum number of calls that are in progress at the same time.
MOST = 256
#: Seconds without a reply after which the connection is closed.
SILENCE_SECONDS = 1.0
#: Interval in seconds between attempts to connect to Redis.
#: `CONNECT_SECONDS` is the timeout of an attempt in seconds.
RETRY_SECONDS, CONNECT_SECONDS = 1.0, 3.0
_NOTHING_YET = object()


class NoReply(Exception):
    """The call got no reply, but Redis may have executed the call. Repeat the call in a thread."""


class _Call:
    """Replies to commands that were sent together."""

    def __init__(self, count: int, loop: asyncio.AbstractEventLoop) -> None:
        self.began = time.monotonic()
        self.replies: list[Any] = []
        self.whole: asyncio.Future[list[Any]] = loop.create_future()
        self._count = count

    def add(self, reply: Any) -> bool:
        """Add a reply. Return True if it is the last missing reply."""
        self.replies.append(reply)
        if len(self.replies) < self._count:
            return False
        if not self.whole.done():  # The caller may have been cancelled
            self.whole.set_result(self.replies)
        return True

    def fail(self) -> None:
        if not self.whole.done():
            self.whole.set_exception(NoReply())


class _Replies(asyncio.Protocol):
    """Protocol that assigns each reply from Redis to the oldest call without a reply."""

    def __init__(self) -> None:
        self.waiting: deque[_Call] = deque()
        self.transport: asyncio.Transport | None = None
        self._reader = hiredis.Reader(replyError=connection.error_of, notEnoughData=_NOTHING_YET)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        connected = transport.get_extra_info("socket")
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in KEEPALIVE.items():
            connected.setsockopt(socket.IPPROTO_TCP, option, value)

    def send(self, commands: Sequence[Command]) -> asyncio.Future[list[Any]]:
        """Send commands in one packet, and return a future for their replies. Raises NoReply."""
        if self.transport is None:
            raise NoReply
        call = _Call(len(commands), asyncio.get_running_loop())
        self.waiting.append(call)
        self.transport.write(b"".join(hiredis.pack_command(cast(Any, tuple(command))) for command in commands))
        return call.whole

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not _NOTHING_YET:
            if not self.waiting:  # Redis sent a reply without a call
                self.give_up()
                return
            if self.waiting[0].add(reply):
                self.waiting.popleft()
            if isinstance(reply, connection.Replaced):
                self.give_up()
                return

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        while self.waiting:
            self.waiting.popleft().fail()

    def give_up(self) -> None:
        """Close the connection. Calls in progress then fail with NoReply."""
        if self.transport is not None:
            self.transport.abort()
            self.transport = None


class Wire:
    """Connection to Redis for calls in one event loop. A lost connection is replaced.

    With TLS or a Unix socket there is no connection, and every call raises NoReply.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._replies = _Replies()
        self._connecting: asyncio.Task[None] | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._tried = -RETRY_SECONDS
        self._closed = True

    def open(self) -> None:
        """Allow this object to connect to Redis. Before this call, it does not connect."""
        self._closed = False

    @property
    def ready(self) -> bool:
        """Return True if a call is possible now. Otherwise, start to connect, unless an attempt was made recently."""
        if self._replies.transport is not None:
            return len(self._replies.waiting) < MOST
        rested = time.monotonic() - self._tried >= RETRY_SECONDS
        if rested and not self._closed and (self._connecting is None or self._connecting.done()):
            self._tried = time.monotonic()
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
        return False

    async def call(self, *commands: Command) -> list[Any]:
        """Send commands in one packet and return their replies. Raises NoReply.

        The reply to a failed command is an exception.
        """
        if not self.ready:
            raise NoReply
        replies = self._replies.send(commands)
        if self._watch is None:
            self._watch = asyncio.get_running_loop().call_later(SILENCE_SECONDS, self._look)
        return await replies

    def _look(self) -> None:
        """Close the connection if its oldest call has waited for too long."""
        self._watch = None
        if not self._replies.waiting:
            return
        left = self._replies.waiting[0].began + SILENCE_SECONDS - time.monotonic()
        if left > 0:
            self._watch = asyncio.get_running_loop().call_later(left, self._look)
        else:
            log.warning("Redis did not answer for %g s. Reconnecting.", SILENCE_SECONDS)
            self._replies.give_up()

    async def _connect(self) -> None:
        with suppress(*Unreachable, OSError, NoReply):
            server = await asyncio.to_thread(connection.server_of, self._client)
            if server is None:
                self._closed = True
                return
            async with asyncio.timeout(CONNECT_SECONDS):
                self._replies = await _open_connection(server)

    async def close(self) -> None:
        """Close the connection permanently."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            with suppress(asyncio.CancelledError):
                await self._connecting
        self._replies.give_up()
        if self._watch is not None:
            self._watch.cancel()


async def _open_connection(server: Server) -> _Replies:
    """Open and authenticate a connection to Redis. Raises OSError or NoReply."""
    _, replies = await asyncio.get_running_loop().create_connection(_Replies, server.host, server.port)
    try:
        answers = await replies.send(server.greeting) if server.greeting else []
    except asyncio.CancelledError:
        replies.give_up()
        raise
    if any(isinstance(answer, Exception) for answer in answers):
        replies.give_up()
        raise NoReply
    return replies
