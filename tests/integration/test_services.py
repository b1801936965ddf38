"""Services on a real cluster: a model of llama.cpp behind the gateway, asked by OpenAI's own client."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests import tiny_model
from tests.integration.live import Live, until
from threads_cluster import Cluster

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="runners need Linux")

TOKEN = "t" * 40


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A cluster with one runner of three slots on the coordinator's host, and a model kept in it as tiny."""
    folder = tmp_path_factory.mktemp("services")
    with tempfile.TemporaryDirectory(prefix="runner-") as place:
        Path(place).chmod(0o711)
        live = Live(
            folder, workers=0, CLUSTER_TOKEN=TOKEN, ARTIFACT_URL=f"file://{folder}/artifacts", HOST_ID="host-0"
        )  # fmt: skip
        try:
            live.start_redis()
            live.start_coordinator()
            live.start_runner(0, 3, RUNNER_DIR=place)
            live.wait_ready(1)
            tiny_model.write(folder / "tiny.gguf")
            with Cluster(live.url(), TOKEN) as cluster:
                cluster.artifacts.put(folder / "tiny.gguf", name="tiny")
            yield live
        finally:
            live.stop()


def serve(live: Live, name: str, **more: Any) -> None:
    body = {"name": name, "engine": "llamacpp", "model": "tiny", "parameters": {"context": 128, "threads": 1}}
    answer = live.post("/api/services", {**body, **more})
    assert answer.status_code == 201, answer.text


def ready(live: Live, name: str, count: int = 1) -> Any:
    return until(lambda: (row := live.get(f"/api/services/{name}"))["ready"] == count and row, 90)


@pytest.fixture(scope="module")
def served(live: Live) -> Live:
    serve(live, "chat", replicas=2)
    ready(live, "chat", 2)
    return live


@pytest.fixture
def client(served: Live) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{served.url()}/v1", api_key=TOKEN, max_retries=0, timeout=60) as client:
        yield client


def test_openais_client_chats_streams_completes_and_lists(client: openai.OpenAI) -> None:
    asked: Any = [{"role": "user", "content": "hello"}]
    whole = client.chat.completions.create(model="chat", messages=asked, max_tokens=5)
    assert whole.usage and whole.usage.completion_tokens == 5
    streamed = list(client.chat.completions.create(model="chat", messages=asked, max_tokens=5, stream=True))
    assert streamed[-1].choices[0].finish_reason == "length"
    assert all(chunk.choices and chunk.usage is None for chunk in streamed), "it did not ask for counts"
    counted = list(
        client.chat.completions.create(
            model="chat", messages=asked, max_tokens=5, stream=True, stream_options={"include_usage": True}
        )
    )
    assert counted[-1].usage and counted[-1].usage.completion_tokens == 5 and not counted[-1].choices
    assert client.completions.create(model="chat", prompt="once", max_tokens=3).usage
    assert [model.id for model in client.models.list()] == ["chat"]
    assert client.models.retrieve("chat").owned_by == "default"


def test_openais_client_raises_what_it_should(served: Live, client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="has no model of this name; there are chat") as missing:
        client.completions.create(model="nosuch", prompt="x")
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="chat", messages="no list")  # type: ignore[call-overload]
    stranger = openai.OpenAI(base_url=f"{served.url()}/v1", api_key="tc_" + "0" * 30, max_retries=0)
    with stranger, pytest.raises(openai.AuthenticationError):
        stranger.models.list()
