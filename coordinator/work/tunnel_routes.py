"""WebSocket route of tunnels. A runner opens a tunnel, through which the coordinator sends requests to its replicas."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from fastapi import APIRouter, WebSocket
from fastapi.security.utils import get_authorization_scheme_param
from starlette.concurrency import run_in_threadpool
from starlette.websockets import WebSocketDisconnect

from coordinator.access.principal import Principal, Scope
from coordinator.cluster import Cluster
from coordinator.server import http
from coordinator.services.gateway import relays
from coordinator.services.gateway.relays import WORKER_HEADER
from coordinator.services.gateway.tunnels import Tunnels
from coordinator.state import shared_state
from coordinator.work.identity import worker_name
from jobs import errors
from jobs.network.tunnel import HEARTBEAT_SECONDS, PATH, SILENT_SECONDS, InvalidMessage, Tunnel
from jobs.store.server import connection

log = logging.getLogger(__name__)

#: Timeout in seconds for the closing handshake with a runner.
_FAREWELL_SECONDS = 5.0
#: http.router() would add dependencies that need an HTTP request; `tunnel` checks the scope itself.
routes = APIRouter(prefix="/api")


@routes.websocket(f"/worker/{PATH}")
async def tunnel(socket: WebSocket) -> None:
    """Serve one tunnel. The first message names this coordinator. The runner's first message selects the tunnel."""
    cluster: Cluster = shared_state(socket).cluster
    tunnels: Tunnels = shared_state(socket).tunnels
    bearer = _bearer(socket)
    if (of := socket.headers.get(WORKER_HEADER)) and secrets.compare_digest(bearer.encode(), tunnels.key.encode()):
        await _accept_tunnel(socket, tunnels, _relay(socket, tunnels, of))
        return
    try:
        principal = await cluster.credentials.principal_by_bearer(bearer)
        principal.require(Scope.WORKER)
        worker = worker_name(principal)
    except errors.ClusterError as error:
        await socket.send_denial_response(http.problem_response(error))
        return
    await _accept_tunnel(socket, tunnels, _serve(socket, cluster, principal, worker, tunnels))


async def _accept_tunnel(socket: WebSocket, tunnels: Tunnels, serving: Coroutine[Any, Any, None]) -> None:
    """Accept a tunnel, send the coordinator's name, and serve the tunnel until it closes."""
    await socket.accept()
    try:
        await socket.send_text(json.dumps({"coordinator": tunnels.me}))
        await serving
    except (WebSocketDisconnect, RuntimeError, TimeoutError, InvalidMessage):
        pass
    finally:
        serving.close()
    await _close(socket)


async def _close(socket: WebSocket) -> None:
    """Close the connection, even if the runner has disconnected or does not read."""
    with contextlib.suppress(RuntimeError, WebSocketDisconnect, TimeoutError):
        await asyncio.wait_for(socket.close(), _FAREWELL_SECONDS)


def _bearer(socket: WebSocket) -> str:
    """Return the bearer token of the request. Browsers cannot send one here, since they only send cookies."""
    scheme, given = get_authorization_scheme_param(socket.headers.get("Authorization"))
    return given if scheme.lower() == "bearer" else ""


def _create_sender(socket: WebSocket) -> Callable[[bytes], Awaitable[None]]:
    async def send(data: bytes) -> None:
        try:
            await socket.send_bytes(data)
        except (WebSocketDisconnect, RuntimeError) as error:
            raise ConnectionResetError("the runner disconnected") from error

    return send


async def _next(socket: WebSocket) -> bytes:
    """Return the next binary message. Raises TimeoutError, WebSocketDisconnect and InvalidMessage (text)."""
    message = await asyncio.wait_for(socket.receive(), SILENT_SECONDS)
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", 1000))
    if not (data := message.get("bytes")):
        raise InvalidMessage("received a text message")
    return bytes(data)


async def _relay(socket: WebSocket, tunnels: Tunnels, worker: str) -> None:
    """Forward streams of another coordinator to a worker, as long as the worker has a tunnel to this coordinator."""
    tasks: set[asyncio.Task[None]] = set()
    made = Tunnel(_create_sender(socket), relays.accepting(tunnels, worker, tasks))
    try:
        while tunnels.own(worker) is not None:
            made.hear(await _next(socket))
    except InvalidMessage as error:
        log.warning("closing the relay to %s: %s", worker, error)
    finally:
        made.close()


async def _serve(socket: WebSocket, cluster: Cluster, principal: Principal, worker: str, tunnels: Tunnels) -> None:
    """Serve the tunnel until the runner disconnects, times out, sends an invalid message, or loses its access."""
    message = await _next(socket)
    made = Tunnel(_create_sender(socket))
    name = tunnels.add(worker, made)
    watching = asyncio.create_task(_watch(socket, cluster, principal, worker, tunnels))
    try:
        while not made.closed:
            made.hear(message)
            message = await _next(socket)
    except InvalidMessage as error:
        log.warning("closing the tunnel of %s: %s", worker, error)
    finally:
        watching.cancel()
        made.close()
        tunnels.remove(worker, name)


async def _watch(socket: WebSocket, cluster: Cluster, principal: Principal, worker: str, tunnels: Tunnels) -> None:
    """Announce the tunnel to other coordinators periodically, and close it when the runner's token becomes invalid."""
    here = relays.end(cluster.settings, tunnels)
    while True:
        try:
            await cluster.credentials.require_valid(principal)
            await run_in_threadpool(cluster.store.services.note_tunnel, worker, here)
        except errors.ClusterError as error:
            log.warning("closing the tunnel of %s: %s", worker, error)
            await _close(socket)
            return
        except connection.Unreachable as error:  # the tunnel still forwards requests
            log.info("cannot announce the tunnel of %s to other coordinators: %s", worker, error)
        await asyncio.sleep(HEARTBEAT_SECONDS)
