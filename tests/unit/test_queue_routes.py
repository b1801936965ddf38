"""Tests jobs through the routes of a task queue: the same jobs, tenants and scopes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.test_webhooks import Api

JOB = {"type": "collatz", "parameters": {"start_number": 1, "number_count": 10}}


@pytest.fixture
def api(any_redis_url: str) -> Iterator[Api]:
    api = Api(any_redis_url)
    yield api
    api.store.client.close()


def test_a_task_is_the_job_and_cancelled_as_one(api: Api) -> None:
    first, second = (api.ask("POST", "/api/submit", JOB).json()["job_id"] for _ in range(2))
    assert api.ask("GET", "/api/v1/queue").json()["tasks"]["queued"] == 2
    job, task = (api.ask("GET", f"/api/{path}/{first}").json() for path in ("jobs", "v1/queue/tasks"))
    assert task == {**job, "task_id": first}
    assert api.ask("GET", "/api/v1/queue/history").json() == {"tasks": []}
    for each in (second, first):
        assert api.ask("POST", f"/api/v1/queue/tasks/{each}/cancel").json()["state"] == "cancelled"
    assert [one["task_id"] for one in api.ask("GET", "/api/v1/queue/history").json()["tasks"]] == [first, second]
    assert [one["task_id"] for one in api.ask("GET", "/api/v1/queue/history?limit=1").json()["tasks"]] == [first]
    for limit in ("0", "501", "x"):
        assert api.ask("GET", f"/api/v1/queue/history?limit={limit}").status_code == 422
    assert api.ask("GET", "/api/v1/queue/tasks/none").status_code == 404


def test_tasks_of_other_tenants_are_hidden_and_cancelling_needs_a_scope(api: Api) -> None:
    api.ask("PUT", "/api/tenants/a", {})
    mine, reader = api.token("submit", "read", tenant="a"), api.token("read")
    job = api.ask("POST", "/api/submit", JOB, token=mine).json()["job_id"]
    assert api.ask("GET", f"/api/v1/queue/tasks/{job}", token=reader).status_code == 404
    assert api.ask("POST", f"/api/v1/queue/tasks/{job}/cancel", token=reader).status_code in (403, 404)
    assert api.ask("POST", f"/api/v1/queue/tasks/{job}/cancel", token=mine).status_code == 200
    assert api.ask("GET", "/api/v1/queue/history", token=reader).json() == {"tasks": []}
    assert len(api.ask("GET", "/api/v1/queue/history", token=mine).json()["tasks"]) == 1
