"""Tests the output and exit codes of `cluster workflow` with a coordinator without a server."""

from __future__ import annotations

import io
import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.live import until
from tests.unit import command_runs
from tests.unit.command_runs import Run
from tests.unit.workflow_bench import Flows, workflow_text
from threads_cluster.cli import main as cli
from threads_cluster.cli import session, show
from threads_cluster.cli.commands import workflow_commands
from threads_cluster.client import resource


@pytest.fixture
def flows(any_redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Flows]:
    made = Flows(any_redis_url, tmp_path / "store")
    monkeypatch.setattr(session.Session, "cluster", made.client)
    monkeypatch.setattr(resource, "STEP_SECONDS", 0.02)
    yield made
    made.close()


@pytest.fixture
def run(flows: Flows, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return the exit code, stdout and stderr of `cluster workflow ...`."""
    return command_runs.runner(capsys, "workflow")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "flow.yaml"
    path.write_text(workflow_text("a", "ok, action_type: approve, dependencies: [a]", "b, dependencies: [ok]"))
    return path


def test_a_workflow_is_validated_submitted_looked_at_approved_and_deleted(run: Run, flows: Flows, file: Path) -> None:
    assert run("list") == (0, "", "No workflows. Submit one with: cluster workflow submit FILE\n")
    assert run("validate", file) == (0, "test: 3 actions in 3 layers, valid\n", "")
    code, out, err = run("submit", file)
    workflow = out.strip()
    assert code == 0 and err == f"3 actions; watch it with: cluster workflow status {workflow} --wait\n"
    flows.look(workflow)
    code, out, _ = run("status", workflow)
    assert code == 0 and "state     running\n" in out and "actions   1 queued, 2 waiting\n" in out
    assert [line.split() for line in out.splitlines() if line.startswith(("layer", "    1"))] == [
        ["layer", "actions", "states"],
        ["1", "1", "1", "queued"],
    ]
    flows.done(workflow, "a")
    assert run("approve", workflow, "ok") == (0, "ok approved\n", "")
    flows.look(workflow)
    flows.done(workflow, "b")
    _, listed, _ = run("list")
    assert [line.split()[:3] for line in listed.splitlines()] == [
        ["workflow", "name", "state"],
        [workflow, "test", "done"],
    ]
    assert json.loads(run("status", workflow, "--json")[1])["state"] == "done"
    assert run("retry", workflow)[0] == 2
    assert run("delete", workflow) == (0, f"{workflow} deleted\n", "")
    code, _, err = run("status", workflow)
    assert code == 2 and err == f"error: no workflow {workflow}; list them with cluster workflow list\n"
    _, _, err = run("status", "sweep")
    assert err == "error: no workflow sweep; list them with cluster workflow list\n", "its name is none of its ids"


def test_actions_whose_jobs_wait_say_why_the_first_twenty_of_them(run: Run, flows: Flows) -> None:
    names = [f"a{number:02}" for number in range(22)]
    workflow = flows.submit(*names, "last, dependencies: [a00]")
    flows.look(workflow)
    why = {each["action_id"]: each["waiting_because"] for each in flows.row(workflow)["actions"]}
    said = flows.ask("GET", f"/api/jobs/{flows.job_of(workflow, 'a00')}").json()["waiting_because"]
    assert said.startswith("no live worker serves the queue")
    assert why == dict.fromkeys(names[:20], said) | dict.fromkeys((*names[20:], "last"))
    beyond = flows.ask("GET", f"/api/workflows/{workflow}/actions/a21").json()
    assert beyond["waiting_because"] == said, "asked for alone it says why"
    _, out, _ = run("status", workflow)
    rows = {line.split()[0]: line for line in out.splitlines() if line.split()[:1] and line.split()[0] in why}
    assert said in rows["a00"] and said in rows["a19"] and said not in rows["a20"] + rows["last"]


def test_problems_are_printed_where_an_editor_finds_them(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(workflow_text("a, dependencies: [nix]", "b, action_type: nix"))
    found = f"{path}:3:35: a: dependencies: action 'nix' does not exist\n"
    code, out, _ = run("validate", path)
    assert code == 2 and out.startswith(found) and f"{path}:4:20: b: action_type: action type nix does not exist" in out
    code, out, err = run("submit", path)
    assert (code, out) == (2, "") and err.startswith(found)
    assert json.loads(run("validate", path, "--json")[1])["problems"][0]["line"] == 3


def test_a_port_of_a_served_model_gets_a_note(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "serve.yaml"
    path.write_text(workflow_text("s, action_type: serve, model_name: m, device: cpu, port: 8080"))
    code, out, err = run("validate", path)
    note = "port 8080 is not used: send requests to /v1 of the cluster, with the service's name as the model"
    assert (code, err) == (0, "") and out.endswith(f": s: port: {note}\n")


def test_many_problems_are_counted(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(workflow_text(*(f"a{number}, nix: 1" for number in range(60))))
    code, out, err = run("validate", path)
    assert code == 2 and len(out.splitlines()) == 20 and err == "and 40 more\n"


def test_files_that_cannot_be_read_or_are_too_large(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "cannot be read: No such file" in run("submit", tmp_path / "nix")[2]
    large = tmp_path / "large"
    large.write_bytes(b"x" * (workflow_commands.MAX_BYTES + 1))
    assert "the maximum" in run("validate", large)[2]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(workflow_text("a").encode())))
    assert run("validate", "-") == (0, "test: 1 action in 1 layers, valid\n", "")


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when a command has printed that a workflow is running."""
    said, say = threading.Event(), show.say

    def note(line: str) -> None:
        say(line)
        if line.startswith("running: "):
            said.set()

    monkeypatch.setattr(show, "say", note)
    return said


def led(flows: Flows, said: threading.Event, act: Callable[[str], None]) -> threading.Thread:
    """A leader that checks the first workflow, acts once it is reported as running, and ends."""

    def lead() -> None:
        [live, *_] = until(flows.store.workflows.open)
        flows.look(live)
        assert said.wait(60)
        act(live)

    said.clear()
    thread = threading.Thread(target=lead)
    thread.start()
    return thread


def test_wait_says_how_it_goes_and_ends_with_what_became_of_it(
    run: Run, flows: Flows, said: threading.Event, tmp_path: Path
) -> None:
    path = tmp_path / "flow.yaml"
    path.write_text(workflow_text("a", "b, dependencies: [a]"))

    def done(workflow: str) -> None:
        flows.done(workflow, "a")
        flows.done(workflow, "b")

    leader = led(flows, said, done)
    code, out, err = run("submit", path, "--wait")
    leader.join()
    assert (code, out) == (0, "test done: 2 done\n") and "\nrunning: " in err
    leader = led(flows, said, lambda workflow: flows.failed(workflow, "a"))
    code, out, err = run("submit", path, "--wait", "--json")
    leader.join()
    row: dict[str, Any] = json.loads(out)
    assert code == 1 and row["state"] == "failed" and [one["state"] for one in row["actions"]] == ["failed", "skipped"]
    code, out, err = run("status", row["workflow_id"], "--wait")
    assert code == 1 and out.startswith("test failed: 1 failed, 1 skipped\n")
    assert err == f"next: cluster workflow retry {row['workflow_id']}\n"
    assert run("retry", row["workflow_id"]) == (0, f"{row['workflow_id']} running\n", "")
    assert run("cancel", row["workflow_id"]) == (0, f"{row['workflow_id']} cancelling\n", "")


def test_layers_are_by_the_longest_path() -> None:
    rows = [
        {"action_id": name, "dependencies": before, "after_any": [], "state": "done"}
        for name, before in (("a", []), ("b", ["a"]), ("c", ["a", "b"]), ("d", []))
    ]
    assert [[one["action_id"] for one in layer] for layer in workflow_commands.layers(rows)] == [
        ["a", "d"],
        ["b"],
        ["c"],
    ]


def test_a_receiver_is_named_on_the_command_line(run: Run, flows: Flows, tmp_path: Path) -> None:
    file = tmp_path / "flow.yaml"
    file.write_text(workflow_text("a"))
    code, out, _ = run("submit", file, "--notify", "https://hooks.example/KEY")
    workflow = out.strip()
    assert code == 0 and "notifies  https://hooks.example/...\n" in run("status", workflow)[1]
    flows.look(workflow)
    flows.done(workflow, "a")
    [delivery] = flows.store.webhooks.listed("default", "pending", 10)
    assert (delivery.workflow, delivery.url) == (workflow, "https://hooks.example/KEY")
    for wrong, why in (("ftp://x/", "https://HOST"), ("https://m\N{LATIN SMALL LETTER U WITH DIAERESIS}ller/", "URL")):
        code, _, err = run("submit", file, "--notify", wrong)
        assert code == 2 and why in err
    scheduled = [
        "schedule",
        "add",
        "x",
        "--every",
        "1h",
        "--",
        "workflow",
        "submit",
        str(file),
        "--notify",
        "https://x/",
    ]
    with pytest.raises(SystemExit) as ended:
        cli.main(scheduled)
    assert ended.value.code == 2


def test_a_retry_says_what_begins_anew(run: Run, flows: Flows) -> None:
    workflow = flows.submit("a", "b, dependencies: [a]")
    flows.look(workflow)
    flows.failed(workflow, "a")
    assert flows.ask("DELETE", f"/api/jobs/{flows.job_of(workflow, 'a')}").status_code == 204
    code, _, err = run("retry", workflow)
    assert (code, err.splitlines()[0]) == (0, "a starts again: its job was deleted")


def test_problems_that_are_not_listed_are_counted(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "many.yaml"
    path.write_text(workflow_text(*(f"a{number}, nix: 1" for number in range(150))))
    for verb in ("validate", "submit"):
        code, _, err = run(verb, path)
        assert code and err.splitlines()[-1] == "and 130 more"
