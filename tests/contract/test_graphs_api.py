"""Tests dependent jobs over HTTP and with the command: rejections, responses and access."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx
import pytest

from coordinator import app
from jobs.settings import Settings
from jobs.store import keys
from jobs.store.tenancy.tenants import Tenant
from tests.contract.lease_model import Bench

TINY = {"type": "collatz", "parameters": {"start_number": 1, "number_count": 3}}


class Api:
    """The routes of one replica, without its threads."""

    def __init__(self, redis_url: str) -> None:
        self.app = app.create(Settings(redis_url=redis_url, metrics_port=0))

    def ask(self, method: str, path: str, **request: Any) -> httpx.Response:
        async def asked() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:3000") as client:
                return await client.request(method, path, **request)

        return asyncio.run(asked())

    def submit(self, **more: Any) -> dict[str, Any]:
        answer = self.ask("POST", "/api/submit", json=TINY | more)
        assert answer.status_code == 202, answer.text
        row: dict[str, Any] = answer.json()
        return row

    def job(self, job_id: str) -> dict[str, Any]:
        row: dict[str, Any] = self.ask("GET", f"/api/jobs/{job_id}").json()
        return row

    def relations(self, job_id: str) -> dict[str, Any]:
        row: dict[str, Any] = self.ask("GET", f"/api/jobs/{job_id}/relations").json()
        return row


@pytest.fixture
def bench(any_redis_url: str) -> Iterator[Bench]:
    made = Bench(any_redis_url)
    with closing(made.client):
        yield made


@pytest.fixture
def api(bench: Bench, any_redis_url: str) -> Iterator[Api]:
    made = Api(any_redis_url)
    with closing(made.app.state.coordinator.cluster.store.client):
        yield made


def test_a_submission_an_estimate_and_the_job_agree_on_the_start(api: Api, bench: Bench) -> None:
    bench.store.tenants.put(Tenant(name="default", max_jobs=1))
    bench.store.fleet.heartbeat("cpu-1", "1", {"device": "cpu", "lanes": 1, "state": "busy", "kinds": "{}"})
    first = api.submit()
    assert api.job(first["job_id"])["estimated_wait_seconds"] == first["estimated_wait_seconds"]
    held = api.submit(hold=True)
    job = api.job(held["job_id"])
    assert job["in_backlog"] and job["estimated_wait_seconds"] is held["estimated_wait_seconds"] is None
    estimate = api.ask("POST", "/api/estimate", json=TINY).json()
    assert estimate["queue"] == job["queue"] and estimate["unschedulable"] is None
    assert api.ask("POST", "/api/estimate", json={"type": "none"}).status_code == 422


def related(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {row["job_id"]: row["state"] for row in rows}


def test_a_job_says_what_it_waits_for(api: Api) -> None:
    parents = [api.submit()["job_id"] for _ in range(5)]
    answer = api.submit(after=parents[:3], after_any=parents[3:])
    assert (answer["status"], answer["estimated_wait_seconds"]) == ("blocked", None)
    job = api.job(answer["job_id"])
    named = ", ".join(f"{parent} (queued)" for parent in parents[:3])
    assert (job["state"], job["waiting_because"]) == ("blocked", f"waits for 5 of 5 jobs: {named}, ...")
    api.ask("POST", f"/api/jobs/{parents[3]}/cancel")
    api.ask("POST", f"/api/jobs/{parents[4]}/cancel")
    api.app.state.coordinator.cluster.store.fleet.wake()
    assert api.job(answer["job_id"])["waiting_because"] == f"waits for 3 of 5 jobs: {named}"
    seen = api.relations(answer["job_id"])
    assert [(row["needed"], row["met"]) for row in seen["parents"]] == [("done", False)] * 3 + [("ended", True)] * 2
    assert related(api.relations(parents[0])["children"]) == {answer["job_id"]: "blocked"}
    listed = api.ask("GET", "/api/jobs", params={"state": "blocked"}).json()["jobs"]
    assert [row["job_id"] for row in listed] == [answer["job_id"]]


def test_what_a_failure_skipped_is_told_by_the_root(api: Api) -> None:
    root = api.submit()["job_id"]
    child = api.submit(after=[root])["job_id"]
    last = api.submit(after=[child])["job_id"]
    api.ask("POST", f"/api/jobs/{root}/cancel")
    while api.app.state.coordinator.cluster.store.fleet.wake().notified:
        pass
    assert api.job(last)["root"] == root and api.job(last)["state"] == "skipped"
    assert api.job(last)["error"] == f"job {root}, on which it depends, was cancelled"
    assert related(api.relations(root)["skipped"]) == {child: "skipped", last: "skipped"}
    refused = api.ask("POST", f"/api/jobs/{last}/retry")
    assert refused.status_code == 409 and f"cluster retry {root}" in refused.json()["detail"]
    new = api.submit(after=[last])
    assert new["status"] == "skipped" and api.job(new["job_id"])["root"] == root
    assert api.ask("POST", f"/api/jobs/{root}/retry").json()["state"] == "queued"
    api.app.state.coordinator.cluster.store.fleet.wake()
    assert {api.job(job)["state"] for job in (child, last, new["job_id"])} == {"blocked"}
    assert "root" not in api.job(last) and api.job(last)["error"] is None


def test_who_is_waited_for_is_not_deleted(api: Api) -> None:
    root = api.submit()["job_id"]
    child = api.submit(after=[root])["job_id"]
    last = api.submit(after=[child])["job_id"]
    refused = api.ask("DELETE", f"/api/jobs/{child}")
    assert refused.status_code == 409 and f"/api/jobs/{child}/relations" in refused.json()["detail"]
    assert api.ask("DELETE", f"/api/jobs/{last}").status_code == 204
    assert api.ask("DELETE", f"/api/jobs/{child}").status_code == 204
    assert api.relations(root)["children"] == []


@pytest.mark.parametrize(
    ("fields", "status", "field", "said"),
    [
        ({"after": ["nobody"]}, 409, "after", "job nobody does not exist"),
        ({"after_any": ["nobody"]}, 409, "after_any", "job nobody does not exist"),
        ({"after": "one"}, 422, "after", "list"),
        ({"after": [7]}, 422, "after.0", "string"),
        ({"after": ["a b"]}, 422, "after.0", "must be a job ID"),
        ({"after": ["a:b"]}, 422, "after.0", "must be a job ID"),
        ({"after": ["x" * 65]}, 422, "after.0", "must be a job ID"),
        ({"after": [f"j{number}" for number in range(1001)]}, 422, "after", "1000"),
        ({"after": ["a"], "after_any": ["a"]}, 422, "after_any", "is also in after"),
        (
            {"after": [f"j{number}" for number in range(600)], "after_any": [f"k{number}" for number in range(600)]},
            422,
            "after_any",
            "can name 1000 jobs",
        ),
    ],
)
def test_what_cannot_be_waited_for_is_refused(
    api: Api, bench: Bench, fields: dict[str, Any], status: int, field: str, said: str
) -> None:
    before = bench.client.keys("*")
    answer = api.ask("POST", "/api/submit", json=TINY | fields)
    assert (answer.status_code, answer.json()["field"]) == (status, field)
    assert said in answer.json()["detail"]
    # The first call of a process can load the functions into Redis, which records the release.
    assert {*bench.client.keys("*")} - {keys.RELEASE.encode()} == {*before} - {keys.RELEASE.encode()}


def test_a_batch_may_come_after_a_job(api: Api) -> None:
    root = api.submit()["job_id"]
    jobs = [TINY | {"after": [root]}, TINY | {"after": ["nobody"]}, TINY]
    answers = api.ask("POST", "/api/submit-batch", json={"jobs": jobs}).json()["answers"]
    assert [answer.get("status") or answer["error"]["status"] for answer in answers] == ["blocked", 409, "queued"]


def test_the_same_key_with_other_parents_is_a_conflict(api: Api) -> None:
    first, second = api.submit()["job_id"], api.submit()["job_id"]
    given = TINY | {"idempotency_key": "k", "after": [first]}
    assert api.submit(**given)["job_id"] == api.submit(**given)["job_id"]
    other = api.ask("POST", "/api/submit", json=given | {"after": [second]})
    assert other.status_code == 409 and other.json()["field"] == "idempotency_key"


def test_what_is_stored_of_parents_and_is_none_breaks_no_list(api: Api, bench: Bench) -> None:
    root = api.submit()["job_id"]
    child = api.submit(after=[root])["job_id"]
    bench.client.hset(keys.job(child), "after", "[7]")
    assert api.ask("GET", f"/api/jobs/{child}/relations").status_code == 409, "it cannot be read"
    bench.client.delete(keys.job_needs(child))
    bench.client.set(keys.job_needs(child), "x")
    assert {row["job_id"] for row in api.ask("GET", "/api/jobs").json()["jobs"]} == {root, child}
