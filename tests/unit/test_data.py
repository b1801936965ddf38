"""Tests data chunks, batches and services at places, with workflows whose programs create what a test requires."""

from __future__ import annotations

import json
from typing import Any

import pytest

from coordinator.jobs.delegated_submission import Maker
from coordinator.locations import Location
from coordinator.services import model_services
from coordinator.workflows.pool_host import PoolHost
from jobs.store import keys
from jobs.store.workflows import Workflows
from tests.unit import command_runs
from tests.unit.models_bench import WEIGHTS, Pool
from tests.unit.test_workflow_texts import PIPELINE
from threads_cluster.cli import session

SOURCE = "https://example.org/prompts.jsonl"
PROMPTS = b'"once"\n{"prompt": "upon"}\n'
PLACE = 'model_name: tiny, device: "node1:gpu0"'


def created(pool: Pool, device: str = "disk", **more: Any) -> str:
    """Create a chunk like a runner, and return its ID."""
    pool.add_runners(*filter(None, [device.rpartition(":")[0]]))
    answer = pool.ask("POST", "/api/v1/data", {"source": SOURCE, "device": device}, **more)
    assert answer.status_code == 202, answer.text
    chunk, workflow = answer.json()["chunk_id"], answer.json()["task_id"]
    pool.look(workflow)
    assert pool.ask("GET", f"/api/v1/data/{chunk}").status_code == 404, "it is not there yet"
    pool.leave(workflow, "data_create--fetch", {"data/prompts.jsonl": PROMPTS})
    if device != "disk":
        pool.done(workflow, "data_create--bring")
    assert pool.row(workflow)["state"] == "done", pool.errors(workflow)
    return str(chunk)


def test_data_is_created_moved_transferred_and_deleted(both: Pool) -> None:
    chunk = created(both, "node1:dram")
    row = both.ask("GET", f"/api/v1/data/{chunk}").json()
    assert (row["device"], row["bytes"], row["locations"]) == ("node1:dram", len(PROMPTS), ["disk", "node1:dram"])
    assert both.files(chunk) == ["prompts.jsonl"] and both.models() == []
    assert both.ask("GET", "/api/v1/data").json()["chunks"] == [row]
    for verb, place in (("transfer", "node2:dram"), ("move", "node2:disk")):
        workflow = both.begin(f"data/{chunk}/{verb}", {"target_device": place})
        assert both.parameters(workflow, f"data_{verb}--bring")["requirements"] == {"host": "node2"}
        both.done(workflow, f"data_{verb}--bring")
        assert both.row(workflow)["state"] == "done"
        assert both.ask("GET", f"/api/v1/data/{chunk}").json()["locations"] == ["disk", place]
    assert both.ask("DELETE", f"/api/v1/data/{chunk}").status_code == 204
    assert both.ask("GET", f"/api/v1/data/{chunk}").status_code == 404
    assert both.ask("GET", "/api/v1/data").json() == {"chunks": []}


def test_a_repeated_request_makes_one_chunk(pool: Pool) -> None:
    body: dict[str, Any] = {"source": SOURCE}
    key: dict[str, Any] = {"Idempotency-Key": "k1"}
    first, again = (pool.ask("POST", "/api/v1/data", body, **key).json() for _ in range(2))
    assert first == again and first["chunk_id"] != pool.ask("POST", "/api/v1/data", body).json()["chunk_id"]


def test_chunks_are_listed_page_by_page(pool: Pool) -> None:
    names = [f"chunk-{number:012x}" for number in range(5)]
    for name in names:
        pool.put(name, {"a": name.encode()})
    found, cursor, pages = [], "", 0
    while pages == 0 or cursor:
        page = pool.ask("GET", f"/api/v1/data?limit=2&cursor={cursor}").json()
        found += [one["chunk_id"] for one in page["chunks"]]
        cursor, pages = page.get("cursor", ""), pages + 1
    assert (found, pages) == (names, 3)
    assert [one["chunk_id"] for one in pool.client.data.list()] == names


def test_every_step_may_be_repeated_by_the_leader_that_takes_over(pool: Pool) -> None:
    """A leader can die between a step and its record. The next leader repeats the step with the same outcome."""
    artifact = pool.put_model("tiny")
    prompts = pool.put("chunk-000000000001", {"a": PROMPTS})
    left = pool.put("left", {"outputs/0/model/tiny.gguf": WEIGHTS, "outputs/0/data/a": PROMPTS})
    maker = Maker(tenant="default", token="t1", runs_programs=True)
    moved = {"model_name": "tiny", "source_device": "disk", "target_device": "n:disk", "artifact": artifact}
    chunk = {"chunk_id": "chunk-000000000001", "artifact": prompts, "target_device": "n:dram"}
    steps: list[tuple[str, dict[str, Any]]] = [
        ("model.source", {"model_name": "tiny", "source": SOURCE}),
        ("model.batch", {"model_name": "tiny", "input_data": prompts, "name": "batch-1"}),
        ("batch.clear", {"name": "batch-1"}),
        ("model.at", moved),
        ("copy", moved),
        ("model.leave", {**moved, "source_device": "n:disk"}),
        ("data.at", {"data_id": prompts}),
        ("data_create", chunk),
        ("data_transfer", chunk),
        ("data.keep", {"chunk_id": "chunk-000000000002", "artifact": left, "folder": "outputs/0/data"}),
        ("model.keep", {"model_name": "new", "artifact": left, "folder": "outputs/0/model", "source": SOURCE}),
    ]
    for name, given in steps:
        first, again = (PoolHost(pool.app.state.coordinator.cluster, maker).step(name, given) for _ in range(2))
        assert first == again, name


def test_data_is_its_tenants_alone_and_bad_requests_name_their_field(pool: Pool) -> None:
    chunk = created(pool)
    other = pool.token("team", "read", "submit", "run")
    assert pool.ask("GET", "/api/v1/data", token=other).json() == {"chunks": []}
    for method, path in (("GET", chunk), ("DELETE", chunk), ("POST", f"{chunk}/move")):
        move = {"target_device": "n:disk"} if method == "POST" else None
        assert pool.ask(method, f"/api/v1/data/{path}", move, token=other).status_code == 404
    for body, field in (
        ({}, "source"),
        ({"source": "ftp://x"}, "source"),
        ({"source": SOURCE, "device": "n:gpu0"}, "device"),
        ({"source": SOURCE, "device": "dram"}, "device"),
        ({"source": SOURCE, "secrets": ["1x"]}, "secrets.0"),
    ):
        answer = pool.ask("POST", "/api/v1/data", body)
        assert (answer.status_code, answer.json()["field"]) == (422, field), answer.text
    assert pool.ask("GET", "/api/v1/data/chunk-x").status_code == 422
    reader = pool.token("default", "read", "submit")
    assert pool.ask("POST", "/api/v1/data", {"source": SOURCE}, token=reader).status_code == 403


def test_a_batch_has_model_prompts_and_program_in_its_folder_and_leaves_a_chunk(pool: Pool) -> None:
    pool.put_model("tiny")
    chunk = created(pool)
    text = f'i, action_type: inference, model_name: tiny, input_data: {chunk}, output_device: "node1:dram"'
    workflow = pool.submit(f"{text}, max_tokens: 7")
    pool.look(workflow)
    run = pool.parameters(workflow, "i--run")
    assert pool.files(run["files"]) == ["batch.py", "input/prompts.jsonl", "model/tiny.gguf", "packages.txt"]
    assert run["command"] == ["python3", "batch.py", "model/tiny.gguf", "7", "0.2"]
    assert run["python"] == {"requirements": "packages.txt", "module": "xllamacpp"}
    assert [name for name in pool.store.artifacts.names("default") if name.startswith("batch-")]
    pool.leave(workflow, "i--run", {"answers/answers.jsonl": b'{"text": "a", "prompt": "once"}\n'})
    pool.done(workflow, "i--bring")
    assert pool.row(workflow)["state"] == "done", pool.errors(workflow)
    given = pool.ask("GET", f"/api/workflows/{workflow}/actions/i").json()["result"]
    assert pool.ask("GET", f"/api/v1/data/{given['output']}").json()["device"] == "node1:dram"
    assert pool.files(given["output"]) == ["answers.jsonl"]
    assert not [name for name in pool.store.artifacts.names("default") if name.startswith("batch-")]


def test_a_batch_that_fails_leaves_no_name_behind(pool: Pool) -> None:
    pool.put_model("tiny")
    chunk = created(pool)
    workflow = pool.submit(f"i, action_type: inference, model_name: tiny, input_data: {chunk}, output_device: disk")
    pool.look(workflow)
    for _ in range(6):  # the attempts that it has
        if pool.states(workflow)["i--run"] == "queued":
            pool.failed(workflow, "i--run")
    assert pool.row(workflow)["state"] == "failed" and pool.states(workflow)["i"] == "skipped"
    assert not [name for name in pool.store.artifacts.names("default") if name.startswith("batch-")]


def test_a_batch_of_what_is_no_chunk_or_no_model_says_so(pool: Pool) -> None:
    pool.put_model("tiny")
    pool.put_model("safe", path="a.safetensors")
    text = "i, action_type: inference, output_device: disk"
    for rest, words in (
        ("model_name: nosuch, input_data: chunk-0", "model nosuch does not exist"),
        ("model_name: tiny, input_data: chunk-0", "artifact chunk-0 does not exist"),
    ):
        workflow = pool.submit(f"{text}, {rest}")
        pool.look(workflow)
        assert words in pool.errors(workflow)["i--batch"]


def test_the_pipeline_of_the_specification_goes_from_step_to_step(pool: Pool) -> None:
    for name in ("preprocessor", "classifier"):
        pool.put_model(name)
    workflow = pool.post(PIPELINE).json()["workflow_id"]
    pool.look(workflow)
    assert pool.parameters(workflow, "load_data--fetch")["command"][3:] == ["s3://bucket/input", "-", "data"]
    pool.leave(workflow, "load_data--fetch", {"data/input": PROMPTS})
    pool.done(workflow, "load_data--bring")
    for action, host in (("model1_process", "node1"), ("model2_process", "node2")):
        assert pool.parameters(workflow, f"{action}--run")["requirements"] == {"host": host}
        pool.leave(workflow, f"{action}--run", {"answers/answers.jsonl": b'{"text": "%s"}\n' % action.encode()})
        pool.done(workflow, f"{action}--bring")
        if action == "model1_process":
            pool.done(workflow, "transfer_data--bring")
    row = pool.row(workflow)
    assert row["state"] == "done", pool.errors(workflow)
    assert [each["device"] for each in pool.ask("GET", "/api/v1/data").json()["chunks"]].count("node2:dram") == 2


# -- services at places ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "place", "name"),
    [
        ("llama-7b", Location("node1", "gpu0"), "llama-7b-node1-gpu0"),
        ("llama-7b", Location("", "gpu0"), "llama-7b"),
        ("a.b_c", Location("Node.1", "cpu"), "a-b-c-node-1-cpu"),
        ("m" * 64, Location("n" * 48, "gpu0"), "m" * 63),
    ],
)
def test_the_name_of_a_service_follows_from_model_and_place(model: str, place: Location, name: str) -> None:
    assert model_services.name_of(model, place) == name


def report_ready(pool: Pool, name: str) -> None:
    """Report the only replica of a service as running and ready."""
    service = pool.store.services.one("default", name)
    assert service
    pool.store.services.place(service.service_id, 1, service.generation)
    job, client = f"v-{service.service_id}-1", pool.store.client
    client.hset(keys.job(job), mapping={"state": "running", "kind": "service", "tenant": "default"})
    client.hset(keys.job_lease(job), f"runner-1/{job}", "0:1:0:0:0:0:runner-1/0")
    fields: dict[str, Any] = {"state": "ready", "why": "", "key": "k" * 16}
    fields |= {"address": "127.0.0.1", "port": 9, "host": "node1"}
    assert pool.store.services.report(job, f"runner-1/{job}", {**fields, "worker": "runner-1"})


def listed(pool: Pool) -> list[str]:
    return [each["id"] for each in pool.ask("GET", "/v1/models").json()["data"]]


def test_a_model_on_a_gpu_is_asked_by_nobody_until_it_is_served(both: Pool) -> None:
    artifact = both.put_model("tiny")
    workflow = both.submit(
        'm, action_type: move, model_name: tiny, source_device: disk, target_device: "node1:gpu0"',
        f"s, action_type: serve, {PLACE}, port: 8080, dependencies: [m]",
    )
    both.look(workflow)
    assert "tiny-node1-gpu0 is waiting" in both.row(workflow)["waiting_because"]
    asked = both.ask("GET", "/api/services/tiny-node1-gpu0").json()["asked"]
    assert (asked["requirements"], asked["model"], asked["place"]) == (
        {"host": "node1", "gpus": 1},
        artifact,
        "node1:gpu0",
    )
    assert listed(both) == [] and both.model("tiny")["locations"] == ["disk"]
    service = both.store.services.one("default", "tiny-node1-gpu0")
    report_ready(both, "tiny-node1-gpu0")
    both.look(workflow)
    assert both.row(workflow)["state"] == "done", both.errors(workflow)
    assert both.model("tiny")["locations"] == ["disk", "node1:gpu0"] and both.model("tiny")["services"]
    given = both.ask("GET", f"/api/workflows/{workflow}/actions/s").json()["result"]
    assert (given["service_id"], given["url"]) == ("tiny-node1-gpu0", "/v1")
    after = both.store.services.one("default", "tiny-node1-gpu0")
    assert service and after and after.service_id == service.service_id, "it is the replica that was loaded"
    assert "unrouted" not in json.loads(after.asked)


def test_replicas_that_die_fail_the_action_that_waits_for_them(pool: Pool) -> None:
    pool.put_model("tiny")
    workflow = pool.submit("s, action_type: serve, model_name: tiny, device: cpu")
    pool.look(workflow)
    service = pool.store.services.one("default", "tiny")
    assert service and pool.store.services.note(service.service_id, failures=3, said="exit code 7")
    pool.look(workflow)
    assert "replicas of tiny fail: exit code 7" in pool.errors(workflow)["s"]


def cancel(pool: Pool, workflow: str) -> dict[str, Any]:
    """Cancel a workflow, and return it when it has finished."""
    assert pool.ask("POST", f"/api/workflows/{workflow}/cancel").status_code == 200
    pool.look(workflow)
    row = pool.row(workflow)
    assert row["state"] == "cancelled", row
    return row


def retry(pool: Pool, workflow: str) -> None:
    assert pool.ask("POST", f"/api/workflows/{workflow}/retry").status_code == 200
    pool.look(workflow)


MOVE = 'm, action_type: move, model_name: tiny, source_device: disk, target_device: "node1:gpu0"'


@pytest.mark.parametrize("action", ["s, action_type: serve, model_name: tiny, device: cpu", MOVE])
def test_a_cancelled_workflow_ends_the_service_that_it_waits_for(both: Pool, action: str) -> None:
    both.put_model("tiny")
    workflow = both.submit(action)
    both.look(workflow)
    [first] = both.store.services.of_tenant("default")
    assert cancel(both, workflow)["error"] is None
    assert [one for one in both.store.services.of_tenant("default") if not one.deleted] == []
    retry(both, workflow)
    [again] = [one for one in both.store.services.of_tenant("default") if not one.deleted]
    assert again.name == first.name and again.service_id != first.service_id
    report_ready(both, again.name)
    both.look(workflow)
    assert both.row(workflow)["state"] == "done"


def test_a_service_that_was_served_before_the_cancel_ends_and_is_served_anew_by_a_retry(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool.put_model("tiny")
    workflow = pool.submit("s, action_type: serve, model_name: tiny, device: cpu", "a, action_type: approve")
    pool.look(workflow)
    report_ready(pool, "tiny")
    pool.look(workflow)
    assert pool.states(workflow) == {"s": "done", "a": "approval"}
    settle, failures = Workflows.settle, [ConnectionResetError("the leader died")]

    def dies_once(store: Workflows, stored: Any, state: str, *given: Any, **more: Any) -> bool:
        if failures and state == "cancelled":
            raise failures.pop()
        return settle(store, stored, state, *given, **more)

    monkeypatch.setattr(Workflows, "settle", dies_once)
    pool.ask("POST", f"/api/workflows/{workflow}/cancel")
    pool.look(workflow)
    pool.engine.faults.forget(workflow)  # like a new leader
    assert pool.row(workflow)["state"] == "cancelling"
    pool.look(workflow)
    assert pool.states(workflow) == {"s": "cancelled", "a": "cancelled"} and not failures
    assert pool.store.services.one("default", "tiny") is None
    retry(pool, workflow)
    report_ready(pool, "tiny")
    pool.look(workflow)
    assert pool.states(workflow) == {"s": "done", "a": "approval"}


def test_a_cancelled_workflow_leaves_a_service_that_others_use_and_says_so(pool: Pool) -> None:
    pool.put_model("tiny")
    served = "s, action_type: serve, model_name: tiny, device: cpu"
    workflow = pool.submit(served)
    pool.look(workflow)
    service = pool.store.services.one("default", "tiny")
    assert service
    pool.store.client.hset(keys.service(service.service_id), "asked_at", service.created + 1)
    said = cancel(pool, workflow)["error"]
    assert said.startswith("service tiny remains, which was used") and said.endswith("cluster service delete tiny")
    pool.store.services.delete("default", "tiny")
    first, second = pool.submit(served), pool.submit(served)
    pool.look(first)
    pool.look(second)
    assert cancel(pool, second)["error"] is None and cancel(pool, first)["error"] is None
    assert pool.store.services.one("default", "tiny"), "it was both's: neither ends it"
    pool.store.services.delete("default", "tiny")
    pool.ask("POST", "/api/v1/services", {"model_name": "tiny", "device": "cpu"})
    third = pool.submit(served)
    pool.look(third)
    cancel(pool, third)
    assert pool.store.services.one("default", "tiny"), "the workflow has not begun it"


def test_a_workflow_that_fails_leaves_its_services_and_names_them(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pool.put_model("tiny")
    served = "s, action_type: serve, model_name: tiny, device: cpu"
    workflow = pool.submit(served, "a, dependencies: [s]", "b, dependencies: [a]")
    assert pool.row(workflow)["services"] == []
    pool.look(workflow)
    assert pool.row(workflow)["services"] == ["tiny"]
    report_ready(pool, "tiny")
    pool.look(workflow)
    pool.failed(workflow, "a")
    row = pool.row(workflow)
    assert (row["state"], row["services"]) == ("failed", ["tiny"])
    monkeypatch.setattr(session.Session, "cluster", pool.client)
    run, stays = (
        command_runs.runner(capsys, "workflow"),
        "service tiny is still running; delete it with: cluster service delete tiny",
    )
    assert stays in run("status", workflow)[2].splitlines()
    code, _, said = run("status", workflow, "--wait")
    assert code == 1 and said.splitlines()[-2:] == [stays, f"next: cluster workflow retry {workflow}"]
    other = pool.submit("a, action_type: approve")
    assert pool.row(other)["services"] == [] and pool.store.services.delete("default", "tiny")
    assert pool.row(workflow)["services"] == [] and stays not in run("status", workflow)[2]


def test_a_workflow_names_no_service_that_others_use_or_have_begun(pool: Pool) -> None:
    pool.put_model("tiny")
    served = "s, action_type: serve, model_name: tiny, device: cpu"
    first, second = pool.submit(served), pool.submit(served)
    pool.look(first)
    assert (pool.row(first)["services"], pool.row(second)["services"]) == (["tiny"], [])
    pool.look(second)
    assert (pool.row(first)["services"], pool.row(second)["services"]) == ([], [])


@pytest.mark.parametrize("runs", [False, True])
def test_a_cancelled_workflow_leaves_no_name_of_a_batch(pool: Pool, *, runs: bool) -> None:
    pool.put_model("tiny")
    chunk = created(pool)
    workflow = pool.submit(f"i, action_type: inference, model_name: tiny, input_data: {chunk}, output_device: disk")
    if runs:
        pool.look(workflow)
    else:
        while "i--batch" not in pool.store.workflows.course(workflow).records:  # type: ignore[union-attr]
            pool.engine.look(workflow)
    assert [name for name in pool.store.artifacts.names("default") if name.startswith("batch-")]
    cancel(pool, workflow)
    assert not [name for name in pool.store.artifacts.names("default") if name.startswith("batch-")]
    retry(pool, workflow)
    pool.leave(workflow, "i--run", {"answers/answers.jsonl": b"{}"})
    assert pool.row(workflow)["state"] == "done", pool.errors(workflow)
    assert not [name for name in pool.store.artifacts.names("default") if name.startswith("batch-")]


def test_models_are_served_at_places_over_http(pool: Pool) -> None:
    pool.put_model("tiny")
    pool.add_runners("node1")
    body = {"model_name": "tiny", "device": "node1:gpu0", "port": 8080}
    note = "port 8080 is not used: send requests to /v1 of the cluster, with the service's name as the model"
    expected = {"service_id": "tiny-node1-gpu0", "status": "waiting"}
    for given, placed in ((body, {**expected, "note": note}), ({**body, "port": None}, expected)):
        made = pool.ask("POST", "/api/v1/services", given)
        assert (made.status_code, made.json()) == (202, placed)
    status = pool.ask("GET", "/api/v1/services/tiny-node1-gpu0/status").json()
    assert status == {"service_id": "tiny-node1-gpu0", "status": "waiting", "replicas": 0, "url": "/v1"}
    assert pool.ask("GET", "/api/v1/services/none/status").status_code == 404
    for wrong, field, code in (
        ({"device": "node1:disk"}, "device", 422),
        ({"port": 0}, "port", 422),
        ({"model_name": "no"}, "model_name", 404),
    ):
        answer = pool.ask("POST", "/api/v1/services", {**body, **wrong})
        assert (answer.status_code, answer.json()["field"]) == (code, field), answer.text
    pool.put_model("tiny", WEIGHTS + b"2")
    other = pool.ask("POST", "/api/v1/services", body)
    assert other.status_code == 409 and "cluster service delete tiny-node1-gpu0" in other.json()["detail"]
    assert pool.ask("POST", "/api/v1/services", body, token=pool.token("default", "read", "submit")).status_code == 403
