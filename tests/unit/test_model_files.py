"""Tests `cluster serve FILE` and `cluster model list`: a served model has a name, which belongs to nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit import command_runs
from tests.unit.artifact_bench import Bench
from tests.unit.command_runs import Run
from tests.unit.models_bench import Pool
from threads_cluster.cli import model_files, session


@pytest.fixture
def bench(any_redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    made = Pool(any_redis_url, tmp_path / "store")
    monkeypatch.setattr(session.Session, "cluster", made.client)
    yield made
    made.close()


@pytest.fixture
def run(bench: Bench, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return the exit code, stdout and stderr of a command."""
    return command_runs.runner(capsys)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "tiny.gguf"
    made.write_bytes(b"GGUF, the first")
    return made


def rows(bench: Bench) -> dict[str, tuple[str, list[str]]]:
    return {row["model_name"]: (row["artifact_id"], row["services"]) for row in bench.client.models.list()}


def test_a_file_that_is_served_is_a_model_of_that_name_and_a_changed_one_takes_its_place(
    bench: Pool, run: Run, file: Path
) -> None:
    assert run("serve", file, "--name", "chat")[0] == 0
    first, served = rows(bench)["chat"]
    assert served == ["chat"] and "tiny.gguf" in run("model", "list")[1]
    file.write_bytes(b"GGUF, the second")
    sent = len(bench.bridge.asked)
    code, _, err = run("serve", file, "--name", "chat")
    assert code == 2 and "service chat already exists" in err and "cluster service delete chat" in err
    assert {one.method for one in bench.bridge.asked[sent:]} == {"GET"}, "nothing was sent, and no name has moved"
    assert run("serve", "chat", "--name", "beside")[0] == 0
    bench.client.services.delete("chat")
    code, _, err = run("serve", file, "--name", "chat")
    assert code == 0 and f"services that use the previous version, {first[:12]}, keep it" in err, err
    second, served = rows(bench)["chat"]
    assert second != first and served == ["chat"], "beside has the first one still"
    assert bench.client.artifacts.info(first)["names"] == []
    assert run("serve", file, "--name", "third")[0] == 0
    assert bench.client.artifacts.info(second)["names"] == ["chat", "third"]
    assert rows(bench)["third"][1] == ["chat", "third"], "both services have what both names are of"


def test_a_file_takes_no_name_from_what_is_no_model_or_has_a_source(bench: Pool, run: Run, file: Path) -> None:
    kept = bench.put("results", {"table.csv": b"1,2"})
    bench.client.models.register("qwen", "https://example.org/qwen.gguf")
    sent = len(bench.bridge.asked)
    code, _, err = run("serve", file, "--name", "results")
    assert code == 2 and "results is the name of an artifact without weights" in err and "--name" in err
    code, _, err = run("serve", file, "--name", "qwen")
    assert code == 2 and "from https://example.org/qwen.gguf" in err and "cluster serve qwen" in err
    assert run("serve", file, "--name", "Not A Name")[0] == 2
    assert {one.method for one in bench.bridge.asked[sent:]} == {"GET"}
    assert bench.client.artifacts.info("results")["artifact_id"] == kept


def test_a_model_has_a_name_whatever_its_service_is_called(run: Run, bench: Pool, file: Path) -> None:
    assert run("serve", file, "--name", "deadbeef")[0] == 0
    assert run("serve", file, "--name", "chunk-0")[0] == 0
    assert list(rows(bench)) == ["model-chunk-0", "model-deadbeef"]
    assert model_files.model_name("decaf") == "decaf" and len(model_files.model_name("batch-" + "x" * 57)) == 64


def test_files_of_a_program_have_no_name(run: Run, bench: Pool, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").write_text("hello")
    words = ["serve", "--engine", "http", "--name", "web", "--files", tmp_path / "site", "--", "serve", "{port}"]
    assert run(*words)[0] == 0
    assert bench.store.artifacts.names("default") == {}


def test_only_what_may_be_a_model_is_looked_into(bench: Pool) -> None:
    for number in range(12):
        bench.put(f"results-{number}", {"table.csv": b"%d" % number})
        bench.put(f"model-{number}", {"a.gguf": b"GGUF %d" % number})
    old = bench.put("old", {"old.gguf": b"GGUF"})
    bench.store.client.hdel(f"ct:artifact:default:{old}", "model")  # as an earlier version stored it
    plain = bench.put("plain", {"old.csv": b"1"})
    bench.store.client.hdel(f"ct:artifact:default:{plain}", "model")
    asked, read = list[str](), bench.trees.entries
    bench.trees.entries = lambda tenant, row: asked.append(row.id) or read(tenant, row)  # type: ignore[func-returns-value,method-assign]
    assert sorted(rows(bench)) == sorted([*(f"model-{number}" for number in range(12)), "old"])
    assert len(asked) == 14 and {old, plain} < set(asked)
    assert len(rows(bench)) == 13 and len(asked) == 14, "no manifest is read twice"


def test_a_model_that_loses_its_name_to_another_is_held_by_no_place(bench: Pool) -> None:
    first = bench.put_model("tiny", b"GGUF 1")
    assert bench.store.artifacts.hold("default", first, "place:node1:disk")
    bench.put_model("tiny", b"GGUF 2")
    [row] = bench.store.artifacts.read("default", [first])
    assert row is None or not (row.names or row.holders)


def test_who_deletes_a_model_that_is_served_hears_of_which_service(run: Run, bench: Pool, file: Path) -> None:
    assert run("serve", file, "--name", "chat")[0] == 0
    code, _, err = run("model", "delete", "chat")
    assert code == 2 and "MODEL: these services use chat: chat; first run: cluster service delete chat" in err, err
    bench.client.services.delete("chat")
    code, _, err = run("model", "delete", "chat")
    assert code == 2 and "still uses chat; try again in a few seconds" in err, err
    [service] = bench.store.services.all()
    assert bench.store.services.forget(service.service_id)
    assert run("model", "delete", "chat") == (0, "chat deleted\n", "")
    code, _, err = run("model", "info", "chat")
    assert code == 2 and err.endswith("model chat does not exist; list models with cluster model list\n")


def test_a_model_and_a_service_are_shown_in_words(run: Run, file: Path) -> None:
    assert run("serve", file, "--name", "chat")[0] == 0
    lines = dict(line.split(maxsplit=1) for line in run("model", "info", "chat")[1].splitlines())
    assert lines["source"] == "uploaded file" and lines["weights"] == "tiny.gguf" and lines["services"] == "chat"
    _, out, err = run("service", "show", "chat")
    assert "waiting, 0 of 1 ready" in out and "llamacpp" in out and "/v1 with a token" in err
