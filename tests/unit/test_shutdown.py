"""Tests requests that the server cancels because it stops."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coordinator.server.shutdown import ShutdownResponder


async def answered(begins: bool) -> list[Any]:
    """Return the output for a waiting request that is cancelled, before or after the start of its response."""
    sent: list[Any] = []

    async def waits(_scope: Any, _receive: Any, send: Any) -> None:
        if begins:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        await asyncio.Event().wait()

    task = asyncio.create_task(ShutdownResponder(waits)({"type": "http"}, receive, send))
    await asyncio.sleep(0)
    task.cancel(msg="timeout graceful shutdown exceeded")
    await task
    return sent


@pytest.mark.parametrize(("begins", "statuses"), [(False, [503]), (True, [200])])
def test_a_request_that_is_cancelled_is_answered_once(begins: bool, statuses: list[int]) -> None:
    sent = asyncio.run(answered(begins))
    assert [message["status"] for message in sent if message["type"] == "http.response.start"] == statuses
