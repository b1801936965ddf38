"""Tests models over HTTP and in workflows: registration, download, copies, moves, deletion and ownership."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator import locations
from coordinator.artifacts import weights
from coordinator.locations import Location
from coordinator.workflows.documents import expansions, validation
from tests.unit.models_bench import WEIGHTS, Pool
from tests.unit.test_workflow_texts import DEPLOYMENT, complaint
from tests.unit.workflow_bench import workflow_text

SOURCE = "https://example.org/tiny.gguf"


# -- places ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("disk", Location("", "disk")),
        ("node1:disk", Location("node1", "disk")),
        ("a.b_c-d:dram", Location("a.b_c-d", "dram")),
        ("node1:gpu0", Location("node1", "gpu0")),
        ("n:gpu17", Location("n", "gpu17")),
    ],
)
def test_a_place_is_read_and_written_the_same(text: str, place: Location) -> None:
    assert locations.parse(text, ("disk", "dram", "gpu")) == place and str(place) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "dram",
        "gpu0",
        ":disk",
        "node1:",
        "node1:disk2",
        "node1:gpu",
        "node1:gpu007",
        "node1:gpu100",
        "../x:disk",
        "a:b:disk",
        "node1:disk\n",
        "n" * 49 + ":disk",
        7,
        None,
        ["disk"],
        "node1:cpu",
    ],
)
def test_what_is_no_place_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match=r"must be disk|must include a host"):
        locations.parse(text, ("disk", "dram", "gpu"))


def test_a_location_can_omit_its_host() -> None:
    assert locations.parse("gpu0", ("gpu", "cpu"), any_host=True) == Location("", "gpu0")
    assert locations.parse("dram", ("disk", "dram"), any_host=True) == Location("", "dram")


def test_a_device_without_a_host_is_on_the_only_host_with_a_runner(pool: Pool) -> None:
    pool.put_model("tiny")
    none = pool.ask("POST", "/api/v1/models/tiny/copy", {"target_device": "dram"})
    assert none.status_code == 422 and none.json()["field"] == "target_device"
    assert "must include a host, such as HOST:dram; the cluster has no host with a runner" in none.json()["detail"]
    pool.add_runners("node1")
    pool.store.fleet.heartbeat("cpu-1", pool.store.fleet.birth(), {"device": "cpu", "host": "laptop"})
    pool.done(pool.begin("models/tiny/copy", {"target_device": "dram"}), "copy--bring")
    assert pool.model("tiny")["locations"] == ["disk", "node1:dram"]
    moved = pool.begin("models/tiny/move", {"source_device": "dram", "target_device": "disk"})
    assert pool.row(moved)["state"] == "done" and pool.model("tiny")["locations"] == ["disk"]
    pool.add_runners("node2")
    several = pool.ask("POST", "/api/v1/data", {"source": SOURCE, "device": "dram"})
    assert several.status_code == 422 and "the hosts with a runner are node1, node2" in several.json()["detail"]


@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    [
        ("POST", "/api/v1/models/tiny/download", {"source": SOURCE, "target_device": "no:disk"}, "target_device"),
        ("POST", "/api/v1/models/tiny/move", {"source_device": "disk", "target_device": "no:gpu0"}, "target_device"),
        ("POST", "/api/v1/data", {"source": SOURCE, "device": "no:dram"}, "device"),
        ("POST", "/api/v1/services", {"model_name": "tiny", "device": "no:gpu0"}, "device"),
        ("POST", "/api/services", {"name": "s", "model": "tiny", "requirements": {"host": "no"}}, "requirements.host"),
        ("POST", "/api/profiles", {"name": "p", "hosts": ["node1", "no"]}, "hosts"),
        ("GET", "/api/hosts/no", None, "host"),
    ],
)
def test_a_host_that_does_not_exist_is_refused_with_a_list_of_hosts(
    pool: Pool, method: str, path: str, body: Any, field: str
) -> None:
    pool.put_model("tiny")
    pool.add_runners("node2", "node1")
    answer = pool.ask(method, path, body)
    assert (answer.status_code, answer.json()["field"]) == (404, field), answer.text
    assert "host no does not exist; the hosts are node1, node2" in answer.json()["detail"]


def test_a_copy_on_a_lost_host_can_be_moved_and_deleted(pool: Pool) -> None:
    pool.put_model("tiny")
    pool.store.artifacts.hold("default", pool.model("tiny")["artifact_id"], "place:lost:disk")
    pool.store.artifacts.hold("default", pool.model("tiny")["artifact_id"], "place:lost:dram")
    pool.begin("models/tiny/move", {"source_device": "lost:disk", "target_device": "disk"})
    assert pool.model("tiny")["locations"] == ["disk", "lost:dram"]
    assert pool.ask("DELETE", "/api/v1/models/tiny?device=dram").status_code == 204
    assert pool.model("tiny")["locations"] == ["disk"]


def test_the_address_of_a_models_page_downloads_the_model(pool: Pool) -> None:
    assert pool.ask("PUT", "/api/secrets/HF_TOKEN", {"value": "x"}).is_success
    workflow = pool.begin("models/m/download", {"source": "https://huggingface.co/Qwen/Qwen3-0.6B"})
    fetch = pool.parameters(workflow, "download--fetch")
    assert (fetch["command"][3:], fetch["secrets"]) == (["hf://Qwen/Qwen3-0.6B", "-", "model"], ["HF_TOKEN"])
    pool.leave(workflow, "download--fetch", {"model/m.gguf": WEIGHTS})
    assert pool.model("m")["source"] == "hf://Qwen/Qwen3-0.6B"


# -- what there is ----------------------------------------------------------------------------------------------------


def test_models_are_artifacts_with_weights_and_a_name_and_are_read_once(both: Pool) -> None:
    first = both.put_model("tiny")
    both.put_model("deep", path="a/b.SafeTensors")
    both.put("results", {"table.csv": b"1,2"})
    both.put_model("chunk-0")
    both.put_model("")
    rows = both.models()
    assert [row["model_name"] for row in rows] == ["deep", "tiny"]
    assert rows[1] | {"created": ""} == {
        "model_name": "tiny",
        "type": "",
        "source": "",
        "status": "ready",
        "bytes": len(WEIGHTS),
        "locations": ["disk"],
        "weights": ["tiny.gguf"],
        "services": [],
        "artifact_id": first,
        "created": "",
    }
    asked, read = [], both.trees.entries
    both.trees.entries = lambda *given: asked.append(given) or read(*given)  # type: ignore[func-returns-value,method-assign]
    assert both.models() == rows and not asked, "no manifest is read twice"
    assert both.model("tiny") == rows[1]
    page = both.ask("GET", "/api/v1/models?limit=2").json()
    assert [row["model_name"] for row in page["models"]] == ["deep"] and page["cursor"] == "deep"
    page = both.ask("GET", "/api/v1/models?limit=2&cursor=deep").json()
    assert [row["model_name"] for row in page["models"]] == ["tiny"] and "cursor" not in page


def test_a_model_is_its_tenants_alone(pool: Pool) -> None:
    pool.put_model("tiny")
    other = pool.token("team", "read", "submit", "run")
    assert pool.models(token=other) == []
    for method, path, body in (
        ("GET", "tiny", None),
        ("DELETE", "tiny", None),
        ("POST", "tiny/copy", {"target_device": "h:disk"}),
        ("POST", "tiny/move", {"target_device": "h:disk"}),
    ):
        answer = pool.ask(method, f"/api/v1/models/{path}", body, token=other)
        assert (answer.status_code, answer.json()["field"]) == (404, "model_name"), path
    assert pool.ask("POST", "/api/v1/models/tiny/download", {"source": SOURCE}, token=other).status_code == 202
    assert pool.model("tiny")["status"] == "ready", "the other's download is the other's"


def test_who_may_not_run_programs_downloads_nothing(pool: Pool) -> None:
    reader, maker = pool.token("default", "read"), pool.token("default", "read", "submit")
    body = {"model_name": "m", "source": SOURCE}
    assert pool.ask("POST", "/api/v1/models", body, token=reader).status_code == 403
    assert pool.ask("POST", "/api/v1/models", body, token=maker).status_code == 201
    for path, fields in (
        ("download", {}),
        ("move", {"target_device": "h:disk"}),
        ("copy", {"target_device": "h:disk"}),
    ):
        assert pool.ask("POST", f"/api/v1/models/m/{path}", fields, token=maker).status_code == 403
    refused = pool.post(workflow_text("d, action_type: download, model_name: m, target_device: disk"), token=maker)
    assert refused.status_code == 403 and "scope run" in refused.json()["detail"]


# -- register ---------------------------------------------------------------------------------------------------------


def test_a_model_is_registered_and_downloaded_from_there(pool: Pool) -> None:
    made = pool.ask("POST", "/api/v1/models", {"model_name": "qwen", "type": "llm", "source": SOURCE})
    assert made.status_code == 201, made.text
    row = made.json()
    assert (row["status"], row["locations"], row["bytes"], row["source"]) == ("registered", [], 0, SOURCE)
    workflow = pool.begin("models/qwen/download", {"target_device": "disk"})
    command = pool.parameters(workflow, "download--fetch")["command"]
    assert command[:2] == ["python3", "-c"] and command[3:] == [SOURCE, "-", "model"]
    pool.leave(workflow, "download--fetch", {"model/tiny.gguf": WEIGHTS, "model/config.json": b"{}"})
    assert pool.row(workflow)["state"] == "done", pool.errors(workflow)
    row = pool.model("qwen")
    assert (row["status"], row["weights"], row["source"]) == ("ready", ["tiny.gguf"], SOURCE)
    assert pool.files("qwen") == [weights.ABOUT, "config.json", "tiny.gguf"], "its files lie plainly"
    again = pool.ask("POST", "/api/v1/models", {"model_name": "qwen", "type": "mlm", "source": SOURCE + "2"}).json()
    assert (again["status"], again["type"], again["source"], again["weights"]) == (
        "ready",
        "mlm",
        SOURCE + "2",
        ["tiny.gguf"],
    )


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"model_name": "Q", "source": SOURCE}, "model_name"),
        ({"model_name": "q"}, "source"),
        ({"model_name": "q", "source": "ftp://x/y"}, "source"),
        ({"model_name": "q", "source": "file:///etc"}, "source"),
        ({"model_name": "q", "source": "https://me:word@x/y"}, "source"),
        ({"model_name": "q", "source": "https://x/m.bin?a=1"}, "source"),
        ({"model_name": "q", "source": "https://x/" + "y" * 3000}, "source"),
        ({"model_name": "q", "source": SOURCE, "type": ""}, "type"),
        ({"model_name": "q", "source": SOURCE, "x": 1}, "x"),
        ({"model_name": "0" * 8, "source": SOURCE}, "name"),
    ],
)
def test_what_cannot_be_registered_is_refused_by_its_field(pool: Pool, body: Any, field: str) -> None:
    answer = pool.ask("POST", "/api/v1/models", body)
    assert (answer.status_code, answer.json()["field"]) == (422, field), answer.text
    assert pool.models() == []


def test_a_name_of_something_else_is_not_taken_over(pool: Pool) -> None:
    pool.put("results", {"table.csv": b"1,2"})
    answer = pool.ask("POST", "/api/v1/models", {"model_name": "results", "source": SOURCE})
    assert (answer.status_code, answer.json()["field"]) == (409, "model_name")
    assert pool.files("results") == ["table.csv"]


def test_a_file_that_somebody_else_wrote_in_the_place_of_ours_is_nothing(pool: Pool) -> None:
    for number, text in enumerate((b"[", b"7", b'{"source": 7}', b'{"source": "file:///x"}', b'{"type": {}}', b"{}")):
        pool.put(f"m{number}", {weights.ABOUT: text, "w.gguf": WEIGHTS})
    assert {(row["source"], row["status"]) for row in pool.models()} == {("", "ready")} and len(pool.models()) == 6


# -- download, copy, move, delete -------------------------------------------------------------------------------------


def test_a_download_of_what_nobody_registered_needs_a_source(pool: Pool) -> None:
    pool.put_model("tiny")
    answer = pool.ask("POST", "/api/v1/models/tiny/download", {})
    assert (answer.status_code, answer.json()["field"]) == (422, "source")
    workflow = pool.submit("d, action_type: download, model_name: tiny, target_device: disk")
    pool.look(workflow)
    assert "model tiny has no source" in pool.errors(workflow)["d--source"]
    assert pool.states(workflow)["d"] == "skipped"


def test_a_download_without_weights_leaves_the_model_as_it_was(pool: Pool) -> None:
    before = pool.put_model("tiny")
    workflow = pool.begin("models/tiny/download", {"source": SOURCE})
    pool.leave(workflow, "download--fetch", {"model/readme.txt": b"no weights"})
    assert "has no file that ends in .gguf" in pool.errors(workflow)["download--keep"]
    assert pool.model("tiny")["artifact_id"] == before


def test_secrets_that_a_source_may_need_are_given_where_the_tenant_has_them(pool: Pool) -> None:
    for name in ("HF_TOKEN", "AWS_REGION", "OTHER"):
        assert pool.ask("PUT", f"/api/secrets/{name}", {"value": "x"}).status_code in (200, 201, 204)
    for source, told in (("hf://o/r", ["HF_TOKEN"]), ("s3://b/k", ["AWS_REGION"]), (SOURCE, [])):
        workflow = pool.begin("models/m/download", {"source": source})
        assert pool.parameters(workflow, "download--fetch")["secrets"] == told
    workflow = pool.begin("models/m/download", {"source": SOURCE, "secrets": ["OTHER"]})
    assert pool.parameters(workflow, "download--fetch")["secrets"] == ["OTHER"]


def test_a_model_is_copied_and_moved_between_hosts(both: Pool) -> None:
    artifact = both.put_model("tiny")
    workflow = both.begin("models/tiny/copy", {"target_device": "node1:disk"})
    bring = both.parameters(workflow, "copy--bring")
    assert (bring["files"], bring["requirements"]) == (artifact, {"host": "node1"})
    assert both.model("tiny")["locations"] == ["disk"], "it is not there yet"
    both.done(workflow, "copy--bring")
    assert both.model("tiny")["locations"] == ["disk", "node1:disk"]
    move = {"source_device": "node1:disk", "target_device": "node2:dram"}
    workflow = both.begin("models/tiny/move", {**move, "keep_source": True})
    both.done(workflow, "move--bring")
    assert both.model("tiny")["locations"] == ["disk", "node1:disk", "node2:dram"]
    workflow = both.begin("models/tiny/move", move)
    both.done(workflow, "move--bring")
    assert both.row(workflow)["state"] == "done"
    assert both.model("tiny")["locations"] == ["disk", "node2:dram"]
    wrong = both.begin("models/tiny/move", move)
    assert "tiny is not at node1:disk; its locations are disk, node2:dram" in both.errors(wrong)["move--from"]


def test_a_move_keeps_its_source_until_nothing_of_its_workflow_reads_it(pool: Pool) -> None:
    pool.put_model("tiny")
    first = pool.begin("models/tiny/copy", {"target_device": "node1:disk"})
    pool.done(first, "copy--bring")
    places_ = 'model_name: tiny, source_device: "node1:disk"'
    workflow = pool.submit(
        f'm, action_type: move, {places_}, target_device: "node2:disk"',
        "slow",
        f'c, action_type: copy, {places_}, target_device: "node3:disk", dependencies: [slow]',
    )
    pool.look(workflow)
    pool.done(workflow, "m--bring")
    assert pool.states(workflow)["m"] == "done" and pool.states(workflow)["m--leave"] == "waiting"
    assert "node1:disk" in pool.model("tiny")["locations"]
    pool.done(workflow, "slow")
    pool.done(workflow, "c--bring")
    assert pool.row(workflow)["state"] == "done"
    assert pool.model("tiny")["locations"] == ["disk", "node2:disk", "node3:disk"]


def test_two_moves_of_one_place_do_not_wait_for_each_other_for_ever(pool: Pool) -> None:
    pool.put_model("tiny")
    pool.done(pool.begin("models/tiny/copy", {"target_device": "n:disk"}), "copy--bring")
    places_ = 'action_type: move, model_name: tiny, source_device: "n:disk"'
    workflow = pool.submit(f'a, {places_}, target_device: "x:disk"', f'b, {places_}, target_device: "y:disk"')
    pool.look(workflow)
    pool.done(workflow, "a--bring", "b--bring")
    assert pool.row(workflow)["state"] == "done"
    assert pool.model("tiny")["locations"] == ["disk", "x:disk", "y:disk"]


def test_a_model_is_deleted_at_one_place_or_whole_and_not_while_something_has_it(both: Pool) -> None:
    artifact = both.put_model("tiny")
    for host in ("a", "b"):
        both.done(both.begin("models/tiny/copy", {"target_device": f"{host}:disk"}), "copy--bring")
    missing = both.ask("DELETE", "/api/v1/models/tiny?device=c:disk")
    assert missing.status_code == 404 and "its locations are disk, a:disk, b:disk" in missing.json()["detail"]
    assert both.ask("DELETE", "/api/v1/models/tiny?device=a:disk").status_code == 204
    assert both.model("tiny")["locations"] == ["disk", "b:disk"]
    both.store.artifacts.hold("default", artifact, "service:s")
    held = both.ask("DELETE", "/api/v1/models/tiny")
    assert held.status_code == 409 and "is held by service:s" in held.json()["detail"]
    assert both.model("tiny")["locations"] == ["disk", "b:disk"], "a refused deletion changes nothing"
    both.store.artifacts.let_go("default", artifact, "service:s")
    assert both.ask("DELETE", "/api/v1/models/tiny").status_code == 204
    assert both.ask("GET", "/api/v1/models/tiny").status_code == 404 and both.models() == []
    [row] = both.store.artifacts.read("default", [artifact])
    assert row and all(one.startswith("job:") for one in row.holders), "the jobs that brought it keep it until they go"
    for job in row.holders:
        both.ask("DELETE", f"/api/jobs/{job.removeprefix('job:')}")
    both.trees.collect("default", artifact)
    assert both.store.artifacts.read("default", [artifact]) == [None], "nothing is left of it"


def test_what_has_the_same_files_under_another_name_stays(both: Pool) -> None:
    """Artifacts are identified by their contents, so two equal models or chunks are one artifact with two names."""
    for names in (("one", "two"), ("chunk-000000000001", "chunk-000000000002")):
        kind = "data" if names[0].startswith("chunk-") else "models"
        [artifact] = {both.put_model(name, path=f"{kind}.gguf") for name in names}
        both.store.artifacts.hold("default", artifact, "service:s")
        assert both.ask("DELETE", f"/api/v1/{kind}/{names[0]}").status_code == 204
        assert both.ask("GET", f"/api/v1/{kind}/{names[0]}").status_code == 404
        assert both.ask("GET", f"/api/v1/{kind}/{names[1]}").status_code == 200
        assert both.ask("DELETE", f"/api/v1/{kind}/{names[1]}").status_code == 409, "the last one, which a service has"


def test_a_model_that_is_downloaded_anew_leaves_nothing_of_the_one_before(pool: Pool) -> None:
    old = pool.put_model("tiny", b"old weights")
    copied = pool.begin("models/tiny/copy", {"target_device": "a:disk"})
    pool.done(copied, "copy--bring")
    workflow = pool.begin("models/tiny/download", {"source": SOURCE})
    pool.leave(workflow, "download--fetch", {"model/tiny.gguf": WEIGHTS})
    row = pool.model("tiny")
    assert row["artifact_id"] != old and row["locations"] == ["disk"]
    [before] = pool.store.artifacts.read("default", [old])
    assert before is None or not locations.list_locations(before.holders)


# -- texts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "d, action_type: download, model_name: M, target_device: disk",
            "model_name: must be 1 to 64 lowercase",
        ),
        ("d, action_type: download, model_name: m, target_device: moon", "target_device: must be disk"),
        ('d, action_type: download, model_name: m, target_device: "n:gpu0"', "target_device: must be disk"),
        ("d, action_type: download, model_name: m, target_device: dram", "must include a host, such as HOST:dram"),
        ("d, action_type: download, model_name: m, target_device: disk, source: x", "source: must start with"),
        (
            "d, action_type: download, model_name: m, target_device: disk, sha256: x",
            "sha256: must be 64 lowercase",
        ),
        ("d, action_type: download, model_name: m, target_device: disk, foreach: [1]", "foreach: applies to jobs only"),
        ("m, action_type: move, model_name: m, source_device: disk", "target_device: must be disk"),
        ('m, action_type: copy, model_name: m, source_device: disk, target_device: "n:gpu0"', "target_device: must be"),
        ("x, action_type: model.keep", "action_type: must name a type of action"),
    ],
)
def test_what_is_wrong_with_an_action_is_said_before_anything_runs(text: str, words: str) -> None:
    assert words in complaint(text)


def test_a_reference_fills_no_place(pool: Pool) -> None:
    text = 'c, action_type: download, model_name: "${a.value}", target_device: disk'
    assert "model_name: is needed before the workflow starts" in complaint("a", text)


def test_ids_of_steps_are_nobodys() -> None:
    text = "d, action_type: download, model_name: m, target_device: disk"
    assert "d--fetch is already the ID of a step of another action" in complaint(text, "d--fetch")
    long = ["x" * 30 + "1", "x" * 30 + "2"]
    made = {expansions.step_id(name, step) for name in long for step in ("source", "fetch", "keep", "leave")}
    assert len(made) == 8 and max(map(len, made)) <= 32


def test_the_steps_of_the_specifications_deployment_come_in_their_order() -> None:
    whole = validation.validate(DEPLOYMENT.encode()).document
    seen = set[str]()
    for action in whole.actions.values():
        assert seen.issuperset({*action.dependencies, *action.after_any}), action.id
        seen.add(action.id)
    assert whole.actions["load_gpu_node1--leave"].after_any == ("replicate_node2",)
