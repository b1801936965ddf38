"""Reach a runner through another coordinator to which the runner has a tunnel.

Without a load balancer, a runner connects only to the coordinator that it knows. For example, joined machines connect
to the local cluster's TLS proxy. Redis stores which coordinator has the tunnel.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from coordinator.services.gateway.tunnels import Tunnels
from jobs.network.tunnel import (
    HEARTBEAT_SECONDS,
    MAX_MESSAGE,
    PATH,
    Accept,
    InvalidMessage,
    Stream,
    Tunnel,
    relay_streams,
)
from jobs.settings import Settings
from jobs.store.services import TunnelEnd

log = logging.getLogger(__name__)

_EVERYWHERE = ("0.0.0.0", "::")
#: Header in which another coordinator names the worker that has the requested tunnel.
WORKER_HEADER = "X-Tunnel-Of"
#: Timeout in seconds for opening a relay.
#: Delay in seconds before the next attempt to open a relay.
_OPEN_SECONDS, _AGAIN_SECONDS = 3.0, 2.0
_BROKEN = (OSError, ConnectionClosed, InvalidHandshake, TimeoutError, InvalidMessage)


def end(settings: Settings, tunnels: Tunnels) -> TunnelEnd:
    """Return the WebSocket URL of this coordinator for other coordinators: its listen address, or loopback."""
    secure = "s" if settings.tls_certificate else ""
    bind = "127.0.0.1" if settings.bind in _EVERYWHERE else settings.bind
    host = f"[{bind}]" if ":" in bind else bind
    url = f"ws{secure}://{host}:{settings.coordinator_port}/api/worker/{PATH}"
    return TunnelEnd(url=url, key=tunnels.key, host=settings.host_name())


def accepting(tunnels: Tunnels, worker: str, tasks: set[asyncio.Task[None]]) -> Accept:
    """Return a function that connects streams from another coordinator to a worker's tunnel at this coordinator."""

    def accept(stream: Stream, port: int) -> None:
        task = asyncio.get_running_loop().create_task(_relay(tunnels, worker, stream, port))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    return accept


async def _relay(tunnels: Tunnels, worker: str, stream: Stream, port: int) -> None:
    with suppress(ConnectionError):
        if (tunnel := tunnels.own(worker)) is not None:
            await relay_streams(stream, await tunnel.open(port))
    with suppress(ConnectionError):
        await stream.close()


class Relays:
    """Relays of one coordinator through the tunnels of others. Use it from one event loop."""

    def __init__(self, tunnels: Tunnels, host: str) -> None:
        self._tunnels, self._host = tunnels, host
        self._ways: dict[str, asyncio.Task[None]] = {}

    def reach(self, ends: Mapping[str, TunnelEnd]) -> None:
        """Open relays to workers that have a tunnel to another coordinator but not to this one."""
        for worker, there in ends.items():
            way = self._ways.get(worker)
            if (way is None or way.done()) and not self._tunnels.name(worker) and self._may(there):
                self._ways[worker] = asyncio.create_task(self._keep(worker, there))

    def _may(self, there: TunnelEnd) -> bool:
        """Return True if another coordinator is on this host or has an external address. Return False for this
        coordinator.
        """
        named = urlsplit(there.url).hostname or ""
        return there.key != self._tunnels.key and (there.host == self._host or not _is_loopback(named))

    async def _keep(self, worker: str, there: TunnelEnd) -> None:
        """Use a relay until its connection breaks."""
        try:
            await self._use(worker, there)
        except _BROKEN as error:
            log.info("cannot reach %s through another coordinator: %s", worker, error)
        await asyncio.sleep(_AGAIN_SECONDS)

    async def _use(self, worker: str, there: TunnelEnd) -> None:
        headers = {"Authorization": f"Bearer {there.key}", WORKER_HEADER: worker}
        async with connect(
            there.url,
            additional_headers=headers,
            ssl=self._trust(there),
            compression=None,
            max_size=MAX_MESSAGE,
            proxy=None,
            open_timeout=_OPEN_SECONDS,
            ping_interval=HEARTBEAT_SECONDS,
            ping_timeout=2 * HEARTBEAT_SECONDS,
            close_timeout=1,
        ) as socket:
            await asyncio.wait_for(socket.recv(), _OPEN_SECONDS)
            tunnel = Tunnel(_sending(socket))
            await tunnel.beat()
            if self._tunnels.name(worker):
                return
            name = self._tunnels.add(worker, tunnel, own=False)
            beating = asyncio.create_task(tunnel.keep_alive())
            try:
                async for message in socket:
                    tunnel.hear(message if isinstance(message, bytes) else message.encode())
            finally:
                beating.cancel()
                tunnel.close()
                self._tunnels.remove(worker, name)

    def _trust(self, there: TunnelEnd) -> ssl.SSLContext | None:
        """Return the TLS trust: any certificate on this host, else the system's certificate authorities."""
        if not there.url.startswith("wss:"):
            return None
        context = ssl.create_default_context()
        if there.host == self._host:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context

    async def close(self) -> None:
        """Close all relays."""
        for way in self._ways.values():
            way.cancel()
        await asyncio.gather(*self._ways.values(), return_exceptions=True)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _sending(socket: ClientConnection) -> Callable[[bytes], Awaitable[None]]:
    async def send(data: bytes) -> None:
        try:
            await socket.send(data)
        except ConnectionClosed as error:
            raise ConnectionResetError("the other coordinator closed the connection") from error

    return send
