"""Tests workflows in the leader with a real Redis: order, references, failures, retries and cancellation."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coordinator.workflows import engine
from coordinator.workflows.documents import action_types, expansions
from jobs.kinds import programs
from jobs.store import workflows
from tests.unit.test_workflow_texts import PIPELINE
from tests.unit.workflow_bench import Flows, workflow_text


def uses(reference: str) -> str:
    """Return the end of an action that runs a program with a reference as its argument."""
    return f'action_type: command, command: [echo, "{reference}"]'


# -- order ----------------------------------------------------------------------------------------------------------


def test_all_actions_whose_parameters_are_known_are_jobs_at_once_and_wait_for_each_other(flows: Flows) -> None:
    workflow = flows.submit("a", "b, dependencies: [a]", "c, dependencies: [a]", "d, dependencies: [b, c]")
    flows.look(workflow)
    assert flows.states(workflow) == {"a": "queued", "b": "blocked", "c": "blocked", "d": "blocked"}
    assert flows.jobs() == [f"w-{workflow}-{name}-1" for name in "abcd"]
    flows.done(workflow, "a")
    assert flows.states(workflow) == {"a": "done", "b": "queued", "c": "queued", "d": "blocked"}
    flows.done(workflow, "c", "b")
    flows.done(workflow, "d")
    row = flows.row(workflow)
    assert (row["state"], row["counts"], row["error"]) == ("done", {"done": 4}, None) and row["ended"]


def test_a_look_that_changes_nothing_submits_nothing(flow: Flows) -> None:
    workflow = flow.submit("a", "b, dependencies: [a]")
    for _ in range(3):
        flow.look(workflow)
    assert len(flow.jobs()) == 2
    outcome = flow.engine.look(workflow)
    assert (outcome.again, outcome.soon) == (False, False)


def test_after_any_goes_on_whatever_became_of_the_other(flows: Flows) -> None:
    workflow = flows.submit("a", "b, dependencies: [a]", "clean, after_any: [a, b]")
    flows.look(workflow)
    flows.failed(workflow, "a")
    assert flows.states(workflow) == {"a": "failed", "b": "skipped", "clean": "queued"}
    flows.done(workflow, "clean")
    assert flows.row(workflow)["state"] == "failed"


# -- references -----------------------------------------------------------------------------------------------------


def test_a_reference_is_filled_once_when_its_action_is_done(flows: Flows) -> None:
    others = (f"c, {uses('${a.value.deep.1}')}", f"d, {uses('$${a.x}')}")
    workflow = flows.submit("a", f"b, {uses('${a.value}')}", *others)
    flows.look(workflow)
    assert flows.states(workflow) == {"a": "queued", "b": "waiting", "c": "waiting", "d": "queued"}
    flows.done(workflow, "a", value={"deep": [1, "${d.value}"]})
    assert flows.parameters(workflow, "b")["command"] == ["echo", '{"deep":[1,"${d.value}"]}']
    assert flows.parameters(workflow, "c")["command"] == ["echo", "${d.value}"]
    assert flows.parameters(workflow, "d")["command"] == ["echo", "${a.x}"]


@pytest.mark.parametrize(
    ("reference", "value", "words"),
    [
        ("${a.value.nix}", {"x": 1, "y": 2}, "a.value has no nix; it has x, y"),
        ("${a.value.3}", [1, 2], "a.value has no 3; it is a list of 2"),
        ("${a.value.x}", 7, "a.value has no x; it is a int"),
        ("${a.value}", None, "null cannot be an argument of a command"),
    ],
)
def test_a_reference_without_a_value_fails_its_action(flow: Flows, reference: str, value: Any, words: str) -> None:
    workflow = flow.submit("a", f"b, {uses(reference)}", "c, dependencies: [b]")
    flow.look(workflow)
    flow.done(workflow, "a", value=value)
    assert flow.states(workflow) == {"a": "done", "b": "failed", "c": "skipped"}
    assert words in flow.errors(workflow)["b"] and flow.errors(workflow)["c"] == "b failed"
    row = flow.row(workflow)
    assert row["state"] == "failed" and row["error"].startswith("b: ")


def test_parameters_that_a_kind_refuses_once_they_are_known_fail_the_action(flow: Flows) -> None:
    late = 'b, action_type: collatz, start_number: "${a.value}", number_count: 5'
    workflow = flow.submit("a", late)
    flow.look(workflow)
    flow.done(workflow, "a", value="many")
    assert "start_number: must be an integer" in flow.errors(workflow)["b"]


def test_results_of_a_kind_are_given_as_they_are(flow: Flows) -> None:
    uses_of = {"b": "${a.values}", "c": "${a.units}", "d": "${a.job_id}", "e": "${a.value}"}
    others = (f"{name}, {uses(reference)}" for name, reference in uses_of.items())
    workflow = flow.submit("a, action_type: command, command: [x], count: 3", *others)
    flow.look(workflow)
    flow.done(workflow, "a", value=7)
    words = [flow.parameters(workflow, name)["command"][1] for name in "bcd"]
    assert words == ["[7,7,7]", "3", f"w-{workflow}-a-1"]
    assert "a has 3 units; refer to the list values" in flow.errors(workflow)["e"]


VALUES = [
    "{unit}",
    "a{unit}b",
    "{item}",
    "${item}",
    "${a.value}",
    "$${a.value}",
    {"k": "{unit}"},
    {"literal": "{unit}"},
]


def words_of(flows: Flows, workflow: str, action: str) -> list[str]:
    """Return the arguments that a runner passes to the program of an action's only unit."""
    return arguments(flows, flows.job_of(workflow, action))


def arguments(flows: Flows, job: str) -> list[str]:
    spec = flows.store.results.gather(job).spec
    assert spec
    return programs.arguments(json.loads(spec), 0)


@pytest.mark.parametrize("value", VALUES)
def test_a_value_reaches_the_program_as_it_is(flow: Flows, value: Any) -> None:
    written = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    shell = "c, action_type: command, command: '${a.value}'"
    all_words = "d, action_type: command, command: '${a.value}'"
    as_literal = 'e, action_type: command, command: [echo, {literal: "${a.value}"}]'
    first = flow.submit("a", f"b, {uses('${a.value}')}", shell, as_literal)
    second = flow.submit("a", all_words)
    for workflow, given in ((first, value), (second, ["echo", value])):
        flow.look(workflow)
        flow.done(workflow, "a", value=given)
    assert words_of(flow, first, "b") == words_of(flow, first, "e") == ["echo", written]
    assert words_of(flow, second, "d") == ["echo", written]
    if isinstance(value, str):
        assert words_of(flow, first, "c") == ["/bin/sh", "-c", value]


def test_items_of_a_foreach_reach_the_program_as_they_are(flow: Flows) -> None:
    each = (
        'b, action_type: command, foreach: "${a.value}", '
        'command: [run, "${item}", "${index}", "{unit}"], env: {ITEM: "${item}"}'
    )
    workflow = flow.submit("a", each)
    flow.look(workflow)
    flow.done(workflow, "a", value=VALUES)
    for number, value in enumerate(VALUES):
        written = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
        assert words_of(flow, workflow, f"b/{number}") == ["run", written, str(number), "0"]
        assert flow.parameters(workflow, f"b/{number}")["env"] == {"ITEM": written}


def test_values_are_literal_in_a_retry_and_in_a_copy_of_the_job(flow: Flows) -> None:
    workflow = flow.submit("a", f"b, {uses('${a.value}')}")
    flow.look(workflow)
    flow.done(workflow, "a", value="a{unit}b")
    flow.failed(workflow, "b")
    assert flow.steer(workflow, "retry").status_code == 200
    flow.look(workflow)
    assert flow.states(workflow)["b"] == "queued" and words_of(flow, workflow, "b") == ["echo", "a{unit}b"]
    copied = {"type": "command", "parameters": flow.parameters(workflow, "b")}
    job = flow.ask("POST", "/api/submit", copied).json()["job_id"]
    assert arguments(flow, job) == ["echo", "a{unit}b"]


def test_an_escaped_reference_is_the_text_also_where_it_looks_like_a_placeholder(flow: Flows) -> None:
    text = workflow_text(f"a, {uses('$${item}')}", "b, action_type: command, command: '$${item}'")
    assert flow.post(text, "/api/workflows/validate").json()["valid"]
    workflow = flow.submit(f"a, {uses('$${item}')}", "b, action_type: command, command: '$${item}'")
    flow.look(workflow)
    assert words_of(flow, workflow, "a") == ["echo", "${item}"]
    assert words_of(flow, workflow, "b") == ["/bin/sh", "-c", "${item}"]


# -- foreach --------------------------------------------------------------------------------------------------------


def test_foreach_is_a_job_for_each_item_and_gives_a_list(flows: Flows) -> None:
    each = 'b, action_type: command, foreach: "${a.value}", command: [run, "${item.n}", "${index}"]'
    workflow = flows.submit("a", each, f"c, {uses('${b.results.1.value}')}", "d, dependencies: [b]")
    flows.look(workflow)
    flows.done(workflow, "a", value=[{"n": 5}, {"n": 6}])
    assert flows.parameters(workflow, "b/1")["command"] == ["run", "6", "1"]
    assert flows.states(workflow) == {"a": "done", "b": "queued", "c": "waiting", "d": "waiting"}
    flows.done(workflow, "b/0", value="x")
    detail = flows.ask("GET", f"/api/workflows/{workflow}/actions/b").json()
    assert detail["items"] == {"done": 1, "total": 2} and [one["state"] for one in detail["item_jobs"]] == [
        "done",
        "queued",
    ]
    flows.done(workflow, "b/1", value="y")
    assert flows.states(workflow) == {"a": "done", "b": "done", "c": "queued", "d": "queued"}
    assert flows.parameters(workflow, "c")["command"] == ["echo", "y"]


def test_foreach_needs_a_list_within_bounds(flow: Flows, monkeypatch: pytest.MonkeyPatch) -> None:
    each = 'b, action_type: command, foreach: "${a.value}", command: [run]'
    workflow, other = flow.submit("a", each), flow.submit("a", each)
    flow.look(workflow)
    flow.done(workflow, "a", value=7)
    assert "must be a list of at most 9998 items (with all actions 10000); got a int" in flow.errors(workflow)["b"]
    monkeypatch.setattr(engine, "MAX_ACTIONS", 5)
    flow.look(other)
    flow.done(other, "a", value=[1, 2, 3, 4])
    assert "got a list of 4" in flow.errors(other)["b"]


def test_foreach_over_nothing_is_done(flow: Flows) -> None:
    workflow = flow.submit("a, action_type: command, foreach: [], command: [run]", f"b, {uses('${a.count}')}")
    flow.look(workflow)
    assert flow.states(workflow) == {"a": "done", "b": "queued"}
    assert flow.parameters(workflow, "b")["command"] == ["echo", "0"]


def test_ids_of_jobs_of_items_and_actions_are_never_the_same(flow: Flows) -> None:
    names = ["a, foreach: [1, 2]", "a-1", "a-1-1", "1-a"]
    workflow = flow.submit(*names)
    flow.look(workflow)
    assert len(flow.jobs()) == 5 and set(flow.states(workflow).values()) == {"queued"}


def test_an_item_that_fails_fails_the_action_once_all_have_ended(flows: Flows) -> None:
    workflow = flows.submit("a, foreach: [1, 2, 3]", "b, dependencies: [a]")
    flows.look(workflow)
    flows.failed(workflow, "a/1")
    assert flows.states(workflow) == {"a": "queued", "b": "waiting"}
    flows.done(workflow, "a/0", "a/2")
    assert flows.states(workflow) == {"a": "failed", "b": "skipped"}
    assert flows.steer(workflow, "retry").status_code == 200
    flows.look(workflow)
    assert flows.states(workflow) == {"a": "queued", "b": "waiting"} and len(flows.jobs()) == 3
    flows.done(workflow, "a/1")
    flows.done(workflow, "b")
    assert flows.row(workflow)["state"] == "done"


# -- failures and retries -------------------------------------------------------------------------------------------


def test_a_failed_action_skips_what_comes_after_and_retry_goes_on_from_it(flows: Flows) -> None:
    workflow = flows.submit(
        "a", "b, dependencies: [a]", "c, dependencies: [b]", f"d, {uses('${b.value}')}", "e, dependencies: [d]", "f"
    )
    flows.look(workflow)
    flows.done(workflow, "a", "f")
    flows.failed(workflow, "b")
    assert flows.states(workflow) == {
        "a": "done",
        "b": "failed",
        "c": "skipped",
        "d": "skipped",
        "e": "skipped",
        "f": "done",
    }
    row = flows.row(workflow)
    assert row["state"] == "failed" and row["error"].startswith("b")
    before = flows.jobs()
    assert flows.steer(workflow, "retry").json()["attempt"] == 2
    flows.look(workflow)
    assert flows.states(workflow) == {
        "a": "done",
        "b": "queued",
        "c": "blocked",
        "d": "waiting",
        "e": "waiting",
        "f": "done",
    }
    assert flows.jobs() == before, "the jobs go on: nothing is submitted again"
    flows.done(workflow, "b", value="z")
    flows.done(workflow, "c", "d")
    flows.done(workflow, "e")
    assert flows.row(workflow)["state"] == "done" and flows.job_of(workflow, "d") == f"w-{workflow}-d-2"


@pytest.mark.parametrize("of", ["workflow", "job"])
def test_a_retry_that_is_done_before_its_children_are_brought_back_ends_nothing(flow: Flows, of: str) -> None:
    """The leader restores the children in its next round, before which a short job finishes."""
    workflow = flow.submit("a", "b, dependencies: [a]", f"c, {uses('${b.value}')}")
    flow.look(workflow)
    flow.failed(workflow, "a")
    assert flow.row(workflow)["state"] == "failed"
    job = flow.job_of(workflow, "a")
    path = f"/api/workflows/{workflow}/retry" if of == "workflow" else f"/api/jobs/{job}/retry"
    assert flow.ask("POST", path).status_code == 200
    look_without_waking(flow, workflow)
    flow.end(job)
    look_without_waking(flow, workflow)
    assert flow.row(workflow)["state"] == "running"
    assert flow.states(workflow) == {"a": "done", "b": "blocked", "c": "waiting"}
    flow.look(workflow)
    flow.done(workflow, "b", value=1)
    flow.done(workflow, "c")
    assert flow.row(workflow)["state"] == "done"


def look_without_waking(flow: Flows, workflow: str) -> None:
    while flow.engine.look(workflow).again:
        pass


def test_retry_submits_anew_what_was_refused(flow: Flows) -> None:
    workflow = flow.submit("a, action_type: command, command: [x], files: nix")
    flow.look(workflow)
    assert "artifact nix does not exist" in flow.errors(workflow)["a"]
    assert flow.row(workflow)["state"] == "failed"
    flow.put_file(b"data")
    from tests.unit.artifact_bench import sha_of

    assert flow.commit(["f", "data", 4, sha_of(b"data")], name="nix").status_code == 200
    flow.steer(workflow, "retry")
    flow.look(workflow)
    assert flow.states(workflow) == {"a": "queued"} and flow.jobs() == [f"w-{workflow}-a-2"]


def test_a_job_that_is_retried_by_hand_revives_its_workflow(flows: Flows) -> None:
    workflow = flows.submit("a", "b, dependencies: [a]")
    flows.look(workflow)
    flows.failed(workflow, "a")
    assert flows.row(workflow)["state"] == "failed"
    assert flows.ask("POST", f"/api/jobs/{flows.job_of(workflow, 'a')}/retry").status_code == 200
    assert workflow in flows.store.workflows.take_due(10)
    flows.look(workflow)
    assert flows.row(workflow)["state"] == "running"
    flows.done(workflow, "a")
    flows.done(workflow, "b")
    assert flows.row(workflow)["state"] == "done"


# -- approvals ------------------------------------------------------------------------------------------------------


def test_an_approval_waits_for_a_person(flows: Flows) -> None:
    workflow = flows.submit("a", "ok, action_type: approve, message: go?, dependencies: [a]", "b, dependencies: [ok]")
    flows.look(workflow)
    early = flows.steer(workflow, "actions/ok/approve")
    assert early.status_code == 409 and "ok waits for a" in early.json()["detail"]
    flows.done(workflow, "a")
    row = flows.row(workflow)
    assert (row["state"], row["counts"]) == ("waiting", {"done": 1, "approval": 1, "waiting": 1})
    assert flows.steer(workflow, "actions/a/approve").status_code == 404
    for _ in range(2):  # the second one changes nothing
        assert flows.steer(workflow, "actions/ok/approve").json()["state"] == "running"
    flows.look(workflow)
    assert flows.states(workflow) == {"a": "done", "ok": "done", "b": "queued"}
    lines = [json.loads(line) for line in flows.ask("GET", "/api/audit?after=0").json()["lines"]]
    assert [line["subject"] for line in lines if line.get("action") == "approve"] == [f"{workflow}/ok"]
    late = flows.steer(workflow, "actions/ok/reject")
    assert late.status_code == 409 and "ok is done; it cannot be rejected now" in late.json()["detail"]


def test_a_rejected_action_fails_and_a_retry_asks_again(flows: Flows) -> None:
    workflow = flows.submit("ok, action_type: approve, message: go?", "b, dependencies: [ok]")
    flows.look(workflow)
    [question, _] = flows.row(workflow)["actions"]
    assert (question["state"], question["message"]) == ("approval", "go?")
    for _ in range(2):
        assert flows.steer(workflow, "actions/ok/reject").status_code == 200
    flows.look(workflow)
    row = flows.row(workflow)
    assert flows.states(workflow) == {"ok": "failed", "b": "skipped"}
    assert row["error"].startswith("ok: rejected") and row["actions"][0]["error"].startswith("rejected")
    assert flows.steer(workflow, "retry").status_code == 200
    flows.look(workflow)
    assert flows.states(workflow) == {"ok": "approval", "b": "waiting"}


def test_a_failure_names_the_item_and_its_reason(flows: Flows) -> None:
    each = "square, action_type: command, foreach: [2, 3], command: [run]"
    workflow = flows.submit(each, "report, dependencies: [square]")
    flows.look(workflow)
    job = flows.ask("GET", f"/api/jobs/{flows.job_of(workflow, 'square/1')}").json()
    assert job["name"] == job["title"] == "test / square [1]"
    flows.failed(workflow, "square/1")
    flows.done(workflow, "square/0")
    row = flows.row(workflow)
    assert row["error"] == "square: item 1: exit code 3"
    assert row["created"] <= row["actions"][0]["started"] <= row["actions"][0]["ended"] <= row["ended"]
    assert row["actions"][0]["error"] == row["error"].removeprefix("square: ")
    assert row["actions"][1]["error"] == "square failed"
    detail = flows.ask("GET", f"/api/workflows/{workflow}/actions/square").json()
    assert detail["error"] == row["actions"][0]["error"]


# -- artifacts ------------------------------------------------------------------------------------------------------


def test_values_are_published_and_deleted_as_artifacts(flow: Flows) -> None:
    workflow = flow.submit(
        "a",
        'p, action_type: artifact_publish, name: out, value: {got: "${a.value}"}',
        'q, action_type: artifact_publish, name: again, artifact: "${p.artifact}"',
        "d, action_type: artifact_delete, artifact: out, dependencies: [q]",
        "e, action_type: artifact_delete, artifact: nix, dependencies: [d]",
    )
    flow.look(workflow)
    assert flow.ask("GET", "/api/artifacts/out").status_code == 404
    flow.done(workflow, "a", value=[1, 2])
    assert flow.row(workflow)["state"] == "done"
    result = flow.ask("GET", f"/api/workflows/{workflow}/actions/p").json()["result"]
    assert result["name"] == "out" and len(result["artifact"]) == 64
    assert flow.ask("GET", "/api/artifacts/again").status_code == 404, "it was one artifact, and deleted"


# -- the specification's --------------------------------------------------------------------------------------------


def test_references_of_the_specifications_pipeline_resolve(flow: Flows, monkeypatch: pytest.MonkeyPatch) -> None:
    """The actions are replaced by fakes, because other tests cover their steps."""
    seen: list[tuple[str, dict[str, Any]]] = []

    def stand_in(name: str, gives: str) -> None:
        def run(parameters: Any, _host: Any) -> dict[str, Any]:
            seen.append((name, dict(parameters)))
            return {gives: f"chunk-{len(seen):012x}"}

        monkeypatch.setitem(action_types.TYPES, name, replace(action_types.TYPES[name], run=run))
        monkeypatch.delitem(expansions.EXPANSIONS, name)

    stand_in("data_create", "chunk_id")
    stand_in("inference", "output")
    stand_in("data_transfer", "chunk_id")
    answer = flow.post(PIPELINE)
    workflow = answer.json()["workflow_id"]
    flow.look(workflow)
    assert flow.row(workflow)["state"] == "done"
    assert [name for name, _ in seen] == ["data_create", "inference", "data_transfer", "inference"]
    assert seen[1][1]["input_data"] == "chunk-000000000001"
    assert seen[2][1]["data_id"] == "chunk-000000000002"
    assert seen[3][1]["input_data"] == "chunk-000000000003"


# -- cancel, delete, limits -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["a", "z"])
def test_cancel_ends_all_its_jobs_and_retry_goes_on(flows: Flows, first: str) -> None:
    workflow = flows.submit(first, f"b, dependencies: [{first}]", f"c, {uses('${b.value}')}", "d")
    flows.look(workflow)
    flows.done(workflow, "d")
    assert flows.steer(workflow, "cancel").json()["state"] == "cancelling"
    flows.look(workflow)
    states = flows.states(workflow)
    assert states["d"] == "done" and set(states.values()) <= {"done", "cancelled", "skipped"}
    assert flows.row(workflow)["state"] == "cancelled"
    assert flows.steer(workflow, "cancel").status_code == 200, "a call that is repeated changes nothing"
    flows.steer(workflow, "retry")
    flows.look(workflow)
    assert flows.states(workflow) == {first: "queued", "b": "blocked", "c": "waiting", "d": "done"}
    flows.done(workflow, first)
    flows.done(workflow, "b", value=1)
    flows.done(workflow, "c")
    assert flows.row(workflow)["state"] == "done"


def test_a_workflow_that_is_cancelled_before_it_is_looked_at_submits_nothing(flow: Flows) -> None:
    workflow = flow.submit("a", "b")
    flow.steer(workflow, "cancel")
    flow.look(workflow)
    assert flow.jobs() == [] and flow.row(workflow)["state"] == "cancelled"


def test_delete_is_for_what_has_ended(flow: Flows) -> None:
    workflow = flow.submit("a")
    flow.look(workflow)
    refused = flow.ask("DELETE", f"/api/workflows/{workflow}")
    assert refused.status_code == 409 and "cancel it first" in refused.json()["detail"]
    flow.done(workflow, "a")
    assert flow.ask("DELETE", f"/api/workflows/{workflow}").status_code == 204
    assert flow.ask("GET", f"/api/workflows/{workflow}").status_code == 404
    left = {name.decode() for name in flow.store.client.keys("ct:workflow*")}
    assert left <= {"ct:workflowsdue"}, left


def test_a_workflow_outlives_its_jobs_and_is_purged_in_time(flow: Flows) -> None:
    workflow = flow.submit("a", "b, foreach: [1]", "c, dependencies: [a]")
    flow.look(workflow)
    flow.failed(workflow, "a")
    flow.done(workflow, "b/0")
    for job in flow.jobs():
        flow.ask("DELETE", f"/api/jobs/{job}")
    flow.ask("DELETE", f"/api/jobs/w-{workflow}-a-1")
    assert flow.states(workflow) == {"a": "failed", "b": "done", "c": "skipped"}
    flow.steer(workflow, "retry")
    flow.look(workflow)
    assert flow.states(workflow) == {"a": "queued", "b": "done", "c": "blocked"}
    assert flow.job_of(workflow, "a") == f"w-{workflow}-a-2"
    flow.done(workflow, "a")
    flow.done(workflow, "c")
    flow.store.client.zadd("ct:workflowexpiry", {workflow: 1})
    assert flow.store.workflows.purge(10) == 1
    assert flow.ask("GET", "/api/workflows").json()["workflows"] == []


def test_a_repeated_submission_is_one_workflow(flow: Flows) -> None:
    text = workflow_text("a")
    first, again = (flow.post(text, key="k").json()["workflow_id"] for _ in range(2))
    assert first == again
    other = flow.post(workflow_text("b"), key="k")
    assert other.status_code == 409 and other.json()["field"] == "Idempotency-Key"
    assert flow.post(text, key="k2").json()["workflow_id"] != first


def test_programs_need_the_scope_run(flow: Flows) -> None:
    token = flow.token("acme", "read", "submit")
    refused = flow.post(workflow_text("a"), token=token)
    assert refused.status_code == 403 and "line 3: a runs a program" in refused.json()["detail"]
    plain = workflow_text("a, action_type: collatz, start_number: 1, number_count: 5")
    assert flow.post(plain, token=token).status_code == 202


def test_other_tenants_see_and_steer_nothing(flow: Flows) -> None:
    workflow = flow.submit("ok, action_type: approve")
    stranger = flow.token("acme", "read", "submit", "run")
    calls = [
        ("GET", ""),
        ("GET", "/actions/ok"),
        ("POST", "/cancel"),
        ("POST", "/retry"),
        ("DELETE", ""),
        ("POST", "/actions/ok/approve"),
        ("POST", "/actions/ok/reject"),
    ]
    for method, path in calls:
        assert flow.ask(method, f"/api/workflows/{workflow}{path}", token=stranger).status_code == 404, path
    assert flow.ask("GET", "/api/workflows", token=stranger).json()["workflows"] == []
    reader = flow.token("default", "read")
    assert flow.ask("POST", f"/api/workflows/{workflow}/cancel", token=reader).status_code == 403
    assert flow.ask("GET", f"/api/workflows/{workflow}", token=reader).status_code == 200


def test_jobs_are_those_of_the_tenant_and_wait_for_its_caps(flow: Flows) -> None:
    token = flow.token("acme", "read", "submit", "run")
    flow.ask("PUT", "/api/tenants/acme", {"weight": 1, "max_jobs": 1})
    workflow = flow.submit("a", "b", token=token)
    flow.look(workflow)
    jobs = [flow.ask("GET", f"/api/jobs/{job}").json() for job in flow.jobs()]
    assert [job["tenant"] for job in jobs] == ["acme", "acme"] and [job["state"] for job in jobs] == ["queued"] * 2
    flow.done(workflow, "a")
    flow.done(workflow, "b")
    assert flow.row(workflow)["state"] == "done"


def test_a_full_queue_delays_and_loses_nothing(any_redis_url: str, tmp_path: Path) -> None:
    flow = Flows(any_redis_url, tmp_path / "store", max_queued=2)
    workflow = flow.submit("a", "b", "c")
    flow.look(workflow)
    row = flow.row(workflow)
    assert row["state"] == "running" and "MAX_QUEUED" in row["waiting_because"]
    assert flow.engine.look(workflow).soon
    flow.done(workflow, "a")
    assert flow.states(workflow) == {"a": "done", "b": "queued", "c": "queued"}
    assert flow.row(workflow)["waiting_because"] is None
    flow.close()


def test_the_number_and_bytes_of_workflows_are_bounded(flow: Flows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflows, "MAX_LIVE", 2)
    flow.submit("a")
    flow.submit("a")
    refused = flow.post(workflow_text("a"))
    assert refused.status_code == 429 and "2 active workflows" in refused.json()["detail"]
    monkeypatch.setattr(workflows, "MAX_LIVE", 100)
    monkeypatch.setattr(workflows, "MAX_STORED", 150)
    assert flow.post(workflow_text("a")).status_code == 429


def test_jobs_of_a_workflow_that_goes_on_do_not_expire(flows: Flows) -> None:
    late = f"b, {uses('${a.value}')}, dependencies: [ok]"
    workflow = flows.submit("a", "ok, action_type: approve, dependencies: [a]", late)
    flows.look(workflow)
    flows.done(workflow, "a", value=5)
    job = flows.job_of(workflow, "a")
    flows.store.client.zadd("ct:expiry", {job: 1})
    flows.store.fleet.sweep(60)
    assert flows.steer(workflow, "actions/ok/approve").status_code == 200
    flows.look(workflow)
    assert flows.parameters(workflow, "b")["command"] == ["echo", "5"]
    flows.done(workflow, "b")
    flows.store.client.zadd("ct:expiry", {job: 1})
    flows.store.fleet.sweep(60)
    assert flows.ask("GET", f"/api/jobs/{job}").status_code == 200


def test_a_tenant_with_workflows_is_not_removed(flow: Flows) -> None:
    token = flow.token("acme", "read", "submit", "run")
    workflow = flow.submit("ok, action_type: approve", token=token)
    refused = flow.ask("DELETE", "/api/tenants/acme")
    assert refused.status_code == 409 and "has workflows" in refused.json()["detail"]
    flow.steer(workflow, "cancel")
    flow.look(workflow)
    assert flow.ask("DELETE", f"/api/workflows/{workflow}").status_code == 204
    assert "has valid tokens" in flow.ask("DELETE", "/api/tenants/acme").json()["detail"]
