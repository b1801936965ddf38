"""Tests retries of workflows whose jobs were deleted or belong to another version of their kind."""

from __future__ import annotations

import pytest

from coordinator.workflows import engine, planning, retries
from coordinator.workflows.documents.document import Action, Document
from coordinator.workflows.planning import JobSeen, Known, Record, State
from jobs.kinds import registry
from tests.unit.workflow_bench import Flows


def delete(flow: Flows, workflow: str, *actions: str) -> None:
    for action in actions:
        assert flow.ask("DELETE", f"/api/jobs/{flow.job_of(workflow, action)}").status_code == 204


def retried(flow: Flows, workflow: str) -> list[str]:
    """Retry a workflow, and return its record."""
    answer = flow.steer(workflow, "retry")
    assert answer.status_code == 200, answer.text
    flow.look(workflow)
    notes: list[str] = answer.json()["notes"]
    return notes


def test_what_was_skipped_because_of_a_job_that_was_deleted_comes_after_its_new_one(flows: Flows) -> None:
    workflow = flows.submit("a", "b, dependencies: [a]", "c, dependencies: [b]", "d")
    flows.look(workflow)
    flows.done(workflow, "d")
    flows.failed(workflow, "a")
    delete(flows, workflow, "a")
    assert retried(flows, workflow) == ["a starts again: its job was deleted"]
    assert flows.states(workflow) == {"a": "queued", "b": "blocked", "c": "blocked", "d": "done"}
    assert flows.job_of(workflow, "c") == f"w-{workflow}-c-2" and flows.job_of(workflow, "d") == f"w-{workflow}-d-1"
    flows.done(workflow, "a")
    flows.done(workflow, "b")
    flows.done(workflow, "c")
    assert flows.row(workflow)["state"] == "done"


def test_a_cancelled_job_waits_for_the_new_one_of_a_deleted(flow: Flows) -> None:
    workflow = flow.submit("a", "b, dependencies: [a]", "c, after_any: [a]")
    flow.look(workflow)
    flow.steer(workflow, "cancel")
    flow.look(workflow)
    assert flow.row(workflow)["state"] == "cancelled"
    delete(flow, workflow, "a")
    notes = retried(flow, workflow)
    assert (
        notes[0] == "a starts again: its job was deleted"
        and "c starts again: it depends on actions that start again" in notes
    )
    assert flow.states(workflow) == {"a": "queued", "b": "blocked", "c": "blocked"}
    flow.done(workflow, "a")
    flow.done(workflow, "b", "c")
    assert flow.row(workflow)["state"] == "done"


def test_a_job_that_is_deleted_between_the_retry_and_the_leaders_look_begins_anew(flow: Flows) -> None:
    workflow = flow.submit("a", "b, dependencies: [a]")
    flow.look(workflow)
    flow.failed(workflow, "a")
    assert flow.steer(workflow, "retry").json()["notes"] == []
    delete(flow, workflow, "a")
    flow.look(workflow)
    assert flow.states(workflow) == {"a": "queued", "b": "blocked"}


def test_a_job_of_another_version_of_its_kind_begins_anew_and_who_retries_is_told(flows: Flows) -> None:
    workflow = flows.submit("a", "b, dependencies: [a]", "c")
    flows.look(workflow)
    flows.done(workflow, "c")
    flows.failed(workflow, "a")
    flows.store.client.hset(f"ct:job:{flows.job_of(workflow, 'a')}", "version", 77)
    now = registry.definition("command").model_version
    assert retried(flows, workflow) == [
        f"a starts again: its job was computed by version 77 of command, whose current version is {now}"
    ]
    assert flows.states(workflow) == {"a": "queued", "b": "blocked", "c": "done"}
    assert flows.job_of(workflow, "a") == f"w-{workflow}-a-2"


def test_a_leader_of_another_version_than_who_was_asked_begins_anew(
    flow: Flows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a rolling upgrade, the coordinator that gets the request could continue the job, but the leader cannot."""
    workflow = flow.submit("a", "b, dependencies: [a]", "c, dependencies: [b]")
    flow.look(workflow)
    flow.failed(workflow, "a")
    assert flow.steer(workflow, "retry").json()["notes"] == []
    monkeypatch.setattr(registry.definition("command"), "model_version", 78)
    flow.look(workflow)
    assert flow.states(workflow) == {"a": "queued", "b": "blocked", "c": "blocked"}
    assert [flow.job_of(workflow, name) for name in "abc"] == [f"w-{workflow}-{name}-2" for name in "abc"]


def test_a_retry_of_many_jobs_lets_others_have_their_turn(flow: Flows, monkeypatch: pytest.MonkeyPatch) -> None:
    workflow = flow.submit(*(f"a{number}" for number in range(6)), "z, dependencies: [a0, a5]")
    flow.look(workflow)
    flow.steer(workflow, "cancel")
    flow.look(workflow)
    flow.steer(workflow, "retry")
    moments = iter(range(10**6))
    monkeypatch.setattr(engine, "POLL_SECONDS", 3.5)
    monkeypatch.setattr("coordinator.workflows.engine.time.monotonic", lambda: float(next(moments)))
    assert flow.engine.look(workflow).again
    counts = [state for state in flow.states(workflow).values() if state == "queued"]
    assert 0 < len(counts) < 6 and flow.row(workflow)["state"] == "running"
    flow.look(workflow)
    assert set(flow.states(workflow).values()) == {"queued", "blocked"}


def test_a_result_that_is_needed_and_gone_is_computed_again(flow: Flows) -> None:
    """The action that refers to the result could otherwise never be filled in."""
    workflow = flow.submit(
        "x",
        'a, action_type: command, command: [run, "${x.value}"]',
        "b, action_type: approve",
        'c, action_type: command, command: [run, "${a.value}"], dependencies: [b]',
    )
    flow.look(workflow)
    flow.done(workflow, "x", value=1)
    flow.done(workflow, "a", value=2)
    flow.steer(workflow, "cancel")
    flow.look(workflow)
    delete(flow, workflow, "x", "a")
    retried(flow, workflow)
    assert flow.states(workflow) == {"x": "queued", "a": "waiting", "b": "approval", "c": "waiting"}
    flow.done(workflow, "x", value=3)
    flow.done(workflow, "a", value=4)
    flow.steer(workflow, "actions/b/approve")
    flow.look(workflow)
    assert flow.parameters(workflow, "c")["command"] == ["run", "4"]


def test_a_result_that_is_gone_and_not_needed_is_not_computed_again(flow: Flows) -> None:
    workflow = flow.submit("a", 'b, action_type: command, command: [run, "${a.value}"]')
    flow.look(workflow)
    flow.done(workflow, "a", value=1)
    flow.failed(workflow, "b")
    delete(flow, workflow, "a")
    assert retried(flow, workflow) == []
    assert flow.states(workflow) == {"a": "done", "b": "queued"}


def test_what_comes_after_the_end_of_another_waits_for_it_again(flow: Flows) -> None:
    workflow = flow.submit("build", "clean, after_any: [build]")
    flow.look(workflow)
    flow.failed(workflow, "build")
    flow.failed(workflow, "clean")
    assert retried(flow, workflow) == ["clean starts again: it depends on actions that start again"]
    assert flow.states(workflow) == {"build": "queued", "clean": "blocked"}


# -- what begins anew -----------------------------------------------------------------------------------------------


def known(records: dict[str, Record] | None = None, **jobs: str | None) -> Known:
    seen = {key.replace("__", "/"): JobSeen(key, state, gone=state is None) for key, state in jobs.items()}
    return Known(workflow="w", state=State.FAILED, attempt=1, jobs=seen, records=records or {})


def document(**dependencies: str) -> Document:
    actions = [
        Action(id=name, type="collatz", dependencies=tuple(before.split())) for name, before in dependencies.items()
    ]
    return Document(name="t", actions={one.id: one for one in actions})


def test_what_is_done_stays_and_what_comes_after_it_too() -> None:
    whole = document(a="", b="a", c="b", d="c")
    plan = retries.plan_retry(whole, known(a=None, b="done", c="failed", d="skipped"))
    assert plan == (["c"], ["a"]), "c comes after b, which is done"


def test_an_action_of_which_something_goes_on_is_left_alone() -> None:
    whole = document(a="", b="a")
    assert retries.plan_retry(whole, known(a=None, b="running")) == ([], ["a"])
    assert retries.plan_retry(whole, known(a=None, b="blocked")) == ([], ["a"])


def test_items_begin_anew_together_where_what_they_are_of_does() -> None:
    whole = document(a="", b="a")
    items = {"b": Record(state="expanded", items=(1, 2))}
    seen = known(items, a=None, b__0="done", b__1="failed")
    assert retries.plan_retry(whole, seen).restarted == ["a", "b", "b/0", "b/1"]
    seen = known(items, a="done", b__0="done", b__1=None)
    assert retries.plan_retry(whole, seen) == ([], ["b/1"])
    unbegun = known(items, a=None, b__0="done")
    assert retries.plan_retry(whole, unbegun).restarted == ["a", "b", "b/0"]


def test_refused_actions_begin_anew() -> None:
    whole = document(a="", b="a", c="")
    seen = known({"a": Record(state="failed")}, b="skipped", c="cancelled")
    assert retries.plan_retry(whole, seen) == (["c"], ["a", "b"])
    assert planning.plan(whole, seen).states["a"] == "failed"
