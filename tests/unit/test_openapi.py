"""Tests that the API description used to build the pages matches the code."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from coordinator import app, openapi
from jobs.settings import Settings

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def description() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(openapi.text())
    return found


def test_the_pages_description_is_that_of_the_code() -> None:
    kept = (ROOT / "web/openapi.json").read_text()
    assert kept == openapi.text(), "web/openapi.json is of another version of the API; run: make openapi"


def test_every_answer_is_typed(description: dict[str, Any]) -> None:
    """Pages cannot use a route whose response is an untyped object."""
    loose = []
    for path, verbs in description["paths"].items():
        for verb, route in verbs.items():
            for code, answer in route["responses"].items():
                schema = answer.get("content", {}).get("application/json", {}).get("schema")
                if code.startswith("2") and schema is not None and "$ref" not in schema:
                    loose.append(f"{verb} {path}")
    assert loose == ["get /api/jobs/{job_id}/{question}.json"], "what a question answers is its kind's business"


def test_refusals_are_problems_everywhere(description: dict[str, Any]) -> None:
    for verbs in description["paths"].values():
        for route in verbs.values():
            assert {"4XX", "5XX"} <= route["responses"].keys()
            assert "application/problem+json" in route["responses"]["4XX"]["content"]


def test_others_are_answered_while_the_description_is_made() -> None:
    """Creating the description takes a fifth of a second of CPU time, and seconds on a busy machine."""
    api, begun, made = app.create(Settings()), threading.Event(), threading.Event()

    def describe() -> dict[str, Any]:
        begun.set()
        assert made.wait(20), "nobody else was answered"
        return {"openapi": "3.1.0"}

    async def ask() -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://127.0.0.1") as client:
            asked = asyncio.create_task(client.get("/api/openapi.json"))
            await asyncio.to_thread(begun.wait, 20)
            assert (await client.get("/health")).status_code == 200
            made.set()
            assert (await asked).json() == {"openapi": "3.1.0"}

    api.openapi = describe  # type: ignore[method-assign]
    asyncio.run(ask())
