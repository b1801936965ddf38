"""Tests that workflows, jobs and attempts are distinguished by tenant and incarnation, also by a stopped leader."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest

from coordinator.jobs.delegated_submission import OnBehalf
from jobs.store import keys
from tests.contract.lease_model import new_job
from tests.unit.artifact_bench import TOKEN
from tests.unit.workflow_bench import Flows, workflow_text


def posted(flow: Flows, text: str, key: str, token: str = TOKEN) -> str:
    answer = flow.post(text, key=key, token=token)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["workflow_id"])


# -- incarnations ---------------------------------------------------------------------------------------------------


def test_a_key_whose_workflow_was_deleted_makes_a_new_one_that_takes_over_no_job(flow: Flows) -> None:
    text = workflow_text("a", "b, dependencies: [a]")
    first = posted(flow, text, "nightly")
    flow.look(first)
    flow.done(first, "a", value="of the first")
    flow.done(first, "b")
    assert flow.ask("DELETE", f"/api/workflows/{first}").status_code == 204
    assert not flow.store.client.keys("ct:idem:*")
    second = posted(flow, text, "nightly")
    flow.look(second)
    assert flow.states(second) == {"a": "queued", "b": "blocked"} and len(flow.jobs()) == 4


def test_a_key_is_no_id_and_another_tenants_same_key_is_another_workflow(flow: Flows) -> None:
    text = workflow_text("ok, action_type: approve")
    stranger = flow.token("acme", "read", "submit", "run")
    own, other = posted(flow, text, "k"), posted(flow, text, "k", stranger)
    assert own != other and len(own) == 16
    assert flow.ask("GET", f"/api/workflows/{own}", token=stranger).status_code == 404
    assert posted(flow, text, "k") == own and posted(flow, text, "k", stranger) == other
    assert own != hashlib.sha256(b"default\0k").hexdigest()[:16], "nobody can steer an id"


def test_an_id_that_another_tenant_has_is_not_taken_and_blocks_nobody(
    flow: Flows, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = iter(["a" * 16, "a" * 16, "b" * 16])
    monkeypatch.setattr("jobs.store.workflows.secrets.token_hex", lambda _: next(ids))
    stranger = flow.token("acme", "read", "submit", "run")
    own = posted(flow, workflow_text("a"), "x")
    other = posted(flow, workflow_text("a"), "y", stranger)
    assert (own, other) == ("a" * 16, "b" * 16)
    assert flow.ask("GET", f"/api/workflows/{own}").json()["tenant"] == "default"


def test_a_job_of_something_else_under_its_id_is_refused(flow: Flows) -> None:
    workflow = flow.submit("a", "b")
    others: tuple[dict[str, Any], ...] = ({"tenant": "acme"}, {"workflow": workflow, "action": "z", "attempt": 1})
    for number, more in enumerate(others):
        job = f"w-{workflow}-{'ab'[number]}-1"
        assert flow.store.jobs.submit([replace(new_job(job, 1, "any.normal"), **more)]) == [("new", job)]
    flow.look(workflow)
    assert flow.states(workflow) == {"a": "failed", "b": "failed"}
    assert flow.store.client.hget(keys.job(f"w-{workflow}-a-1"), "tenant") == b"acme"
    assert "is already in use" in flow.errors(workflow)["a"]


# -- leaders that were stopped ----------------------------------------------------------------------------------------


class Frozen:
    """A leader that is stopped before one of its writes, and continues after others have run `meanwhile`."""

    def __init__(self, flow: Flows, where: Any, name: str, meanwhile: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.woken = False
        original = getattr(where, name)

        def stopped(*args: Any, **more: Any) -> Any:
            if not self.woken:
                self.woken = True
                meanwhile()
            return original(*args, **more)

        monkeypatch.setattr(where, name, stopped)


def anew(flow: Flows, workflow: str) -> None:
    """Return the next leader's actions on a workflow whose only action is rejected: it fails and is retried."""
    flow.store.workflows.record(workflow, 1, "a", {"state": "failed", "error": "refused"})
    flow.look(workflow)
    assert flow.row(workflow)["state"] == "failed"
    assert flow.steer(workflow, "retry").json()["attempt"] == 2


def test_a_leader_that_was_stopped_submits_nothing_of_an_earlier_attempt(
    flow: Flows, monkeypatch: pytest.MonkeyPatch
) -> None:
    workflow = flow.submit("a")

    def meanwhile() -> None:
        anew(flow, workflow)
        flow.look(workflow)

    leader = Frozen(flow, OnBehalf, "submit", meanwhile, monkeypatch)
    assert flow.engine.look(workflow).again and leader.woken
    assert flow.jobs() == [f"w-{workflow}-a-2"]
    flow.look(workflow)
    assert flow.jobs() == [f"w-{workflow}-a-2"] and flow.job_of(workflow, "a") == f"w-{workflow}-a-2"


def test_a_leader_that_was_stopped_submits_nothing_that_was_done_and_deleted(
    flow: Flows, monkeypatch: pytest.MonkeyPatch
) -> None:
    workflow = flow.submit("a", "b, dependencies: [a]")

    def meanwhile() -> None:
        flow.look(workflow)
        flow.done(workflow, "a")
        assert flow.store.jobs.delete(f"w-{workflow}-a-1") == ["ok", "done"]

    leader = Frozen(flow, OnBehalf, "submit", meanwhile, monkeypatch)
    flow.engine.look(workflow)
    assert leader.woken and f"w-{workflow}-a-1" not in flow.jobs()


def test_a_leader_that_was_stopped_submits_nothing_before_the_new_attempt_does(
    flow: Flows, monkeypatch: pytest.MonkeyPatch
) -> None:
    workflow = flow.submit("a")
    Frozen(flow, OnBehalf, "submit", lambda: anew(flow, workflow), monkeypatch)
    flow.engine.look(workflow)
    assert flow.jobs() == []
    flow.look(workflow)
    assert flow.jobs() == [f"w-{workflow}-a-2"]


def test_a_leader_that_was_stopped_cancels_nothing_of_a_later_attempt(
    flow: Flows, monkeypatch: pytest.MonkeyPatch
) -> None:
    workflow = flow.submit("a")
    flow.look(workflow)
    flow.steer(workflow, "cancel")

    def meanwhile() -> None:
        flow.look(workflow)
        assert flow.row(workflow)["state"] == "cancelled"
        flow.steer(workflow, "retry")
        flow.look(workflow)
        assert flow.states(workflow) == {"a": "queued"}

    leader = Frozen(flow, type(flow.store.jobs), "cancel", meanwhile, monkeypatch)
    flow.engine.look(workflow)
    assert leader.woken and flow.states(workflow) == {"a": "queued"}


@pytest.mark.parametrize("before", ["retry", "retried"])
def test_a_leader_that_was_stopped_retries_nothing_for_a_later_attempt_and_forgets_none_of_its(
    flow: Flows, before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    workflow = flow.submit("a")
    flow.look(workflow)
    flow.failed(workflow, "a")
    flow.steer(workflow, "retry")

    def meanwhile() -> None:
        flow.look(workflow)
        flow.failed(workflow, "a")
        assert flow.row(workflow)["state"] == "failed"
        if before == "retried":
            assert flow.steer(workflow, "retry").json()["attempt"] == 3

    where = type(flow.store.jobs if before == "retry" else flow.store.workflows)
    leader = Frozen(flow, where, before, meanwhile, monkeypatch)
    flow.engine.look(workflow)
    assert leader.woken
    state = flow.store.client.hget(keys.job(f"w-{workflow}-a-1"), "state")
    assert state == b"failed", "nobody tries a job again in a workflow that has failed"
    if before == "retried":
        flow.look(workflow)
        assert flow.states(workflow) == {"a": "queued"}


def test_a_leader_that_was_stopped_tells_no_end_of_a_workflow_whose_job_is_tried_again(
    flow: Flows, monkeypatch: pytest.MonkeyPatch
) -> None:
    workflow = flow.submit("a", "b", notify="https://example.com/")
    flow.look(workflow)
    flow.failed(workflow, "a")

    def meanwhile() -> None:
        assert flow.store.jobs.retry(f"w-{workflow}-b-1", 1)[0] == "ok"
        flow.look(workflow)
        assert flow.row(workflow)["state"] == "running"

    leader = Frozen(flow, type(flow.store.workflows), "settle", meanwhile, monkeypatch)
    flow.failed(workflow, "b")
    assert leader.woken and flow.row(workflow)["state"] == "running" and not flow.row(workflow)["ended"]
    assert flow.store.client.hget(keys.workflow(workflow), "notifications") is None
    flow.failed(workflow, "b")
    assert flow.row(workflow)["state"] == "failed"
    assert flow.store.client.hget(keys.workflow(workflow), "notifications") == b"1"
