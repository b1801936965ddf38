"""Tests the audit log and usage over HTTP: who can read them, and that parts of the log are consecutive."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from coordinator import app
from coordinator.access.principal import Principal, Scope
from coordinator.audit.denials import Denials
from coordinator.usage.queries import UsageQueries
from jobs import errors
from jobs.models import Actor
from jobs.settings import Settings
from jobs.store.tenancy.audit_log import Denied
from jobs.store.tenancy.usage import Usage
from tests.contract.lease_model import START, Bench
from threads_cluster.cli import audit

TOKEN = "a-long-secret"


@pytest.fixture
def bench(any_redis_url: str) -> Bench:
    """Return the functions on one version of Redis."""
    return Bench(any_redis_url)


class Api:
    """A coordinator application without a server."""

    def __init__(self, redis_url: str) -> None:
        self._app = app.create(Settings(redis_url=redis_url, cluster_token=TOKEN))

    def get(self, path: str, token: str = TOKEN) -> httpx.Response:
        """Return the response to a GET request."""
        return asyncio.run(self._get(path, {"Authorization": f"Bearer {token}"} if token else {}))

    def post(self, path: str, body: Any) -> Any:
        """Return the JSON response to a request with CLUSTER_TOKEN."""
        return asyncio.run(self._ask("POST", path, {"Authorization": f"Bearer {TOKEN}"}, json=body)).json()

    async def _get(self, path: str, headers: dict[str, str]) -> httpx.Response:
        return await self._ask("GET", path, headers)

    async def _ask(self, method: str, path: str, headers: dict[str, str], **more: Any) -> httpx.Response:
        transport = httpx.ASGITransport(self._app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as client:
            return await client.request(method, path, **more)


def lines(api: Api, query: str) -> list[bytes]:
    answer = api.get(f"/api/audit?{query}")
    assert answer.status_code == 200, answer.text
    return [line.encode() for line in answer.json()["lines"]]


def test_parts_of_the_log_join(bench: Bench, any_redis_url: str) -> None:
    bench.store.audit_log.deny([Denied(Actor(), str(number), "forbidden", 1) for number in range(25)])
    api, joined, after = Api(any_redis_url), [], 0
    for _ in range(3):
        joined += lines(api, f"after={after}&limit=10")
        after = json.loads(joined[-1])["seq"]
    assert audit.Chain(joined).verify().seq == 25
    newest = [json.loads(line) for line in lines(api, "limit=2")]
    assert [line.get("seq", line.get("after")) for line in newest] == [23, 24, 25]
    assert [json.loads(line) for line in lines(api, "after=25")] == [
        {"after": 25, "hash": json.loads(joined[-1])["hash"]}
    ]


def test_an_empty_log_is_empty(any_redis_url: str, bench: Bench) -> None:
    answer = Api(any_redis_url).get("/api/audit").json()
    assert (answer["lines"], answer["head"]["seq"], answer["exported"]) == ([], 0, 0)


def test_a_denied_call_is_counted_with_its_address(
    any_redis_url: str, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[tuple[Any, ...]] = []
    monkeypatch.setattr(Denials, "count", lambda _, *call: counted.append(call))
    api = Api(any_redis_url)
    assert api.get("/api/audit", token="").status_code == 401
    assert api.get("/api/audit", token="another").status_code == 401
    assert api.get("/api/status").status_code == 200
    assert counted == [(401, "127.0.0.1", Actor("", ""))] * 2


def test_usage_of_all_tenants_is_an_admins(any_redis_url: str, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for tenant in ("default", "physics"):
        job = bench.submit(10, tenant=tenant)
        bench.commit(bench.grant(job, 10).token, ms=500)
    monkeypatch.setattr(Usage, "today", lambda _: START // 86_400_000)
    api = Api(any_redis_url)
    rows = api.get("/api/usage").json()["usage"]
    assert [(row["tenant"], row["day"], row["lane_seconds"]) for row in rows] == [
        ("default", "2023-11-14", {"cpu": 0.5}),
        ("physics", "2023-11-14", {"cpu": 0.5}),
    ]
    assert [row["tenant"] for row in api.get("/api/usage?tenant=physics").json()["usage"]] == ["physics"]
    queries = UsageQueries(bench.store.usage)
    reader = Principal(tenant="physics", token="abc", scopes=frozenset({Scope.READ}))
    assert [row["tenant"] for row in queries.days(reader, None, 1)] == ["physics"]
    with pytest.raises(errors.Forbidden):
        queries.days(reader, "default", 1)
