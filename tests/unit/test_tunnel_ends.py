"""Tests both ends of a new tunnel: coordinators that are found late, and runners that disconnect at once."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fastapi import WebSocket
from starlette.websockets import WebSocketDisconnect

from coordinator.__main__ import is_relevant
from coordinator.access.principal import Principal, Scope
from coordinator.services.gateway.tunnels import Tunnels as Coordinators
from coordinator.work import tunnel_routes
from jobs.worker.api.api_calls import Api
from runner.replicas import tunnels


class Opening:
    """The functions of a runner's API for opening a connection."""

    def opening(self, path: str) -> tuple[str, dict[str, str], None]:
        return f"ws://coordinator/api/worker/{path}", {}, None


class Coordinator:
    """A connection to a coordinator, which sends its name and then nothing."""

    def __init__(self, heard: threading.Event) -> None:
        self._heard = heard

    async def recv(self) -> str:
        return '{"coordinator": "a"}'

    async def send(self, data: bytes) -> None:
        self._heard.set()

    async def close(self) -> None:
        pass

    def __aiter__(self) -> Coordinator:
        return self

    async def __anext__(self) -> bytes:
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")


def test_connections_that_hang_keep_a_runner_from_no_other_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    heard, opened = threading.Event(), 0

    async def connect(url: str, **how: Any) -> Coordinator:
        nonlocal opened
        opened += 1
        if opened < 3:
            await asyncio.Event().wait()
        return Coordinator(heard)

    monkeypatch.setattr(tunnels, "connect", connect)
    made = tunnels.Tunnels(cast(Api, Opening()))
    with made.to("127.0.0.1", 1):
        thread = made.thread
        assert thread is not None and heard.wait(60)
    thread.join(60)
    assert not thread.is_alive(), "those that hang are left"


def test_each_look_for_new_coordinators_is_as_many_connections_as_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A single connection would find only one of three new coordinators every fifteen seconds."""
    slept: list[float] = []
    real = asyncio.sleep

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await real(0)

    class Links(tunnels.Links):
        async def _meet(self) -> bool:
            return False

    monkeypatch.setattr(asyncio, "sleep", sleep)
    asyncio.run(Links(cast(Api, Opening()), lambda port: None, lambda: len(slept) == 8).keep())
    assert slept == [tunnels.QUICK_SECONDS] * 3 + [tunnels.POLL_SECONDS] + slept[:4]


def test_a_coordinator_logs_faults_of_its_server_and_not_each_tunnel_that_it_accepts() -> None:
    def told(level: int, text: str) -> bool:
        return is_relevant(logging.LogRecord("uvicorn.error", level, "", 1, text, (), None))

    assert not told(logging.INFO, '%s - "WebSocket %s" [accepted]')
    assert told(logging.INFO, "Uvicorn running on %s") and told(logging.ERROR, "a fault [accepted]")
    assert not told(logging.ERROR, "ASGI callable returned without completing response."), "who left it so says why"
    assert told(logging.ERROR, "ASGI callable returned without starting response.")


class Left:
    """A connection whose other end has disconnected."""

    headers: Mapping[str, str] = {}

    def __init__(self) -> None:
        cluster = SimpleNamespace(credentials=SimpleNamespace(principal_by_bearer=principal))
        coordinator = SimpleNamespace(cluster=cluster, tunnels=Coordinators())
        self.app = SimpleNamespace(state=SimpleNamespace(coordinator=coordinator))

    async def accept(self) -> None:
        pass

    async def send_text(self, text: str) -> None:
        pass

    async def receive(self) -> dict[str, Any]:
        return {"type": "websocket.disconnect", "code": 1000}

    async def close(self) -> None:
        raise WebSocketDisconnect(1006)


async def principal(_bearer: str) -> Principal:
    return Principal(tenant="default", token="t1", scopes=frozenset({Scope.WORKER}), name="runner-1")


def test_a_runner_that_leaves_a_coordinator_that_it_knows_is_no_fault() -> None:
    asyncio.run(tunnel_routes.tunnel(cast(WebSocket, Left())))
