"""Tests a model served by a runner's pod, with requests of its tenant's clients through nginx."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import fetch, tiny_model
from tests.kubernetes.cluster import Cluster
from tests.stack.stack import eventually
from threads_cluster import Cluster as Client

pytestmark = pytest.mark.timeout(600)
#: A label that the overlay assigns to hosts, and a label that no host has.
GIVEN, FOREIGN = "trusted", "elsewhere"
SMALL = {"context": 128, "threads": 1, "parallel": 2}
#: Number of requests after which each of three coordinators has received some, because nginx distributes them.
ROUND = 9


@pytest.fixture(scope="module")
def token(cluster: Cluster) -> str:
    """Return a token of a tenant whose work requires hosts with the label."""
    if not cluster.kubectl("get", "statefulset", "runner", "--ignore-not-found", "--output", "name"):
        pytest.skip("the overlay has no runner")
    eventually(lambda: [row for row in workers(cluster) if row["device"] == "runner"], 120, "a runner lives")
    return tenant(cluster, "physics", GIVEN)


@pytest.fixture(scope="module")
def client(cluster: Cluster, token: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Return a client of the tenant, whose model is ready."""
    file = tmp_path_factory.mktemp("model") / "tiny.gguf"
    tiny_model.write(file)
    with Client(cluster.url, token) as made:
        made.artifacts.put(file, name="tiny")
        made.services.serve("chat", model="tiny", parameters=SMALL)
        made.services.wait("chat", timeout=180)
        yield made
        made.services.delete("chat")


def workers(cluster: Cluster) -> list[dict[str, Any]]:
    return [row for row in cluster.get("/api/workers")["workers"] if row["live"]]


def tenant(cluster: Cluster, name: str, label: str) -> str:
    """Create a tenant that requires a label, and return its token."""
    cluster.http.put(f"/api/tenants/{name}", json={"requires": [label]}).raise_for_status()
    asked = {"name": name, "scopes": ["read", "submit", "run", "infer"], "tenant": name}
    made = cluster.http.post("/api/tokens", json=asked)
    made.raise_for_status()
    return str(made.json()["token"])


def streamed(cluster: Cluster, token: str) -> list[dict[str, Any]]:
    """Return the frames of a complete streamed answer with three tokens."""
    asked = {
        "model": "chat",
        "messages": [{"role": "user", "content": "once"}],
        "max_tokens": 3,
        "stream": True,
        "stream_options": {"include_usage": True},
        "logit_bias": {"2": -100},
    }
    headers = {"Authorization": f"Bearer {token}"}
    with fetch.stream("POST", f"{cluster.url}/v1/chat/completions", json=asked, headers=headers, timeout=60) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        frames = [line.removeprefix("data: ") for line in answer.iter_lines() if line.startswith("data: ")]
    assert frames[-1] == "[DONE]", frames
    return [json.loads(frame) for frame in frames[:-1]]


def answers(cluster: Cluster, token: str) -> bool:
    """Return True if the model answers, and False if the response asks for a retry."""
    try:
        frames = streamed(cluster, token)
    except (AssertionError, httpx.TransportError):
        return False
    return bool(frames[-1]["usage"]["completion_tokens"] == 3)


def test_every_host_has_the_labels_of_the_setting(cluster: Cluster, token: str) -> None:
    rows = workers(cluster)
    assert {row["device"] for row in rows} == {"cpu", "runner"}
    assert {row["id"]: row["labels"] for row in rows} == {row["id"]: [GIVEN] for row in rows}


def test_a_model_answers_in_streams_through_every_coordinator(cluster: Cluster, client: Client, token: str) -> None:
    for _ in range(ROUND):
        frames = streamed(cluster, token)
        assert len([frame for frame in frames if frame["choices"]]) >= 2, frames
        assert frames[-1]["usage"]["completion_tokens"] == 3
    [replica] = client.services.get("chat")["running"]
    assert replica["host"] == runner_host(cluster)


def replicas(client: Client) -> list[str]:
    """Return the jobs of the model's replicas, including starting and stopping ones."""
    return [row["job_id"] for row in client.services.get("chat")["running"]]


def runner_host(cluster: Cluster) -> str:
    [row] = [row for row in workers(cluster) if row["device"] == "runner"]
    return str(row["host"])


def test_a_pod_that_is_deleted_and_one_that_is_killed_are_followed_by_one_that_answers(
    cluster: Cluster, client: Client, token: str
) -> None:
    for how in (["--wait=false"], ["--force", "--grace-period=0"]):
        cluster.kubectl("delete", "pod", "runner-0", *how)
        eventually(lambda: client.services.get("chat")["state"] != "ready", 60, "the replica has gone")
        eventually(lambda: answers(cluster, token), 180, "the model answers again", every=1)
        eventually(lambda: len(replicas(client)) == 1, 60, "one replica is kept")


def test_coordinators_and_fronts_that_are_replaced_reach_the_same_replica(
    cluster: Cluster, client: Client, token: str
) -> None:
    before = replicas(client)
    for name in ("coordinator", "nginx"):
        cluster.kubectl("rollout", "restart", f"deployment/{name}")
    for name in ("coordinator", "nginx"):
        cluster.kubectl("rollout", "status", f"deployment/{name}", "--timeout=170s")
    for _ in range(ROUND):
        eventually(lambda: answers(cluster, token), 60, "the model answers")
    assert replicas(client) == before


def test_a_tenant_that_requires_another_label_gets_no_replica_here_and_hears_why(
    cluster: Cluster, client: Client, tmp_path: Path
) -> None:
    tiny_model.write(tmp_path / "tiny.gguf")
    with Client(cluster.url, tenant(cluster, "guests", FOREIGN)) as other:
        other.artifacts.put(tmp_path / "tiny.gguf", name="tiny")
        other.services.serve("chat", model="tiny", parameters=SMALL)

        def why() -> str:
            running = other.services.get("chat")["running"]
            return str(running[0]["because"] or "") if running else ""

        eventually(lambda: FOREIGN in why(), 60, "what is lacking is said")
        other.services.delete("chat")
