"""Tests services on a real cluster: a llama.cpp model behind the gateway, with OpenAI's own client."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import psutil
import pytest

from tests import dashboard_queries, fetch, tiny_model
from tests.integration.live import Live, until
from threads_cluster import Cluster
from threads_cluster.errors import ApiError

if TYPE_CHECKING:  # they take seconds to import, and every process of a run collects this file
    import anthropic
    import openai

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="runners need Linux")

TOKEN = "t" * 40


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Start a cluster with one runner with six slots on the coordinator's host, and the stored model tiny."""
    folder = tmp_path_factory.mktemp("services")
    with tempfile.TemporaryDirectory(prefix="runner-") as place:
        Path(place).chmod(0o711)
        live = Live(folder, workers=0, CLUSTER_TOKEN=TOKEN, ARTIFACT_URL=f"file://{folder}/artifacts", HOST_ID="host-0")
        try:
            live.start_redis()
            live.start_coordinator()
            live.start_runner(0, 6, RUNNER_DIR=place)
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
    import openai

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


@pytest.fixture
def claude(served: Live) -> Iterator[anthropic.Anthropic]:
    """Return Anthropic's client, which sends its key as X-Api-Key."""
    import anthropic

    with anthropic.Anthropic(base_url=served.url(), api_key=TOKEN, max_retries=0, timeout=60) as client:
        yield client


ASKED: Any = [{"role": "user", "content": "hello"}]


def test_openais_client_has_responses_and_streams_of_them(client: openai.OpenAI) -> None:
    whole = client.responses.create(model="chat", input="hello", max_output_tokens=5)
    assert whole.status == "completed" and whole.output_text.isalpha() and len(whole.output_text) == 5
    assert whole.usage and whole.usage.output_tokens == 5
    events = list(client.responses.create(model="chat", input="hello", max_output_tokens=5, stream=True))
    kinds = [event.type for event in events]
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed"
    assert kinds.count("response.output_text.delta") >= 3
    assert [event.sequence_number for event in events] == list(range(len(events)))
    with client.responses.stream(model="chat", input="hello", instructions="short", max_output_tokens=5) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        assert len(text) == 5 and stream.get_final_response().output_text == text
    tokens = client.responses.input_tokens.count(model="chat", input="hello")
    assert tokens.input_tokens == whole.usage.input_tokens


def test_anthropics_client_has_messages_streams_of_them_and_counts(claude: anthropic.Anthropic) -> None:
    whole = claude.messages.create(model="chat", max_tokens=5, messages=ASKED)
    assert whole.type == "message" and whole.stop_reason == "max_tokens" and whole.usage.output_tokens == 5
    assert [len(block.text) for block in whole.content if block.type == "text"] == [5]
    events = list(claude.messages.create(model="chat", max_tokens=5, messages=ASKED, stream=True))
    assert (events[0].type, events[-1].type) == ("message_start", "message_stop")
    with claude.messages.stream(model="chat", max_tokens=5, messages=ASKED, system="be short") as stream:
        assert len("".join(stream.text_stream)) == 5
        assert stream.get_final_message().usage.output_tokens == 5
    prompt = claude.messages.count_tokens(model="chat", messages=ASKED).input_tokens
    assert prompt == whole.usage.input_tokens + (whole.usage.cache_read_input_tokens or 0)
    assert "chat" in [model.id for model in claude.models.list()]


def test_tokens_of_each_api_are_counted(live: Live, client: openai.OpenAI, claude: anthropic.Anthropic) -> None:
    serve(live, "counted")
    ready(live, "counted")
    one = client.chat.completions.create(model="counted", messages=ASKED, max_tokens=3)
    assert one.usage
    prompt = one.usage.prompt_tokens
    list(client.chat.completions.create(model="counted", messages=ASKED, max_tokens=3, stream=True))
    client.responses.create(model="counted", input=ASKED, max_output_tokens=3)
    list(client.responses.create(model="counted", input=ASKED, max_output_tokens=3, stream=True))
    claude.messages.create(model="counted", messages=ASKED, max_tokens=3)
    list(claude.messages.create(model="counted", messages=ASKED, max_tokens=3, stream=True))
    claude.messages.count_tokens(model="counted", messages=ASKED)
    client.responses.input_tokens.count(model="counted", input=ASKED)

    def used() -> tuple[int, int, int]:
        """Return the numbers of requests, prompt tokens and answer tokens."""
        [row] = live.get("/api/usage")["usage"]
        return tuple(row[name].get("counted", 0) for name in ("requests", "prompt_tokens", "answer_tokens"))

    until(lambda: used()[0] == 8)
    assert used() == (8, 6 * prompt, 6 * 3)
    live.post("/api/services/counted/stop")


def test_every_panel_about_models_reads_what_a_coordinator_exports(served: Live, client: openai.OpenAI) -> None:
    queries = (one.expr for one in dashboard_queries.every_query() if one.needs == "model")
    read = {name for expr in queries for name in dashboard_queries.metric_names(expr)}
    assert len(read) == 6
    asked: Any = [{"role": "user", "content": "hello"}]
    assert list(client.chat.completions.create(model="chat", messages=asked, max_tokens=2, stream=True))

    def exported() -> bool:
        text = served.metrics()
        return all(f"\n{name}{{" in text for name in read)

    until(exported)


def test_the_log_of_a_running_replica_is_printed_without_waiting_for_its_end(served: Live) -> None:
    command = [sys.executable, "-m", "threads_cluster", "--url", served.url(), "service", "logs", "chat"]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**os.environ, "CLUSTER_TOKEN": TOKEN}
    )
    assert ended.returncode == 0 and "is running" in ended.stderr and " -f " in ended.stderr, ended.stderr


def test_openais_client_raises_what_it_should(served: Live, client: openai.OpenAI) -> None:
    import openai

    with pytest.raises(openai.NotFoundError, match="has no model with this name; it has chat") as missing:
        client.completions.create(model="nosuch", prompt="x")
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="chat", messages="no list")  # type: ignore[arg-type]
    stranger = openai.OpenAI(base_url=f"{served.url()}/v1", api_key="tc_" + "0" * 30, max_retries=0)
    with stranger, pytest.raises(openai.AuthenticationError):
        stranger.models.list()


def test_anthropics_client_raises_what_it_should(served: Live, claude: anthropic.Anthropic) -> None:
    import anthropic

    for stream in (False, True):
        with pytest.raises(anthropic.NotFoundError, match="has no model with this name; it has") as missing:
            claude.messages.create(model="nosuch", max_tokens=5, messages=ASKED, stream=stream)
        assert missing.value.type == "not_found_error" and missing.value.request_id
        long: Any = [{"role": "user", "content": "x" * 5000}]
        with pytest.raises(anthropic.BadRequestError, match="exceeds the available context") as refused:
            claude.messages.create(model="chat", max_tokens=5, messages=long, stream=stream)
        assert refused.value.type == "invalid_request_error"
    bearer = anthropic.Anthropic(base_url=served.url(), auth_token=TOKEN, max_retries=0)
    with bearer:
        assert bearer.messages.count_tokens(model="chat", messages=ASKED).input_tokens
    stranger = anthropic.Anthropic(base_url=served.url(), api_key="tc_" + "0" * 30, max_retries=0)
    with stranger, pytest.raises(anthropic.AuthenticationError) as unknown:
        stranger.messages.create(model="chat", max_tokens=5, messages=ASKED)
    assert unknown.value.type == "authentication_error"


def test_an_engine_says_what_it_is_capable_of_and_which_calls_it_lacks(served: Live, client: openai.OpenAI) -> None:
    import openai

    told: Any = client.models.retrieve("chat")
    assert (told.context_length, told.max_model_len, told.capabilities) == (128, 128, ["completion"])
    with pytest.raises(openai.NotFoundError, match="llamacpp of chat does not support /v1/embeddings") as lacks:
        client.embeddings.create(model="chat", input="hello")
    assert lacks.value.code == "call_not_supported" and lacks.value.request_id
    answer = served.post("/v1/rerank", {"model": "chat", "query": "a", "documents": ["b"]})
    assert answer.status_code == 404 and "engine llamacpp" in answer.json()["error"]["message"]


def test_models_for_embeddings_and_for_ranks_answer_their_calls(live: Live, client: openai.OpenAI) -> None:
    serve(live, "embedder", parameters={"context": 128, "threads": 1, "embeddings": True})
    ready(live, "embedder")
    told: Any = client.models.retrieve("embedder")
    assert told.capabilities == ["embedding"]
    made = client.embeddings.create(model="embedder", input=["hello", "world"])
    assert len(made.data) == 2 and len(made.data[0].embedding) == 64 and made.usage.prompt_tokens
    live.post("/api/services/embedder/stop")
    serve(live, "ranker", parameters={"context": 128, "threads": 1, "reranking": True})
    ready(live, "ranker")
    row = next(each for each in live.get("/v1/models")["data"] if each["id"] == "ranker")
    assert row["capabilities"] == ["rerank"]
    answer = live.post("/v1/rerank", {"model": "ranker", "query": "hi", "documents": ["a", "b"]})
    assert answer.status_code == 200, answer.text
    assert sorted(each["index"] for each in answer.json()["results"]) == [0, 1]
    refused = live.post("/v1/chat/completions", {"model": "ranker", "messages": [{"role": "user", "content": "x"}]})
    assert refused.status_code == 404 and "does not support /v1/chat/completions" in refused.json()["detail"]
    live.post("/api/services/ranker/stop")


def test_a_model_is_deployed_and_asked_in_the_words_of_other_systems(live: Live) -> None:
    with Cluster(live.url(), TOKEN) as cluster:
        made = cluster.deploy("tiny", model_size="7b", precision="fp16", max_sequence_length=64, batch_size=2)
        assert made["deployment_id"] == "tiny"
        assert cluster.services.wait("tiny", timeout=90)["ready"] == 1
        answer = cluster.infer("tiny", "once", max_tokens=3, stop_sequences=["\0"])
        assert answer["deployment_id"] == "tiny" and answer["usage"]["completion_tokens"] <= 3
        assert cluster.services.get("tiny")["asked"]["deployment"]["precision"] == "fp16"
        with pytest.raises(ApiError, match=r"exceeds the available context"):
            cluster.infer("tiny", "x" * 5000)
        cluster.services.stop("tiny")


#: Streams a token every 20 ms that contains the process ID, so that the reader knows the replica.
_PACED = """
import http.server, json, os, sys, time
class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_): pass
    def do_GET(self):
        self.send_response(200); self.send_header("Content-Length", "0"); self.end_headers()
    def do_POST(self):
        assert self.headers["Authorization"] == "Bearer " + os.environ["CLUSTER_KEY"]
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200); self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close"); self.end_headers()
        try:
            for number in range(int(os.environ["TOKENS"])):
                text = json.dumps({"choices": [{"delta": {"content": str(number)}}], "pid": os.getpid()})
                self.wfile.write(b"data: " + text.encode() + b"\\n\\n"); self.wfile.flush(); time.sleep(0.02)
            self.wfile.write(b"data: [DONE]\\n\\n")
        except OSError:
            print("the client left", flush=True)
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Answer).serve_forever()
"""


def serve_paced(live: Live, name: str, tokens: int, **choices: Any) -> None:
    command = ["{python}", "-c", _PACED, "{port}"]
    parameters = {"command": command, "env": {"TOKENS": str(tokens)}, "health": "/"}
    serve(live, name, engine="http", model=None, parameters=parameters, **choices)


def replicas(live: Live) -> list[Any]:
    """Return the jobs of running replicas."""
    rows = live.get("/api/jobs?type=service&limit=500")["jobs"]
    return [row for row in rows if row["state"] not in ("done", "failed", "cancelled")]


def log(live: Live, job: str) -> str:
    answer = fetch.get(f"{live.url()}/api/jobs/{job}/logs/0", headers=live.headers(), timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.text


@pytest.fixture(scope="module")
def serves_paced(live: Live) -> str:
    serve_paced(live, "paced", 100, replicas=2)
    return "paced"


@pytest.fixture
def paced(live: Live, serves_paced: str) -> str:
    """Start two replicas whose streams take about two seconds."""
    ready(live, serves_paced, 2)
    return serves_paced


def stream(live: Live, name: str) -> Generator[Any]:
    with (
        httpx.Client(timeout=60) as client,
        client.stream(
            "POST", f"{live.url()}/v1/chat/completions", json={"model": name, "stream": True}, headers=live.headers()
        ) as answer,
    ):
        assert answer.status_code == 200, answer.read()
        for line in answer.iter_lines():
            if line:
                yield line.removeprefix("data: ")


def on_each(live: Live, name: str, count: int) -> dict[int, Generator[Any]]:
    """Return a stream of each replica, by its process; which are ready, a coordinator knows half a second late."""
    found = dict[int, Generator[Any]]()

    def is_whole() -> bool:
        one = stream(live, name)
        pid = json.loads(next(one))["pid"]
        if found.setdefault(pid, one) is not one:
            one.close()
        return len(found) == count

    until(is_whole)
    return found


def test_a_killed_replica_costs_its_own_streams_alone_and_is_replaced(live: Live, paced: str) -> None:
    (other, second), (one, first) = on_each(live, paced, 2).items()  # the one begun last has most to come
    psutil.Process(one).kill()
    *_, last = first
    assert "broke the connection" in json.loads(last)["error"]["message"]
    rest = list(second)
    assert rest[-1] == "[DONE]" and len(rest) == 100, "the other stream came to its end"
    for _ in range(5):  # and whoever asks now is answered, whatever this coordinator knows
        asked = stream(live, paced)
        assert json.loads(next(asked))["pid"] == other or live.get(f"/api/services/{paced}")["ready"] == 2
        asked.close()
    row = until(lambda: (row := live.get(f"/api/services/{paced}"))["failures"] and row["ready"] == 2 and row, 90)
    assert "SIGKILL" in row["last_failure"]


def test_a_client_that_leaves_ends_the_engines_work(live: Live, paced: str) -> None:
    asked = stream(live, paced)
    engine = psutil.Process(json.loads(next(asked))["pid"])
    asked.close()
    until(lambda: engine.num_threads() == 1)  # it has one more for each request
    until(lambda: sum(row["requests"] for row in live.get(f"/api/services/{paced}")["running"]) == 0)
    before = live.get(f"/api/services/{paced}")["failures"]
    engine.kill()  # its log is kept as that of the last one that died
    row = until(lambda: (row := live.get(f"/api/services/{paced}"))["failures"] > before and row, 60)
    assert "the client left" in log(live, row["last_dead_job_id"])


def test_a_restart_under_streams_breaks_none(live: Live, paced: str) -> None:
    """The runner has a spare slot, so two replicas are always ready, and old streams finish."""
    streams = [stream(live, paced) for _ in range(4)]
    old = {json.loads(next(one))["pid"] for one in streams}
    before = live.get(f"/api/services/{paced}")["running"][0]["generation"]
    assert live.post(f"/api/services/{paced}/restart").status_code == 200
    for one in streams:
        assert list(one)[-1] == "[DONE]"

    def replaced() -> bool:
        row = live.get(f"/api/services/{paced}")
        assert row["ready"] >= 1
        return row["ready"] == 2 and all(each["generation"] > before for each in row["running"])

    until(replaced, 90)
    asked = stream(live, paced)
    assert json.loads(next(asked))["pid"] not in old
    asked.close()


def test_scaling_to_one_replica_cuts_no_stream(live: Live, paced: str) -> None:
    assert live.post(f"/api/services/{paced}/scale", {"replicas": 3}).status_code == 200
    ready(live, paced, 3)
    streams, pids = list[Generator[Any]](), set[int]()

    def all_are_at_work() -> bool:
        streams.append(stream(live, paced))
        pids.add(json.loads(next(streams[-1]))["pid"])
        return len(pids) == 3 and len(streams) >= 6

    until(all_are_at_work)  # which are ready, a coordinator knows half a second late
    assert live.post(f"/api/services/{paced}/scale", {"replicas": 1}).status_code == 200
    for one in streams:
        assert list(one)[-1] == "[DONE]"
    until(lambda: len(live.get(f"/api/services/{paced}")["running"]) == 1, 60)
    assert live.post(f"/api/services/{paced}/scale", {"replicas": 2}).status_code == 200


def test_a_model_that_sleeps_is_woken_by_whoever_asks_it(live: Live) -> None:
    import openai

    serve(live, "sleeper", idle_seconds=3600)
    ready(live, "sleeper")
    with openai.OpenAI(base_url=f"{live.url()}/v1", api_key=TOKEN, max_retries=0, timeout=120) as client:
        for stream in (True, False):
            assert live.post("/api/services/sleeper/scale", {"replicas": 0}).status_code == 200
            until(lambda: live.get("/api/services/sleeper")["state"] == "asleep", 60)
            answer: Any = client.completions.create(model="sleeper", prompt="once", max_tokens=3, stream=stream)
            assert list(answer)[-1].choices[0].finish_reason if stream else answer.usage.completion_tokens == 3
    live.post("/api/services/sleeper/stop")


def test_a_model_is_downloaded_verified_and_served_by_its_name(live: Live) -> None:
    folder, data = live.folder, (live.folder / "tiny.gguf").read_bytes()
    quiet = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        source = f"http://127.0.0.1:{server.server_port}/tiny.gguf"
        with Cluster(live.url(), TOKEN) as cluster:
            asked = cluster.models.download("fetched", source, sha256=hashlib.sha256(data).hexdigest())
            assert cluster.workflows.wait(asked["task_id"], timeout=120)["state"] == "done"
            server.shutdown()
            row = cluster.models.get("fetched")
            assert (row["weights"], row["services"]) == (["tiny.gguf"], [])
            [entry] = [each for each in cluster.artifacts.files("fetched") if each.path in row["weights"]]
            assert entry.sha == hashlib.sha256(data).hexdigest()
            serve(live, "by-name", model="fetched")
            ready(live, "by-name")
            assert [each["services"] for each in cluster.models.list() if each["model_name"] == "fetched"] == [
                ["by-name"]
            ]
            with pytest.raises(ApiError) as held:
                cluster.models.delete("fetched")
            assert held.value.status == 409
            cluster.services.delete("by-name")


def test_a_replica_whose_runner_is_killed_starts_on_another_one(live: Live) -> None:
    with tempfile.TemporaryDirectory(prefix="runner-") as place:
        Path(place).chmod(0o711)
        for number in (1, 2):
            live.start_runner(number, 1, RUNNER_DIR=f"{place}/{number}", RUNNER_LABELS="spare", HOST_ID="host-0")
        serve_paced(live, "spared", 3, requirements={"labels": ["spare"]})
        before = ready(live, "spared")["running"][0]
        live.kill(before["worker"])
        killed = time.monotonic()

        def elsewhere() -> Any:
            row = live.get("/api/services/spared")
            return [one for one in row["running"] if one["state"] == "ready" and one["worker"] != before["worker"]]

        until(elsewhere, 120)
        print(f"ready elsewhere after {time.monotonic() - killed:.1f} s")
        asked = list(stream(live, "spared"))
        assert asked[-1] == "[DONE]" and len(asked) == 3 + 1
        assert fetch.delete(f"{live.url()}/api/services/spared", headers=live.headers(), timeout=60).status_code == 204
        until(lambda: not [each for each in replicas(live) if each["parameters"]["service"] == "spared"], 60)
        for name in {"runner-1", "runner-2"} & live.processes.keys():  # before their folder goes
            live.kill(name, signal.SIGTERM)


def test_a_replica_that_is_never_ready_dies_with_its_words_and_a_service_can_be_deleted(live: Live) -> None:
    parameters = {"command": ["sh", "-c", "echo why it is late; sleep 600"], "health": "/"}
    serve(live, "late", engine="http", model=None, parameters=parameters, start_timeout_seconds=1)
    row = until(lambda: (row := live.get("/api/services/late"))["failures"] and row, 60)
    assert "was not ready within start_timeout_seconds, 1" in row["last_failure"]
    # On a slow machine the first of them may have ended before it said a word.
    until(lambda: "why it is late" in log(live, live.get("/api/services/late")["last_dead_job_id"]))
    answer = fetch.delete(f"{live.url()}/api/services/late", headers=live.headers(), timeout=60)
    assert answer.status_code == 204
    until(lambda: not [each for each in replicas(live) if each["parameters"]["service"] == "late"], 60)
