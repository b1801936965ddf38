"""Route of tunnels: a runner connects out, and requests to the replicas on its host come back through that."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging

from fastapi import APIRouter, WebSocket
from fastapi.security.utils import get_authorization_scheme_param
from starlette.websockets import WebSocketDisconnect

from coordinator import http
from coordinator.asker import Asker, Scope
from coordinator.cluster import Cluster
from coordinator.services.tunnels import Tunnels
from coordinator.work.identity import named
from jobs import errors
from jobs.tunnel import Garbled, Tunnel

log = logging.getLogger(__name__)

#: Not http.router(), whose dependencies are those of requests: the scope is looked at below.
routes = APIRouter(prefix="/api")

#: Seconds within which something must come; runners say every five that they are there.
SILENT_SECONDS = 20.0


@routes.websocket("/worker/tunnel")
async def tunnel(socket: WebSocket) -> None:
    """Serve one tunnel. It says which coordinator this is; the runner's first message makes it the one to use."""
    cluster: Cluster = socket.app.state.cluster
    try:
        asker = await _asker(socket, cluster)
        worker = named(asker)
    except errors.ClusterError as error:
        await socket.send_denial_response(http.refused(error))
        return
    tunnels: Tunnels = socket.app.state.tunnels
    await socket.accept()
    with contextlib.suppress(WebSocketDisconnect, RuntimeError, TimeoutError):
        await socket.send_text(json.dumps({"coordinator": tunnels.me}))
        await _serve(socket, cluster, asker, worker, tunnels)
    with contextlib.suppress(RuntimeError):
        await socket.close()


async def _asker(socket: WebSocket, cluster: Cluster) -> Asker:
    """Return who connects, by a bearer token alone: browsers, which send cookies, cannot send one here."""
    scheme, given = get_authorization_scheme_param(socket.headers.get("Authorization"))
    asker = await cluster.credentials.asker(given if scheme.lower() == "bearer" else "")
    asker.require(Scope.WORKER)
    return asker


async def _serve(socket: WebSocket, cluster: Cluster, asker: Asker, worker: str, tunnels: Tunnels) -> None:
    """Use the tunnel until its runner goes, says nothing or nonsense, or is not let in any more."""
    message = await asyncio.wait_for(socket.receive_bytes(), SILENT_SECONDS)

    async def send(data: bytes) -> None:
        try:
            await socket.send_bytes(data)
        except (WebSocketDisconnect, RuntimeError) as error:
            raise ConnectionResetError("the runner has left") from error

    made = Tunnel(send)
    name = tunnels.add(worker, made)
    try:
        while not made.closed:
            made.hear(message)
            if not message[0]:  # a beat
                await cluster.credentials.require(asker)
            message = await asyncio.wait_for(socket.receive_bytes(), SILENT_SECONDS)
    except (Garbled, errors.ClusterError) as error:
        log.warning("the tunnel of %s is closed: %s", worker, error)
    finally:
        made.close()
        tunnels.remove(worker, name)
