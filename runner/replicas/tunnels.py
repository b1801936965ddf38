"""Tunnels from this host to coordinators. Coordinators reach the service replicas on this host through them.

Runners only make outgoing connections. They do not know the number of coordinators, and a proxy chooses one for each
connection. Therefore, a runner connects until it meets only known coordinators, and tries again every few seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
from collections.abc import Callable, Iterator

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from jobs.network.tunnel import HEARTBEAT_SECONDS, MAX_MESSAGE, PATH, InvalidMessage, Stream, Tunnel, relay_connection
from jobs.worker.api.api_calls import Api

log = logging.getLogger(__name__)

#: Timeout in seconds for the answer to a WebSocket ping.
_PONG_SECONDS = 10.0
#: Minimum number of consecutive connections to known coordinators after which the search for coordinators pauses.
#: `QUICK_SECONDS` is the delay in seconds between two connections.
_REPEATS, QUICK_SECONDS = 4, 0.05
#: Seconds after which a slow connection attempt no longer delays the next attempt.
_SLOW_SECONDS = 1.0
#: Interval in seconds between searches for new coordinators.
#: `_OPEN_SECONDS` is the timeout of a connection attempt in seconds.
POLL_SECONDS, _OPEN_SECONDS = 5.0, 10.0
_BROKEN = (OSError, ConnectionClosed, InvalidHandshake, TimeoutError, InvalidMessage)


class Tunnels:
    """Tunnels of one runner, which are open while any replica is running. Thread-safe."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._lock = threading.Lock()
        self._ports: dict[int, str] = {}
        self.thread: threading.Thread | None = None

    @contextlib.contextmanager
    def to(self, address: str, port: int) -> Iterator[None]:
        """Let coordinators reach a port of this host for the duration of a `with` block."""
        with self._lock:
            self._ports[port] = address
            if self.thread is None:
                self.thread = threading.Thread(target=self._run, name="tunnels", daemon=True)
                self.thread.start()
        try:
            yield
        finally:
            with self._lock:
                del self._ports[port]

    def _run(self) -> None:
        asyncio.run(Links(self._api, self._address, self._is_over).keep())

    def _address(self, port: int) -> str | None:
        with self._lock:
            return self._ports.get(port)

    def _is_over(self) -> bool:
        """Return True if no replica is running. The thread then ends, and the next replica starts a new one."""
        with self._lock:
            if self._ports:
                return False
            self.thread = None
            return True


class Links:
    """Tunnels to all coordinators, in one event loop."""

    def __init__(self, api: Api, address: Callable[[int], str | None], is_over: Callable[[], bool]) -> None:
        self._api, self._address, self._is_over = api, address, is_over
        self._known: dict[str, asyncio.Task[None]] = {}
        self._streams: set[asyncio.Task[None]] = set()
        self._said = ""

    async def keep(self) -> None:
        """Maintain a tunnel to each coordinator until no replica is running."""
        repeats = 0
        meeting: set[asyncio.Task[int]] = set()
        while not self._is_over():
            if len(meeting) < _REPEATS:
                meeting.add(asyncio.create_task(self._met(repeats)))
            met, meeting = await asyncio.wait(meeting, timeout=_SLOW_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            repeats = min((task.result() for task in met), default=repeats)
            if repeats < self._enough():
                await asyncio.sleep(QUICK_SECONDS)
            else:
                repeats = 0
                await asyncio.sleep(POLL_SECONDS)
        tasks = [*meeting, *self._known.values(), *self._streams]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _enough(self) -> int:
        """Return the number of consecutive connections to known coordinators after which no others are expected."""
        return max(_REPEATS, 2 * (len(self._known) + 1))

    async def _met(self, repeats: int) -> int:
        """Connect to a coordinator. Return the new number of consecutive connections to known coordinators."""
        try:
            repeats = 0 if await self._meet() else repeats + 1
        except _BROKEN as error:
            self._say(str(error) or type(error).__name__)
            return self._enough()
        self._say("")
        return repeats

    def _say(self, why: str) -> None:
        """Log a reason unless it was the last one logged."""
        if why and why != self._said:
            log.warning("cannot open tunnels for the replicas on this host: %s", why)
        self._said = why

    async def _meet(self) -> bool:
        """Open a tunnel to a coordinator. Return False if a tunnel to the same coordinator already exists."""
        url, headers, trust = self._api.opening(PATH)
        socket = await connect(
            url,
            additional_headers=headers,
            ssl=trust,
            compression=None,
            max_size=MAX_MESSAGE,
            proxy=None,
            open_timeout=_OPEN_SECONDS,
            ping_interval=HEARTBEAT_SECONDS,
            ping_timeout=_PONG_SECONDS,
            close_timeout=1,
        )
        try:
            name = str(json.loads(await asyncio.wait_for(socket.recv(), _PONG_SECONDS))["coordinator"])
        except (ValueError, KeyError, TypeError) as error:
            await socket.close()
            raise InvalidMessage(f"the server is not a coordinator: {error}") from None
        except BaseException:
            await socket.close()
            raise
        known = self._known.get(name)
        if known is not None and not known.done():
            await socket.close()
            return False
        self._known = {name: task for name, task in self._known.items() if not task.done()}
        self._known[name] = asyncio.create_task(self._hold(socket))
        return True

    async def _hold(self, socket: ClientConnection) -> None:
        """Serve one tunnel until the connection fails."""
        tunnel = Tunnel(socket.send, self._open)
        beating = asyncio.create_task(tunnel.keep_alive())
        try:
            async for message in socket:
                tunnel.hear(message if isinstance(message, bytes) else message.encode())
        except _BROKEN as error:
            log.info("a tunnel to a coordinator was closed: %s", error)
        finally:
            beating.cancel()
            tunnel.close()
            with contextlib.suppress(*_BROKEN):
                await socket.close()

    def _open(self, stream: Stream, port: int) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(stream, port))
        self._streams.add(task)
        task.add_done_callback(self._streams.discard)

    async def _serve(self, stream: Stream, port: int) -> None:
        """Forward bytes between a tunnel's stream and a replica. Close the stream if no replica listens on the port."""
        with contextlib.suppress(*_BROKEN):
            if (address := self._address(port)) is not None:
                reader, writer = await asyncio.open_connection(address, port)
                try:
                    await relay_connection(stream, reader, writer)
                finally:
                    writer.close()
        with contextlib.suppress(*_BROKEN):
            await stream.close()
