"""Tests the unchanged workflows of the specification on a real cluster with two hosts with fake GPUs."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests import fetch, tiny_model
from tests.integration.live import Live
from tests.integration.test_coming_from import POOLED
from tests.unit.test_workflow_texts import DEPLOYMENT, PIPELINE
from threads_cluster import Cluster

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="runners need Linux")

TOKEN = "t" * 40
PROMPTS = ["once", "upon a time"]


class Source(SimpleHTTPRequestHandler):
    """Serves a folder over HTTP, and a single bucket like S3."""

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        if self.path.startswith("/bucket?"):
            page = b"<ListBucketResult><Contents><Key>input</Key></Contents></ListBucketResult>"
            self.send_response(200)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)
        else:
            super().do_GET()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("source")
    tiny_model.write(folder / "tiny.gguf")
    (folder / "bucket").mkdir()
    (folder / "bucket" / "input").write_text("".join(f"{json.dumps(one)}\n" for one in PROMPTS))
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Source, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Start a cluster on node1, with one runner there and one on node2."""
    folder = tmp_path_factory.mktemp("models")
    with tempfile.TemporaryDirectory(prefix="runner-") as place:
        Path(place).chmod(0o711)
        live = Live(
            folder,
            workers=0,
            CLUSTER_TOKEN=TOKEN,
            ARTIFACT_URL=f"file://{folder}/artifacts",
            HOST_ID="node1",
            SECRETS_KEY="k" * 32,
        )
        try:
            live.start_redis()
            live.start_coordinator()
            for number in (1, 2):
                start_runner(live, number, f"{place}/{number}")
            live.wait_ready(2)
            yield live
        finally:
            live.stop()


def start_runner(live: Live, number: int, place: str) -> None:
    name = f"runner-{number}"
    own = {
        "RUNNER_SLOTS": "3",
        "RUNNER_DIR": place,
        "METRICS_PORT": "0",
        "HOST_ID": f"node{number}",
        "PRETENDED_FAULTS": str(live.folder),
    }
    live.start_process(name, [sys.executable, "-m", "tests.gpu.pretended_runner"], **{**own, **live.remote(name)})


@pytest.fixture
def cluster(live: Live) -> Iterator[Cluster]:
    with Cluster(live.url(), TOKEN) as cluster:
        yield cluster


def done(cluster: Cluster, workflow: str) -> Any:
    row = cluster.workflows.wait(workflow, timeout=240)
    failed = {one["action_id"]: one["error"] for one in row["actions"] if one["error"]}
    assert row["state"] == "done", (failed, [(one["action_id"], one["state"]) for one in row["actions"]])
    return row


def test_a_model_is_registered_and_deployed_on_the_gpus_of_two_hosts(live: Live, cluster: Cluster, source: str) -> None:
    assert cluster.models.register("llama-7b", f"{source}/tiny.gguf")["status"] == "registered"
    done(cluster, cluster.workflows.submit(DEPLOYMENT)["workflow_id"])
    row = cluster.models.get("llama-7b")
    assert (row["weights"], row["status"]) == (["tiny.gguf"], "ready")
    assert row["locations"] == ["disk", "node1:gpu0", "node2:gpu0"], "the places on disks were left by the moves"
    assert row["services"] == ["llama-7b-node1-gpu0", "llama-7b-node2-gpu0"]
    hosts = {name: cluster.services.get(name)["running"][0]["host"] for name in row["services"]}
    assert hosts == {"llama-7b-node1-gpu0": "node1", "llama-7b-node2-gpu0": "node2"}
    answer = cluster.infer("llama-7b-node1-gpu0", "once", max_tokens=3)
    assert answer["usage"]["completion_tokens"] <= 3
    for name in row["services"]:
        cluster.services.delete(name)


def test_data_passes_two_models_on_two_hosts(live: Live, cluster: Cluster, source: str, tmp_path: Path) -> None:
    settings = {"AWS_ENDPOINT_URL": source, "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key"}
    for name, value in settings.items():
        answer = fetch.put(
            f"{live.url()}/api/secrets/{name}", json={"value": value}, headers=live.headers(), timeout=60
        )
        assert answer.is_success, answer.text
    for name in ("preprocessor", "classifier"):
        tiny_model.write(tmp_path / "tiny.gguf")
        cluster.artifacts.put(tmp_path / "tiny.gguf", name=name)
    workflow = cluster.workflows.submit(PIPELINE)["workflow_id"]
    done(cluster, workflow)
    given = cluster.workflows.action(workflow, "model2_process")["result"]
    cluster.artifacts.fetch(given["output"], tmp_path / "answers")
    last = [json.loads(line) for line in (tmp_path / "answers" / "answers.jsonl").read_text().strip().split("\n")]
    given = cluster.workflows.action(workflow, "model1_process")["result"]
    cluster.artifacts.fetch(given["output"], tmp_path / "before")
    first = [json.loads(line) for line in (tmp_path / "before" / "answers.jsonl").read_text().strip().split("\n")]
    assert [one["prompt"] for one in first] == PROMPTS
    assert [one["prompt"] for one in last] == [one["text"] for one in first], "the second continues the first's answers"


def test_the_rows_of_the_page_for_those_who_come_from_elsewhere_work(live: Live, source: str) -> None:
    chunk, user = "", live.user("read", "submit", "run")

    def run(*words: str) -> str:
        command = [sys.executable, "-m", "threads_cluster", *words]
        ended = subprocess.run(command, env=user, cwd=live.folder, capture_output=True, text=True, timeout=240)
        assert ended.returncode == 0, (words, ended.stdout, ended.stderr)
        return ended.stdout

    for typed in POOLED:
        words = [word.replace("URL/", f"{source}/").replace("CHUNK", chunk) for word in shlex.split(typed)[1:]]
        out = run(*words)
        chunk = out.split()[0] if words[:2] == ["data", "create"] else chunk
    assert chunk and chunk not in run("data", "list") and "tiny" not in run("model", "list").split()
