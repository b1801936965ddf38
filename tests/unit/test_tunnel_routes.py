"""Tests tunnels of runners that lie, disconnect or do not read: each tunnel ends and leaves no data."""

from __future__ import annotations

import asyncio
import struct
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.websockets import WebSocketDisconnect

from coordinator.access.principal import Principal, Scope
from coordinator.services.gateway.tunnels import Tunnels
from coordinator.work import tunnel_routes
from jobs.network.tunnel import PIECE, WINDOW, Kind


class Socket:
    """A runner's end, which sends `words` and disconnects. `leaves`: later messages have no receiver."""

    def __init__(self, *words: bytes | str, leaves: bool = True, reads: bool = True) -> None:
        self._words, self._leaves, self._reads = list(words), leaves, reads
        self.sent: list[Any] = []
        self.closed = False

    async def accept(self) -> None:
        pass

    async def receive(self) -> dict[str, Any]:
        await asyncio.sleep(0)
        if self._words:
            word = self._words.pop(0)
            return {"type": "websocket.receive", "text" if isinstance(word, str) else "bytes": word}
        if not self._leaves:
            await asyncio.Event().wait()
        return {"type": "websocket.disconnect", "code": 1006}

    async def _send(self, data: Any) -> None:
        if not self._reads:
            await asyncio.Event().wait()
        self.sent.append(data)

    send_text = send_bytes = _send

    async def close(self) -> None:
        if not self._reads:
            await asyncio.Event().wait()
        self.closed = True
        if not self._words and self._leaves:
            raise WebSocketDisconnect(1006)


def message(kind: int, number: int, content: bytes = b"") -> bytes:
    return struct.pack(">BI", kind, number) + content


BEAT = message(Kind.BEAT, 0)


def served(socket: Socket) -> Tunnels:
    """Serve a tunnel to its end, and return the remaining data."""
    tunnels = Tunnels()
    cluster: Any = SimpleNamespace(
        credentials=SimpleNamespace(principal_by_bearer=_principal, require_valid=_nothing),
        settings=_SETTINGS,
        store=SimpleNamespace(services=SimpleNamespace(note_tunnel=lambda *_: None)),
    )
    given: Any = socket
    given.headers = {}
    given.app = SimpleNamespace(state=SimpleNamespace(coordinator=SimpleNamespace(cluster=cluster, tunnels=tunnels)))
    asyncio.run(asyncio.wait_for(tunnel_routes.tunnel(given), 60))
    return tunnels


async def _principal(_bearer: str) -> Principal:
    return Principal(tenant="default", token="t1", scopes=frozenset({Scope.WORKER}), name="runner-1")


_SETTINGS = SimpleNamespace(tls_certificate="", bind="127.0.0.1", coordinator_port=1, host_name=lambda: "here")


async def _nothing(_principal: object) -> None:
    pass


@pytest.mark.parametrize(
    "words",
    [
        (),
        (BEAT,),
        ("text",),
        (BEAT, "text"),
        (BEAT, b""),
        (b"",),
        (BEAT, b"a"),
        (BEAT, message(9, 0)),
        (BEAT, message(Kind.OPEN, 1, struct.pack(">I", 80))),
        (BEAT, message(Kind.OPEN, 1)),
        (BEAT, message(Kind.DATA, 7, b"x" * PIECE)),
        (BEAT, message(Kind.CREDIT, 7, struct.pack(">I", WINDOW))),
    ],
    ids=range(12),
)
def test_a_runner_that_lies_or_goes_has_no_tunnel_any_more(words: tuple[bytes | str, ...]) -> None:
    socket = Socket(*words)
    assert not served(socket).name("runner-1") and socket.closed


def test_a_runner_that_says_nothing_and_does_not_read_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnel_routes, "SILENT_SECONDS", 0.1)
    socket = Socket(BEAT, leaves=False)
    assert not served(socket).name("runner-1") and socket.closed
    deaf = Socket(BEAT, leaves=False)
    deaf.send_text = _accepting(deaf)  # type: ignore[method-assign]
    deaf._reads = False
    assert not served(deaf).name("runner-1")


def _accepting(socket: Socket) -> Any:
    async def send(data: Any) -> None:
        socket.sent.append(data)

    return send
