"""Tests rejections by caps, which name a time only if it is known, and responses to unexpected errors."""

from __future__ import annotations

import asyncio
import inspect
import re
from contextlib import closing

import pytest
from starlette.requests import Request

from coordinator import app
from coordinator.jobs.submissions import limit_error
from jobs.settings import Settings
from jobs.store import keys
from jobs.store.server import connection
from jobs.store.work.jobs import CapReached


@pytest.mark.parametrize(
    "limit",
    [
        CapReached(cap="MAX_QUEUED", value=100, seconds=1),
        CapReached(cap="requirements", value=100, seconds=1),
        CapReached(cap="max_jobs", value=2, seconds=1),
        CapReached(cap="max_jobs", value=2, seconds=3600),
        CapReached(cap="max_stored_bytes", value=1000, seconds=3600, used=999),
        CapReached(cap="notify", value=100, seconds=60),
    ],
)
def test_what_is_unknown_is_not_promised(limit: CapReached) -> None:
    error = limit_error(limit, "a")
    assert not re.search(r"\d s\b|probably", error.detail), error.detail
    assert error.seconds == limit.seconds


@pytest.mark.parametrize(
    ("limit", "words", "seconds"),
    [
        (CapReached(cap="max_jobs", value=2, seconds=90, awaits="end"), "one of them ends in about 90 s", 90),
        (CapReached(cap="max_jobs", value=2, seconds=50_000, awaits="end"), "one of them ends in about 50000 s", 3600),
        (
            CapReached(cap="max_jobs", value=2, seconds=50_000, awaits="day"),
            "next day (UTC), which starts in 50000 s",
            50_000,
        ),
        (
            CapReached(cap="max_stored_bytes", value=9, seconds=7, used=8, awaits="expiry"),
            "(RESULT_TTL), the first in about 7 s",
            7,
        ),
    ],
)
def test_what_is_known_is_told(limit: CapReached, words: str, seconds: int) -> None:
    error = limit_error(limit, "a")
    assert words in error.detail and error.seconds == seconds


def answer_to(error: Exception) -> bytes:
    """Return the coordinator's response to an unexpected error."""

    async def answer() -> bytes:
        response = app.create(Settings()).exception_handlers[Exception](request, error)
        assert inspect.isawaitable(response)
        return bytes((await response).body)

    request = Request({"type": "http", "method": "GET", "path": "/api/jobs", "headers": [], "state": {}})
    return asyncio.run(answer())


def test_a_key_of_another_type_is_named(any_redis_url: str) -> None:
    with closing(connection.connect(any_redis_url, retries=0)) as client:
        client.set(keys.TENANTS, "x")
        with pytest.raises(connection.ResponseError) as one:
            client.zrange(keys.TENANTS, 0, -1)
        with pytest.raises(connection.ResponseError) as among_others:
            client.pipeline(transaction=False).zrange(keys.TENANTS, 0, -1).execute()
    for raised in (one, among_others):
        body = answer_to(raised.value)
        assert b"ZRANGE ct:tenants" in body and b"docs/operations.md" in body


def test_an_unexpected_error_is_answered_with_its_class() -> None:
    body = answer_to(KeyError("secret"))
    assert b"unexpected server error: KeyError" in body and b"secret" not in body
