"""Tests workflows after unexpected errors and without space: retried, reported, then failed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coordinator.jobs import submissions
from coordinator.workflows import internal_errors, planning
from coordinator.workflows.documents import action_types
from coordinator.workflows.engine import Engine
from coordinator.workflows.internal_errors import TRIES, InternalErrors
from coordinator.workflows.workflow_task import WorkflowTask
from jobs import errors
from jobs.store.server import connection
from tests.unit.workflow_bench import Flows


class Clock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def flow(any_redis_url: str, tmp_path: Path, clock: Clock) -> Iterator[Flows]:
    made = Flows(any_redis_url, tmp_path / "store")
    made.engine.faults = InternalErrors(clock)
    yield made
    made.close()


def looks(flow: Flows, clock: Clock, workflow: str, most: int = 20) -> int:
    """Check the workflow again after the waits that errors require, and return the number of attempts."""
    for number in range(most):
        if not (outcome := flow.engine.look(workflow)).soon and not outcome.again:
            return number + 1
        clock.now += 100.0
    raise AssertionError("it is tried for ever")


def raising(error: Exception, count: int = 10**6) -> Any:
    """Return a function that raises an error some times and then returns nothing."""
    left = [count]

    def call(*_: Any, **__: Any) -> Any:
        left[0] -= 1
        if left[0] >= 0:
            raise error
        return {}

    return call


def break_type(monkeypatch: pytest.MonkeyPatch, name: str, run: Any) -> None:
    """Replace the execution of actions of a type."""
    monkeypatch.setitem(action_types.TYPES, name, replace(action_types.TYPES[name], run=run))


# -- faults of the coordinator --------------------------------------------------------------------------------------


def test_an_unexpected_error_in_a_step_fails_its_action_after_some_tries(
    flow: Flows, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    break_type(monkeypatch, "artifact_delete", raising(KeyError("x")))
    workflow = flow.submit("bad, action_type: artifact_delete, artifact: nix", "after, dependencies: [bad]", "other")
    with caplog.at_level(logging.ERROR):
        flow.engine.look(workflow)
        assert flow.row(workflow)["waiting_because"] == "an internal error of the coordinator (KeyError: 'x')"
        assert flow.states(workflow)["other"] == "queued", "what does not need it goes on"
        assert looks(flow, clock, workflow) > TRIES - 1
    assert flow.states(workflow) == {"bad": "failed", "after": "skipped", "other": "queued"}
    assert flow.errors(workflow)["bad"] == (
        f"an internal error of the coordinator (KeyError: 'x'); see the coordinator's log. "
        f"Next: cluster workflow retry {workflow}"
    )
    flow.done(workflow, "other")
    assert flow.row(workflow)["state"] == "failed" and flow.row(workflow)["waiting_because"] is None
    assert len([record for record in caplog.records if record.exc_info]) == 1, "one traceback"


def test_a_fault_that_goes_away_delays_only(flow: Flows, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    break_type(monkeypatch, "artifact_delete", raising(MemoryError("much"), TRIES - 1))
    workflow = flow.submit("bad, action_type: artifact_delete, artifact: nix")
    looks(flow, clock, workflow)
    assert flow.row(workflow)["state"] == "done"


def test_between_two_tries_there_is_a_wait(flow: Flows, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def fail(*_: Any) -> None:
        calls.append(1)
        raise KeyError

    break_type(monkeypatch, "artifact_delete", fail)
    workflow = flow.submit("bad, action_type: artifact_delete, artifact: nix")
    for _ in range(5):
        assert flow.engine.look(workflow).soon
    assert len(calls) == 1
    for wait in (1.0, 2.0, 4.0):
        clock.now += wait
        flow.engine.look(workflow)
        flow.engine.look(workflow)
    assert len(calls) == 4


def test_one_job_that_cannot_be_submitted_keeps_no_other(
    flow: Flows, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept = submissions.accept

    def broken(asked: Any, *rest: Any) -> Any:
        if asked.parameters["command"] == ["bad"]:
            raise RuntimeError("oh")
        return accept(asked, *rest)

    monkeypatch.setattr(submissions, "accept", broken)
    workflow = flow.submit("a", "b, action_type: command, command: [bad]", "c", "d, dependencies: [b]")
    looks(flow, clock, workflow)
    assert flow.states(workflow) == {"a": "queued", "b": "failed", "c": "queued", "d": "skipped"}
    monkeypatch.setattr(submissions, "accept", accept)
    flow.done(workflow, "a", "c")
    assert flow.row(workflow)["error"].startswith("b: an internal error of the coordinator (RuntimeError: oh)")
    flow.steer(workflow, "retry")
    flow.look(workflow)
    assert flow.states(workflow) == {"a": "done", "b": "queued", "c": "done", "d": "blocked"}


@pytest.mark.parametrize("state", ["running", "cancelling"])
def test_a_workflow_that_cannot_be_looked_at_fails(
    flow: Flows, clock: Clock, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    workflow = flow.submit("a")
    flow.look(workflow)
    if state == "cancelling":
        flow.steer(workflow, "cancel")
    plan = planning.plan
    monkeypatch.setattr(planning, "plan", raising(ZeroDivisionError("nought")))
    assert looks(flow, clock, workflow) == TRIES
    monkeypatch.setattr(planning, "plan", plan)
    row = flow.row(workflow)
    assert row["state"] == "failed" and row["ended"]
    assert row["error"] == (
        "an internal error of the coordinator (ZeroDivisionError: nought); see the coordinator's log. "
        "The jobs continue. "
        f"Next: cluster workflow retry {workflow}"
    )
    assert flow.steer(workflow, "retry").status_code == 200
    flow.done(workflow, "a")
    assert flow.row(workflow)["state"] == "done"


def test_a_cancel_that_fails_keeps_no_other(flow: Flows, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    workflow = flow.submit("a", "b")
    flow.look(workflow)
    flow.steer(workflow, "cancel")
    cancel = type(flow.engine.store.jobs).cancel

    def broken(store: Any, job: str, *rest: Any, **more: Any) -> list[str]:
        if "-a-" in job:
            raise RuntimeError("oh")
        return cancel(store, job, *rest, **more)

    monkeypatch.setattr(type(flow.engine.store.jobs), "cancel", broken)
    looks(flow, clock, workflow, 40)
    assert flow.states(workflow)["b"] == "cancelled" and flow.row(workflow)["state"] == "failed"
    assert "an internal error of the coordinator (RuntimeError: oh)" in flow.row(workflow)["error"]


def test_faults_are_kept_within_bounds(clock: Clock) -> None:
    found = InternalErrors(clock)
    for number in range(3000):
        clock.now += 1.0
        found.note(ValueError("x" * 10_000), f"w{number}")
    assert len(found.by_name) <= 1000 + internal_errors.KEPT_SECONDS
    assert all(len(one.words) <= 300 for one in found.by_name.values())


# -- what is full delays --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [errors.StoreFull("full"), errors.Unavailable("away"), errors.OverLimit("much")])
def test_a_full_artifact_store_delays(
    flow: Flows, clock: Clock, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    break_type(monkeypatch, "artifact_delete", raising(error, 50))
    workflow = flow.submit("d, action_type: artifact_delete, artifact: nix")
    for _ in range(50):
        clock.now += 100.0
        assert flow.engine.look(workflow).soon
        assert flow.row(workflow)["waiting_because"] == str(error)
    flow.look(workflow)
    assert flow.row(workflow)["state"] == "done"


@pytest.mark.parametrize("of", ["submit", "record"])
def test_a_full_redis_delays_and_says_so(flow: Flows, clock: Clock, monkeypatch: pytest.MonkeyPatch, of: str) -> None:
    full = connection.refusal("OOM command not allowed when used memory > 'maxmemory'.")
    assert full is not None
    workflow = flow.submit("a", "d, action_type: artifact_delete, artifact: nix", "e, foreach: [1]")
    with monkeypatch.context() as patched:
        part = flow.engine.store.jobs if of == "submit" else flow.engine.store.workflows
        patched.setattr(type(part), of, raising(full))
        for _ in range(2 * TRIES):
            clock.now += 100.0
            assert flow.engine.look(workflow).soon
        row = flow.row(workflow)
        assert row["state"] == "running" and row["waiting_because"].startswith("redis is full; ")
    flow.look(workflow)
    assert flow.states(workflow) == {"a": "queued", "d": "done", "e": "queued"}


def test_a_redis_without_memory_delays(flow: Flows) -> None:
    workflow = flow.submit("a", "b, dependencies: [a]", "e, foreach: [1]")
    used = flow.store.client.info("memory")["used_memory"]
    flow.store.client.config_set("maxmemory-policy", "noeviction")
    flow.store.client.config_set("maxmemory", used // 2)
    try:
        for _ in range(3):
            assert flow.engine.look(workflow).soon
        row = flow.row(workflow)
        assert row["state"] == "running" and "redis is full" in row["waiting_because"]
    finally:
        flow.store.client.config_set("maxmemory", 0)
    flow.look(workflow)
    assert flow.states(workflow) == {"a": "queued", "b": "blocked", "e": "queued"}


# -- cancelling waits -----------------------------------------------------------------------------------------------


def test_a_cancelled_workflow_whose_programs_end_slowly_is_waited_for(
    flow: Flows, monkeypatch: pytest.MonkeyPatch
) -> None:
    workflow = flow.submit("a", "b")
    flow.look(workflow)
    lease = flow.lease_next(flow.job_of(workflow, "a"))
    flow.steer(workflow, "cancel")
    flow.look(workflow)
    assert flow.row(workflow)["counts"] == {"cancelling": 1, "cancelled": 1}
    calls: list[str] = []

    def cancel(_: Any, job: str, *__: Any, **___: Any) -> list[str]:
        calls.append(job)
        return ["ok"]

    monkeypatch.setattr(type(flow.engine.store.jobs), "cancel", cancel)
    for _ in range(5):
        outcome = flow.engine.look(workflow)
        assert not outcome.again and not outcome.soon
    assert calls == [], "it was asked to end already"
    flow.store.leases.release(flow.job_of(workflow, "a"), lease.token)
    flow.store.fleet.sweep(60)
    assert workflow in flow.store.workflows.take_due(10), "its end wakes the leader"
    flow.look(workflow)
    assert flow.row(workflow)["state"] == "cancelled"


def test_while_one_cannot_be_looked_at_others_are(flow: Flows, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, good = flow.submit("a"), flow.submit("a")
    look = Engine.advance
    monkeypatch.setattr(
        Engine, "advance", lambda self, name: raising(OSError("no"))() if name == bad else look(self, name)
    )
    task = WorkflowTask(flow.store.workflows, flow.engine)
    task.run_once()
    assert flow.states(good) == {"a": "queued"} and flow.states(bad) == {"a": "waiting"}
