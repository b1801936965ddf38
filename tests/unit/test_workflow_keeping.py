"""Tests which workflow data is kept: jobs as long as their workflow, bytes within caps, and reopened workflows."""

from __future__ import annotations

import time
from typing import Any

import pytest

from coordinator.workflows.workflow_counts import WorkflowCounter
from coordinator.workflows.workflow_task import WorkflowTask
from jobs.store import keys, unreadable_entries
from tests.unit.workflow_bench import Flows, workflow_text


def uses(reference: str) -> str:
    return f'action_type: command, command: [echo, "{reference}"]'


def sweep_expired(flow: Flows, *jobs: str) -> list[str]:
    """Let the lifetime of these jobs expire, and return the jobs that exist after a cleanup."""
    flow.store.client.zadd(keys.EXPIRY, dict.fromkeys(jobs, 1))
    flow.store.fleet.sweep(60)
    return [job for job in jobs if flow.store.client.exists(keys.job(job))]


# -- jobs -----------------------------------------------------------------------------------------------------------


def test_a_retry_finds_what_the_done_jobs_gave_however_late(flow: Flows) -> None:
    workflow = flow.submit("a", "b, dependencies: [a]", f"c, {uses('${a.value}')}, dependencies: [b]")
    flow.look(workflow)
    flow.done(workflow, "a", value="kept")
    flow.failed(workflow, "b")
    jobs = [flow.job_of(workflow, name) for name in "ab"]
    assert sweep_expired(flow, *jobs) == jobs
    looked_at = flow.store.client.zscore(keys.EXPIRY, jobs[0]) / 1000 - time.time()
    assert 60 <= looked_at + 5 <= 3700, "not each second, and not long after the workflow was deleted"
    flow.steer(workflow, "retry")
    flow.look(workflow)
    flow.done(workflow, "b")
    assert flow.parameters(workflow, "c")["command"] == ["echo", "kept"]


def test_jobs_of_a_workflow_that_has_gone_go(flow: Flows) -> None:
    workflow = flow.submit("a")
    flow.look(workflow)
    job = flow.job_of(workflow, "a")
    flow.done(workflow, "a")
    assert sweep_expired(flow, job) == [job]
    flow.store.client.zadd(keys.WORKFLOW_EXPIRY, {workflow: 1})
    assert flow.store.workflows.purge(10) == 1
    assert sweep_expired(flow, job) == []


# -- bytes ----------------------------------------------------------------------------------------------------------


def stored(flow: Flows) -> int:
    return int(flow.store.client.hget(keys.STORED, "acme") or 0)


def test_documents_and_records_count_against_the_cap_on_stored_bytes(flow: Flows) -> None:
    token = flow.token("acme", "read", "submit", "run")
    flow.ask("PUT", "/api/tenants/acme", {"weight": 1, "max_stored_bytes": 100_000})
    each = 'e, action_type: command, foreach: "${a.value}", command: [run, "${item}"]'
    workflow = flow.submit("a", each, "ok, action_type: approve", token=token)
    text = stored(flow)
    assert 0 < text < 1000
    flow.look(workflow)
    before = stored(flow)
    flow.done(workflow, "a", value=["x" * 1000] * 3)
    assert stored(flow) > before + 3000, "the items, and what the job gave"
    flow.store.stored_bytes.recount()
    known = stored(flow)
    flow.store.client.hdel(keys.stored("acme"), "|workflows")
    flow.store.stored_bytes.recount()
    assert stored(flow) == known
    flow.store.client.hset(keys.STORED, "acme", 99_990)
    refused = flow.post(workflow_text("a"), token=token)
    assert refused.status_code == 429 and refused.json()["field"] == "max_stored_bytes"
    assert "99990 of 100000 bytes" in refused.json()["detail"]
    flow.store.stored_bytes.recount()
    flow.steer(workflow, "cancel")
    flow.look(workflow)
    flow.ask("DELETE", f"/api/workflows/{workflow}")
    for job in flow.jobs():
        flow.ask("DELETE", f"/api/jobs/{job}")
    assert stored(flow) == 0 and not flow.store.client.exists(keys.WORKFLOW_BYTES, keys.stored("acme"))


def test_what_a_retry_forgets_counts_no_more(flow: Flows) -> None:
    workflow = flow.submit("a, action_type: command, command: [x], files: nix")
    before = flow.store.client.hget(keys.WORKFLOW_BYTES, "default")
    flow.look(workflow)
    assert flow.row(workflow)["state"] == "failed"
    assert flow.store.client.hget(keys.WORKFLOW_BYTES, "default") != before
    flow.steer(workflow, "retry")
    assert flow.store.client.hget(keys.WORKFLOW_BYTES, "default") == before


def test_the_list_of_jobs_before_one_counts(flow: Flows) -> None:
    token = flow.token("acme", "read", "submit")
    flow.ask("PUT", "/api/tenants/acme", {"weight": 1, "max_stored_bytes": 1_000_000})
    job = {"type": "collatz", "parameters": {"start_number": 1, "number_count": 5}}
    parents = [flow.ask("POST", "/api/submit", job, token=token).json()["job_id"] for _ in range(20)]
    before = stored(flow)
    flow.ask("POST", "/api/submit", job, token=token)
    one = stored(flow) - before
    flow.ask("POST", "/api/submit", {**job, "after": parents}, token=token)
    assert stored(flow) - before - 2 * one >= 20 * 16
    flow.store.stored_bytes.recount()
    assert stored(flow) - before - 2 * one >= 20 * 16


# -- those that were reopened ---------------------------------------------------------------------------------------


def test_a_workflow_that_was_reopened_is_not_forgotten_when_the_leader_dies_with_it(flow: Flows) -> None:
    workflow = flow.submit("a")
    flow.look(workflow)
    flow.failed(workflow, "a")
    assert flow.store.workflows.open() == []
    assert flow.ask("POST", f"/api/jobs/{flow.job_of(workflow, 'a')}/retry").status_code == 200
    assert flow.store.workflows.take_due(10) == [workflow], "by a leader that dies before it looks"
    following = WorkflowTask(flow.store.workflows, flow.engine)
    following.run_once()
    assert flow.row(workflow)["state"] == "running" and flow.store.workflows.open() == [workflow]
    assert not flow.store.client.exists(keys.WORKFLOWS_TAKEN)


def test_a_look_that_fails_is_made_again_by_whoever_leads(flow: Flows, monkeypatch: pytest.MonkeyPatch) -> None:
    workflow = flow.submit("a")
    task = WorkflowTask(flow.store.workflows, flow.engine)

    def fails(*_: Any) -> Any:
        raise RuntimeError

    with monkeypatch.context() as broken:
        broken.setattr(flow.engine, "look", fails)
        task.run_once()
    assert flow.store.client.sismember(keys.WORKFLOWS_TAKEN, workflow)
    WorkflowTask(flow.store.workflows, flow.engine).run_once()
    assert flow.states(workflow) == {"a": "queued"}


# -- the census -----------------------------------------------------------------------------------------------------


def figures(flow: Flows) -> dict[str, int]:
    found = flow.store.client.hgetall(keys.WORKFLOW_FIGURES)
    return {name.decode(): int(value) for name, value in found.items()}


def test_workflows_are_counted_page_by_page(flow: Flows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator.workflows.workflow_counts.PAGE", 2)
    done, *_, waiting = [flow.submit("a") for _ in range(4)] + [flow.submit("ok, action_type: approve")]
    flow.look(done)
    flow.done(done, "a")
    flow.look(waiting)
    census = WorkflowCounter(flow.store.workflows)
    census.run_once()
    seen = figures(flow)
    assert {name: seen[name] for name in ("running", "waiting", "done", "failed", "cancelling", "cancelled")} == {
        "running": 3,
        "waiting": 1,
        "done": 1,
        "failed": 0,
        "cancelling": 0,
        "cancelled": 0,
    }
    assert abs(seen["at"] / 1000 - time.time()) < 60
    # One that takes long goes on where it was.
    monkeypatch.setattr("coordinator.workflows.workflow_counts.ROUND_SECONDS", -1.0)
    flow.submit("a")
    for _ in range(2):
        census.run_once()
        assert figures(flow) == seen
    census.run_once()
    census.run_once()
    assert figures(flow)["running"] == 4


def test_a_workflow_that_stands_still_is_found_and_one_at_work_or_for_a_person_is_not(flow: Flows) -> None:
    census = WorkflowCounter(flow.store.workflows)
    at_work, for_a_person = flow.submit("a"), flow.submit("ok, action_type: approve")
    for workflow in (at_work, for_a_person):
        flow.look(workflow)
        flow.store.client.hset(keys.workflow(workflow), "changed", 1000)
    census.run_once()
    assert figures(flow)["idle"] == 0
    still = flow.submit("a")  # nobody looks at it
    flow.store.client.hset(keys.workflow(still), "created", 5000)
    census.run_once()
    assert figures(flow)["idle"] == 5000
    flow.look(still)
    census.run_once()
    assert figures(flow)["idle"] == 0


@pytest.mark.parametrize("name", ["attempt", "total", "created", "ended"])
def test_a_workflow_with_a_broken_number_is_skipped_and_not_read_as_0(flow: Flows, name: str) -> None:
    broken, whole = flow.submit("a"), flow.submit("a")
    flow.store.client.hset(keys.workflow(broken), name, "many")
    before = unreadable_entries.SKIPS.counts["workflow"]
    [none, found] = flow.store.workflows.read([broken, whole])
    assert none is None and found and found.id == whole
    assert unreadable_entries.SKIPS.counts["workflow"] == before + 1
    with pytest.raises(ValueError, match=f"^{name} of {keys.workflow(broken)} in Redis must be a number, not 'many'"):
        flow.store.workflows.course(broken)
