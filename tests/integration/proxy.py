"""A TCP proxy between a worker and Redis that can simulate a bad network and repeat calls."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from random import Random

import redis

from jobs.store import Store
from tests.ports import free_port

#: Calls whose repetition at any time must change nothing.
REPEATED = ("commit", "done1", "fold", "finish", "release", "crash", "fail", "heartbeat", "abort")
#: Maximum delay of a repeated call: after its lease has expired, or after Redis has lost its log.
LATEST_SECONDS = 8.0
MODES = ("", "stall", "cut", "delay", "half-open", "lost-replies", "repeat")


def commands(buffer: bytearray) -> Iterator[bytes]:
    """Remove complete Redis commands from the start of a buffer."""
    while (end := _end(buffer)) > 0:
        command = bytes(buffer[:end])
        del buffer[:end]
        yield command


def _end(buffer: bytearray) -> int:
    """Return the end of the first command; 0 if it is incomplete."""
    line = buffer.find(b"\r\n")
    if line < 0:
        return 0
    left, at = int(buffer[1:line]), line + 2
    while left and (line := buffer.find(b"\r\n", at)) >= 0:
        at = line + 2 + int(buffer[at + 1 : line]) + 2
        left -= 1
    return 0 if left or at > len(buffer) else at


class Link:
    """One connection. A silent one accepts bytes without forwarding them, in one or both directions."""

    def __init__(self) -> None:
        self.outward_silent = self.inward_silent = False
        self.sent = bytearray()


class Proxy:
    """Forwards `port` to Redis in its own thread. Any thread can call `disturb` and `heal`."""

    def __init__(self, upstream: int) -> None:
        self.upstream = upstream
        self.port = free_port()
        self.repeated = 0
        self._mode, self._amount, self._draw = "", 0.0, Random(upstream)
        store = Store(redis.Redis(port=upstream))
        self._functions = {store.functions.function(name).encode() for name in REPEATED}
        self._writers: dict[asyncio.StreamWriter, Link] = {}
        self._later: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._call(self._listen())

    def stop(self) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def disturb(self, mode: str, amount: float = 0.0) -> None:
        """Switch to a mode of MODES; `amount` from 0 to 1 is its strength."""
        assert mode in MODES, mode
        self._call(self._set(mode, amount))

    def heal(self) -> None:
        """Restore a good network for new connections; silent connections remain silent."""
        self._call(self._set("", 0.0))

    def silence(self) -> int:
        """Silence all current connections permanently, and return their number. New connections work."""
        self.disturb("half-open")
        self.heal()
        return len(self._writers) // 2

    def _call(self, what: object) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(60)  # type: ignore[arg-type]

    async def _listen(self) -> None:
        self._clear = asyncio.Event()
        self._clear.set()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    async def _close(self) -> None:
        self._server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _set(self, mode: str, amount: float) -> None:
        self._mode, self._amount = mode, amount
        if mode in ("stall", "half-open", "lost-replies"):
            self._clear.clear()
        else:
            self._clear.set()
        if mode == "cut":
            for writer in list(self._writers):
                writer.transport.abort()
        for link in self._writers.values():
            link.outward_silent |= mode == "half-open"
            link.inward_silent |= mode in ("half-open", "lost-replies")

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            if self._mode == "cut":
                writer.transport.abort()
                return
            await self._clear.wait()
            there, back = await asyncio.open_connection("127.0.0.1", self.upstream)
            link = Link()
            self._writers |= {writer: link, back: link}
            try:
                await asyncio.gather(
                    self._pump(link, reader, back, outward=True), self._pump(link, there, writer, outward=False)
                )
            finally:
                for end in (writer, back):
                    self._writers.pop(end, None)
        writer.transport.abort()

    async def _pump(
        self, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, outward: bool
    ) -> None:
        try:
            while data := await reader.read(1 << 16):
                if await self._passes(link, data, outward=outward):
                    writer.write(data)
                    await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def _passes(self, link: Link, data: bytes, *, outward: bool) -> bool:
        """Wait as the mode requires. Return False for bytes that get lost."""
        if outward:
            self._overhear(link, data)
        if link.outward_silent if outward else link.inward_silent:
            return False
        if self._mode == "delay":
            await asyncio.sleep(0.05 + self._amount * 0.5)
        elif self._mode == "stall":
            await self._clear.wait()
        return True

    def _overhear(self, link: Link, data: bytes) -> None:
        """Repeat finishing calls on another connection, immediately or seconds later."""
        link.sent += data
        for command in commands(link.sent):
            if self._mode == "repeat" and any(name in command[:120] for name in self._functions):
                task = self._loop.create_task(
                    self._repeat(command, self._draw.random() * LATEST_SECONDS * self._amount)
                )
                self._later.add(task)
                task.add_done_callback(self._later.discard)

    async def _repeat(self, command: bytes, after: float) -> None:
        await asyncio.sleep(after)
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.upstream)
            writer.write(command)
            await reader.readline()
            self.repeated += 1
            writer.close()
            await writer.wait_closed()
