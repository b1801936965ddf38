"""Tests requests repeated by a proxy or client after a lost response: they count once and get the same response."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from coordinator import app
from jobs.settings import Settings

TINY = {"type": "collatz", "parameters": {"start_number": 1, "number_count": 3}}


class Api:
    """The routes of one replica, without its threads."""

    def __init__(self, redis_url: str) -> None:
        self.app = app.create(Settings(redis_url=redis_url, metrics_port=0))

    def post(self, path: str, **request: Any) -> httpx.Response:
        async def asked() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:3000") as client:
                return await client.post(path, **request)

        return asyncio.run(asked())


@pytest.fixture
def api(any_redis_url: str) -> Api:
    return Api(any_redis_url)


def send(api: Api, key: str, jobs: list[Any]) -> httpx.Response:
    return api.post("/api/submit-batch", json={"jobs": jobs}, headers={"Idempotency-Key": key})


def read_answers(answer: httpx.Response) -> list[Any]:
    return [one.get("job_id") or one["error"]["status"] for one in answer.json()["answers"]]


def test_a_batch_sent_again_with_its_key_is_the_same_jobs(api: Api) -> None:
    jobs = [TINY, {"type": "nosuch"}, TINY, {**TINY, "idempotency_key": "mine"}, 7]
    first = read_answers(send(api, "batch", jobs))
    assert len(set(first)) == 4 and first[1] == first[4] == 422
    assert read_answers(send(api, "batch", jobs)) == first
    other = read_answers(send(api, "k" * 195, jobs))
    assert other[0] != first[0] and other[2] != first[2]
    assert other[3] == first[3], "the key in a body is the one that counts"
    assert read_answers(api.post("/api/submit-batch", json={"jobs": jobs}))[0] not in first


def test_null_is_no_key_and_no_difference(api: Api) -> None:
    """Generated clients send null for fields that are not set."""
    nulls = {**TINY, "idempotency_key": None, "priority": None, "after": None}
    assert read_answers(send(api, "batch", [TINY])) == read_answers(send(api, "batch", [nulls]))
    jobs = [api.post("/api/submit", json=job, headers={"Idempotency-Key": "one"}).json() for job in (TINY, nulls)]
    assert jobs[0]["job_id"] == jobs[1]["job_id"]


def test_another_batch_under_the_same_key_is_a_conflict(api: Api) -> None:
    send(api, "batch", [TINY])
    assert read_answers(send(api, "batch", [{**TINY, "priority": "high"}])) == [409]


def test_the_key_of_a_batch_leaves_room_for_the_place(api: Api) -> None:
    answer = send(api, "k" * 196, [TINY])
    assert answer.status_code == 422 and answer.json()["field"].lower() == "idempotency-key"


def test_steering_again_is_answered_alike(api: Api) -> None:
    job = api.post("/api/submit", json=TINY).json()["job_id"]
    for verb, state in (("pause", "paused"), ("resume", "queued"), ("cancel", "cancelled"), ("retry", "queued")):
        answers = [api.post(f"/api/jobs/{job}/{verb}") for _ in range(2)]
        assert [(answer.status_code, answer.json()["state"]) for answer in answers] == [(200, state)] * 2
    api.post(f"/api/jobs/{job}/cancel")
    refused = api.post(f"/api/jobs/{job}/pause")
    assert refused.status_code == 409 and "cancelled" in refused.json()["detail"]
