"""Tests that a coordinator's parts stop in the reverse order of their start, even if a part cannot start."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coordinator import app, composition
from coordinator.attachments.wakeups import Wakes
from coordinator.background.periodic_task import PeriodicTask
from coordinator.events.hub import Hub
from coordinator.hosts import announcements
from coordinator.services.gateway.gateway import Gateway
from coordinator.services.gateway.request_counter import RequestCounter
from coordinator.work.polls import Polls
from jobs.settings import Settings

ORDER = ["announcing", "polls", "artifacts", "workflows", "leader", "gateway", "request_counter", "hub"]


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the parts in the order in which they stop."""
    names: list[str] = []

    def note(owner: Any, method: str, name: str) -> None:
        before = getattr(owner, method)

        def stop(self: Any) -> Any:
            names.append(name or self.name)
            return before(self)

        monkeypatch.setattr(owner, method, stop)

    for owner, method, name in (
        (PeriodicTask, "stop", ""),
        (Polls, "stop", "polls"),
        (Wakes, "stop", "wakes"),
        (Hub, "stop", "hub"),
        (Gateway, "close", "gateway"),
        (RequestCounter, "close", "request_counter"),
    ):
        note(owner, method, name)
    return names


def lifespan(url: str) -> None:
    """Start and stop a coordinator."""

    async def run() -> None:
        api = app.create(Settings(redis_url=url, metrics_port=0, artifact_url="memory://"))
        async with api.router.lifespan_context(api):
            pass

    asyncio.run(run())


def test_parts_stop_in_the_reverse_order(redis_url: str, stopped: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    async def begin(_settings: Settings) -> Any:
        async def stop() -> None:
            stopped.append("announcing")

        return stop

    monkeypatch.setattr(announcements, "begin", begin)
    lifespan(redis_url)
    assert [name for name in stopped if name in ORDER] == ORDER


def test_what_has_started_stops_if_another_part_cannot_start(
    redis_url: str, stopped: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any) -> Any:
        raise OSError("the port is taken")

    monkeypatch.setattr(composition, "serve_calls", fail)
    with pytest.raises(OSError, match="the port is taken"):
        lifespan(redis_url)
    assert [name for name in stopped if name in ORDER] == ORDER[1:]
