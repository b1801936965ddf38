"""One connection to Redis within an event loop: many calls are under way on it, and no thread waits for an answer.

For calls that may be repeated. Where it cannot make one, it says so at once, and the call is made the ordinary way, in
a thread, which knows what to do about a Redis that is away, was replaced, or has lost the functions.
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
#: Calls under way at most; others are made in threads.
MOST = 256
#: A connection on which an answer takes longer is given up; the calls on it are made in threads.
SILENCE_SECONDS = 1.0
#: Rest before another attempt to connect, and time for which an attempt is waited for.
RETRY_SECONDS, CONNECT_SECONDS = 1.0, 3.0
_NOTHING_YET = object()


class Away(Exception):
    """The call was not answered, though it may have been made: make it in a thread."""


class _Call:
    """Replies to commands that were sent together."""

    def __init__(self, count: int, loop: asyncio.AbstractEventLoop) -> None:
        self.began = time.monotonic()
        self.replies: list[Any] = []
        self.whole: asyncio.Future[list[Any]] = loop.create_future()
        self._count = count

    def add(self, reply: Any) -> bool:
        """Take a reply; True when it is the last one."""
        self.replies.append(reply)
        if len(self.replies) < self._count:
            return False
        if not self.whole.done():  # its caller may have gone
            self.whole.set_result(self.replies)
        return True

    def fail(self) -> None:
        if not self.whole.done():
            self.whole.set_exception(Away())


class _Replies(asyncio.Protocol):
    """Gives each reply to the call that has waited longest."""

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
        """Send commands in one packet and return what has their replies. Away."""
        if self.transport is None:
            raise Away
        call = _Call(len(commands), asyncio.get_running_loop())
        self.waiting.append(call)
        self.transport.write(b"".join(hiredis.pack_command(cast(Any, tuple(command))) for command in commands))
        return call.whole

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not _NOTHING_YET:
            if not self.waiting:  # a server that speaks unasked is none of ours
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
        """End the connection; calls that are under way on it are made in threads."""
        if self.transport is not None:
            self.transport.abort()
            self.transport = None


class Wire:
    """Calls of Redis by one connection of a loop, which is made anew when it is lost.

    There is none over TLS or a socket of this machine: every call is then one for a thread.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._replies = _Replies()
        self._connecting: asyncio.Task[None] | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._tried = -RETRY_SECONDS
        self._closed = True

    def open(self) -> None:
        """Allow a connection. Without it none is made: its loop might end before it does."""
        self._closed = False

    @property
    def ready(self) -> bool:
        """Return True where a call may be made now; else begin to connect, where that was not tried just now."""
        if self._replies.transport is not None:
            return len(self._replies.waiting) < MOST
        rested = time.monotonic() - self._tried >= RETRY_SECONDS
        if rested and not self._closed and (self._connecting is None or self._connecting.done()):
            self._tried = time.monotonic()
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
        return False

    async def call(self, *commands: Command) -> list[Any]:
        """Make calls in one packet and return their replies, errors in their places. Away."""
        if not self.ready:
            raise Away
        replies = self._replies.send(commands)
        if self._watch is None:
            self._watch = asyncio.get_running_loop().call_later(SILENCE_SECONDS, self._look)
        return await replies

    def _look(self) -> None:
        """Give up a connection whose oldest call has waited too long."""
        self._watch = None
        if not self._replies.waiting:
            return
        left = self._replies.waiting[0].began + SILENCE_SECONDS - time.monotonic()
        if left > 0:
            self._watch = asyncio.get_running_loop().call_later(left, self._look)
        else:
            log.warning("redis was silent for %g s: connecting anew", SILENCE_SECONDS)
            self._replies.give_up()

    async def _connect(self) -> None:
        with suppress(*Unreachable, OSError, Away):
            server = await asyncio.to_thread(connection.server_of, self._client)
            if server is None:
                self._closed = True
                return
            async with asyncio.timeout(CONNECT_SECONDS):
                self._replies = await _connected(server)

    async def close(self) -> None:
        """End the connection, and make none any more."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            with suppress(asyncio.CancelledError):
                await self._connecting
        self._replies.give_up()
        if self._watch is not None:
            self._watch.cancel()


async def _connected(server: Server) -> _Replies:
    """Return a connection that is logged in. Raises OSError, Away."""
    _, replies = await asyncio.get_running_loop().create_connection(_Replies, server.host, server.port)
    try:
        answers = await replies.send(server.greeting) if server.greeting else []
    except asyncio.CancelledError:
        replies.give_up()
        raise
    if any(isinstance(answer, Exception) for answer in answers):
        replies.give_up()
        raise Away
    return replies
