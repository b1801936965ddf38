"""Tests the API's routes: found by folder, independent of their order, with unique names."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

import coordinator
from coordinator import app, domains
from jobs import errors
from jobs.settings import Settings

FOLDER = Path(coordinator.__path__[0])
#: Sample values for path parameters.
SAMPLES = {"verb": "cancel"}


def described(api: FastAPI) -> list[tuple[str, str]]:
    """Return method and path of every operation, with samples for its parameters."""
    paths = api.openapi()["paths"]
    return [
        (method.upper(), re.sub(r"\{(\w+)\}", lambda found: SAMPLES.get(found[1], found[1]), path))
        for path, operations in paths.items()
        for method in operations
    ]


class _Unused:
    """A cluster that answers nothing, because only the route matters."""

    def __getattr__(self, name: str) -> Any:
        raise errors.Conflict(f"reached {name}")


async def reached(api: FastAPI, asked: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return the path of the route that handles each request."""
    api.state.coordinator = replace(api.state.coordinator, cluster=_Unused())
    routes = {}

    async def watched(scope: Any, receive: Any, send: Any) -> None:
        await api(scope, receive, send)
        routes[(scope["method"], scope["path"])] = scope["route"].path

    transport = httpx.ASGITransport(app=watched)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        for method, path in asked:
            await client.request(method, path)
    return routes


def test_every_domain_has_the_same_files() -> None:
    assert domains.names() == [
        "access",
        "artifacts",
        "attachments",
        "audit",
        "events",
        "fleet",
        "hosts",
        "jobs",
        "logs",
        "models",
        "profiles",
        "schedules",
        "secrets",
        "services",
        "telemetry",
        "tenants",
        "usage",
        "webhooks",
        "work",
        "workflows",
    ]
    # The calls of workers are made of the store as they are declared there.
    for name in set(domains.names()) - {"work"}:
        assert {"routes.py", "queries.py"} <= {file.name for file in (FOLDER / name).iterdir()}, name


def test_no_route_depends_on_the_order_of_the_domains(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = described(app.create(Settings()))
    as_found = asyncio.run(reached(app.create(Settings()), asked))
    backwards = domains.routers()[::-1]
    for router in backwards:
        monkeypatch.setattr(router, "routes", router.routes[::-1])
    monkeypatch.setattr(domains, "routers", lambda: backwards)
    assert asyncio.run(reached(app.create(Settings()), asked)) == as_found
    assert len(asked) > 20 and len(set(as_found.values())) == len({path for _, path in asked})


def test_no_operation_is_deprecated() -> None:
    operations = app.create(Settings()).openapi()["paths"].values()
    deprecated = [one["operationId"] for each in operations for one in each.values() if one.get("deprecated")]
    assert deprecated == [], "there is no release whose names must be kept: delete the old name"
