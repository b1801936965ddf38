"""Tests workflow webhooks: the end is reported once, by the step that records it, whichever leader dies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator.destinations import Guard
from coordinator.secrets.keys import Keys
from coordinator.webhooks.sender import Sender
from jobs.store import keys
from jobs.store.webhooks import Delivery
from tests.integration.live import until
from tests.unit.receiver import Receiver
from tests.unit.test_webhooks import LOOPBACK, verified
from tests.unit.workflow_bench import Flows, workflow_text

URL = "https://hooks.example/services/KEY"


@pytest.fixture
def flow(any_redis_url: str, tmp_path: Path) -> Iterator[Flows]:
    made = Flows(any_redis_url, tmp_path / "store", webhook_allow=LOOPBACK)
    yield made
    made.close()


def told(flow: Flows, url: str = URL, *actions: str) -> str:
    """A workflow whose end is reported."""
    return flow.submit(*(actions or ("a",)), name=f"test\nnotify: {url}")


def deliveries(flow: Flows, state: Any = "pending") -> list[Delivery]:
    return flow.store.webhooks.listed("default", state, 100)


def test_the_end_of_a_workflow_is_delivered_signed_and_once(flow: Flows) -> None:
    sender = Sender(flow.store.webhooks, Keys(["1" * 32]), Guard(LOOPBACK))
    sender.start()
    try:
        with Receiver() as taken:
            workflow = told(flow, taken.url(), "a", "b, dependencies: [a]")
            flow.look(workflow)
            flow.done(workflow, "a")
            assert deliveries(flow) == [] == taken.got
            flow.done(workflow, "b")
            until(lambda: deliveries(flow, "delivered"))
            [got] = taken.got
            body = json.loads(got.body)
            assert body["type"] == "workflow.done" and body["id"] == got.headers["webhook-id"] and "job" not in body
            assert body["workflow"] == {
                "id": workflow,
                "name": "test",
                "state": "done",
                "tenant": "default",
                "error": None,
                "result": f"/api/workflows/{workflow}",
            }
            assert verified(flow.ask("GET", "/api/webhooks/key").json()["key"], got.headers, got.body)
            [row] = flow.ask("GET", "/api/webhooks").json()["deliveries"]
            assert (row["workflow_id"], row["job_id"], row["type"]) == (workflow, None, "workflow.done")
            assert flow.row(workflow)["notify"] == f"http://127.0.0.1:{taken.port}/..."
    finally:
        sender.stop()
        sender.join(30)


@pytest.mark.parametrize("noted", [False, True])
def test_a_leader_that_dies_as_a_workflow_ends_is_followed_by_one_that_tells_it_once(
    flow: Flows, noted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    workflow = told(flow)
    flow.look(workflow)
    flow.end(flow.job_of(workflow, "a"))
    original = flow.store.workflows.settle

    def dies(*args: Any, **more: Any) -> bool:
        if noted:
            original(*args, **more)
        raise SystemExit

    with monkeypatch.context() as broken:
        broken.setattr(type(flow.store.workflows), "settle", lambda _, *args, **more: dies(*args, **more))
        with pytest.raises(SystemExit):
            flow.engine.look(workflow)
    assert len(deliveries(flow)) == noted
    for _ in range(2):
        flow.look(workflow)
    [delivery] = deliveries(flow)
    assert (delivery.workflow, delivery.type, delivery.url) == (workflow, "workflow.done", URL)


def test_each_end_is_told_with_its_error_and_a_late_leader_tells_none(flow: Flows) -> None:
    workflow = told(flow)
    flow.look(workflow)
    before = flow.store.workflows.read([workflow])[0]
    flow.failed(workflow, "a")
    assert before and not flow.store.workflows.settle(before, "failed", 1000)
    flow.steer(workflow, "retry")
    flow.look(workflow)
    flow.steer(workflow, "cancel")
    flow.look(workflow)
    flow.steer(workflow, "retry")
    flow.look(workflow)
    flow.done(workflow, "a")
    found = {one.type: one for one in deliveries(flow)}
    assert set(found) == {"workflow.failed", "workflow.cancelled", "workflow.done"} and len(deliveries(flow)) == 3
    assert found["workflow.failed"].error.startswith("a: ") and found["workflow.done"].error == ""
    # Retrying one of its jobs by hand leads to a further end.
    other = told(flow)
    flow.look(other)
    flow.failed(other, "a")
    assert flow.ask("POST", f"/api/jobs/{flow.job_of(other, 'a')}/retry").status_code == 200
    flow.look(other)
    flow.done(other, "a")
    assert [one.type for one in deliveries(flow) if one.workflow == other] == ["workflow.done", "workflow.failed"]


def test_a_call_may_name_the_receiver_which_overrules_the_text(flow: Flows) -> None:
    answer = flow.post(workflow_text("a", name=f"test\nnotify: {URL}"), notify="https://other.example/x")
    assert answer.status_code == 202 and answer.json()["notify"] == "https://other.example/..."
    assert flow.row(flow.submit("a"))["notify"] is None


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://x/", "must be a URL that starts with https://HOST"),
        ("7", "must be a URL"),
        ("[a]", "must be a URL"),
        ("https://a:b@x/", "user or password"),
    ],
)
def test_a_receiver_that_is_none_is_a_problem_of_the_text_with_its_place(flow: Flows, url: str, why: str) -> None:
    answer = flow.post(workflow_text("a", name=f"test\nnotify: {url}"))
    [problem] = answer.json()["problems"]
    assert answer.status_code == 422 and (problem["line"], problem["field"]) == (2, "notify")
    assert why in problem["detail"]
    assert flow.post(workflow_text("a"), notify=url).json()["field"] == "notify"


def test_a_receiver_that_may_not_be_reached_is_refused(flow: Flows) -> None:
    refused = flow.post(workflow_text("a", name="test\nnotify: http://10.0.0.1/"))
    assert refused.status_code == 422 and refused.json()["field"] == "notify" and "private" in refused.text
    schedule = {"name": "s", "every_seconds": 60, "workflow": workflow_text("a", name="t\nnotify: http://10.0.0.1/")}
    assert flow.ask("POST", "/api/schedules", schedule).status_code == 422
    assert flow.ask("GET", "/api/workflows").json()["workflows"] == []


def test_without_a_key_none_is_taken(any_redis_url: str, tmp_path: Path) -> None:
    flow = Flows(any_redis_url, tmp_path / "store", secrets_key="")
    refused = flow.post(workflow_text("a", name=f"test\nnotify: {URL}"))
    assert refused.status_code == 422 and "SECRETS_KEY" in refused.json()["detail"]
    flow.close()


def test_a_tenant_whose_receivers_are_away_submits_none_that_is_told(flow: Flows) -> None:
    pending = keys.deliveries_of("default", "pending")
    flow.store.client.zadd(pending, {f"msg_{number}": number for number in range(10_000)})
    refused = flow.post(workflow_text("a", name=f"test\nnotify: {URL}"))
    assert refused.status_code == 429 and refused.json()["field"] == "notify"
    assert flow.post(workflow_text("a")).status_code == 202


def test_a_full_redis_tells_what_ended(flow: Flows) -> None:
    workflow = told(flow)
    flow.look(workflow)
    flow.end(flow.job_of(workflow, "a"))
    flow.store.client.config_set("maxmemory", 1)
    try:
        flow.engine.look(workflow)
        assert [one.type for one in deliveries(flow)] == ["workflow.done"]
    finally:
        flow.store.client.config_set("maxmemory", 0)
