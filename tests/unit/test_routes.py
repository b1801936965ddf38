"""Routes of the API: found by folder, independent of their order; an old name hides no other path."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

import coordinator
from coordinator import app, domains, http
from jobs import errors
from jobs.settings import Settings

FOLDER = Path(coordinator.__path__[0])
#: In place of a path's parameters.
SAMPLES = {"verb": "cancel"}


def described(api: FastAPI) -> list[tuple[str, str]]:
    """Method and path of every operation, with samples for its parameters."""
    paths = api.openapi()["paths"]
    return [
        (method.upper(), re.sub(r"\{(\w+)\}", lambda found: SAMPLES.get(found[1], found[1]), path))
        for path, operations in paths.items()
        for method in operations
    ]


async def _asked(api: FastAPI, method: str, path: str) -> httpx.Response:
    transport = httpx.ASGITransport(app=api)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        return await client.request(method, path)


class _Unused:
    """A cluster that answers nothing: only the route matters."""

    def __getattr__(self, name: str) -> Any:
        raise errors.Conflict(f"reached {name}")


async def reached(api: FastAPI, asked: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Path of the route that each request comes to."""
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
    for name in domains.names():
        assert {"routes.py", "schemas.py", "queries.py"} <= {file.name for file in (FOLDER / name).iterdir()}, name


def test_no_route_depends_on_the_order_of_the_domains(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = described(app.create(Settings()))
    as_found = run(reached(app.create(Settings()), asked))
    backwards = domains.routers()[::-1]
    for router in backwards:
        monkeypatch.setattr(router, "routes", router.routes[::-1])
    monkeypatch.setattr(domains, "routers", lambda: backwards)
    assert run(reached(app.create(Settings()), asked)) == as_found
    assert len(asked) > 20 and len(set(as_found.values())) == len({path for _, path in asked})


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> FastAPI:
    """An application whose marks are their names."""
    api = app.create(Settings())
    answer: Callable[[str, str], dict[str, Any]] = lambda kind, mark: {"type": kind, "mark": mark}  # noqa: E731
    monkeypatch.setattr(api.state.coordinator.cluster.queries.jobs, "mark", answer)
    return api


async def answers(api: FastAPI, *paths: str) -> list[Any]:
    return [(await _asked(api, "GET", path)).json() for path in paths]


def run(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


def test_a_mark_has_its_path_and_its_old_one(marked: FastAPI) -> None:
    new, old = run(answers(marked, "/api/kinds/collatz/marks/verified", "/api/collatz/verified"))
    assert new == old == {"type": "collatz", "mark": "verified"}
    assert run(_asked(marked, "POST", "/api/collatz/verified")).status_code == 405


def test_the_old_path_hides_no_route_registered_after_it(marked: FastAPI) -> None:
    later = http.router()
    later.get("/boxes/{name}")(lambda name: {"box": name})
    anybody = [http.needs()]
    later.post("/boxes/{name}/{verb}", dependencies=anybody)(lambda name, verb: {"box": name})
    later.post("/shelves/{name}", dependencies=anybody)(lambda name: {"shelf": name})
    marked.include_router(later)
    assert run(answers(marked, "/api/boxes/one", "/api/collatz/verified")) == [
        {"box": "one"}, {"type": "collatz", "mark": "verified"},
    ]  # fmt: skip
    assert run(_asked(marked, "GET", "/api/shelves/one")).status_code == 405
