"""A listener that does not read: what it loses, and that it is told."""

from __future__ import annotations

import asyncio

import pytest

from coordinator import events
from coordinator.events import Event, Subscription, merged


def event(number: int, type: str = "submitted") -> Event:
    return Event(id=f"{number}-0", fields={"job": "j", "type": type, "state": "running"})


@pytest.fixture(autouse=True)
def small_backlog(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_BACKLOG", 4)


def test_progress_goes_first_then_the_listener_counts_as_lost() -> None:
    subscription = Subscription(lambda _: True)
    for number in range(4):
        subscription.offer(event(number))
    subscription.offer(event(4, "progress"))
    assert subscription.queue.qsize() == 4
    for number in range(5, 20):
        subscription.offer(event(number))
    assert subscription.lost
    assert subscription.queue.qsize() == 8


def test_the_stream_of_a_lost_listener_ends() -> None:
    subscription = Subscription(lambda _: True)
    for number in range(1, 20):
        subscription.offer(event(number))

    async def read() -> list[Event | None]:
        return [found async for found in merged(subscription, "0-0")]

    assert asyncio.run(read()) == []
