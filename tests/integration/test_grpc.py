"""Tests that gRPC on a real coordinator accepts, rejects and returns the same as HTTP."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from coordinator import app
from coordinator.rpc import cluster_pb2 as messages
from coordinator.rpc import server
from coordinator.rpc.frames import Frames
from jobs.settings import Settings
from jobs.store import Store
from jobs.store.tenancy import tokens
from tests import fetch
from tests.integration.live import Live, until
from tests.ports import free_port

TOP = Path(__file__).resolve().parents[2]
TOKEN = "t" * 40
COLLATZ = {"start_number": 1, "number_count": 1000}
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
ANSWERS: dict[str, Any] = {
    "Submit": messages.SubmitReply,
    "GetJob": messages.Job,
    "GetResult": messages.Result,
    "Cancel": messages.Job,
    "GetStatus": messages.Status,
    "StreamEvents": messages.Event,
    "StreamMetrics": messages.Sample,
}


class Caller:
    """Sends calls with one token."""

    def __init__(self, port: int, token: str = TOKEN) -> None:
        own_connection = [("grpc.use_local_subchannel_pool", 1)]
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}", own_connection)
        self._metadata = [("authorization", f"Bearer {token}")] if token else []

    def method(self, name: str) -> Any:
        kind = self.channel.unary_stream if name.startswith("Stream") else self.channel.unary_unary
        return kind(
            f"/{server.NAME}/{name}",
            request_serializer=lambda request: request.SerializeToString(),
            response_deserializer=ANSWERS[name].FromString,
        )

    def __call__(self, name: str, request: Any, *more: tuple[str, str], seconds: float = 60.0) -> Any:
        return self.method(name)(request, metadata=[*self._metadata, *more], timeout=seconds)

    def refused(self, name: str, request: Any, **more: Any) -> tuple[str, str, dict[str, Any]]:
        """Return code, message and problem of a failed call."""
        with pytest.raises(grpc.RpcError) as raised:
            list(self(name, request, **more)) if name.startswith("Stream") else self(name, request, **more)
        error: Any = raised.value
        trailers = dict(error.trailing_metadata() or ())
        return error.code().name, error.details(), json.loads(trailers.get("problem-bin", b"{}"))


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Start a coordinator with gRPC that requires tokens, without workers."""
    made = Live(
        tmp_path_factory.mktemp("grpc"),
        workers=0,
        CLUSTER_TOKEN=TOKEN,
        SECRETS_KEY="k" * 32,
        GRPC_PORT=str(free_port()),
    )
    try:
        made.start_redis()
        made.start_coordinator()
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def port(live: Live) -> int:
    return int(live.environment["GRPC_PORT"])


@pytest.fixture
def call(port: int) -> Iterator[Caller]:
    caller = Caller(port)
    yield caller
    caller.channel.close()


def submission(**more: Any) -> Any:
    return messages.SubmitRequest(**{"type": "collatz", "parameters_json": json.dumps(COLLATZ), **more})


# -- the same answers -----------------------------------------------------------------------------------------------


def test_a_job_is_submitted_shown_and_cancelled_as_over_http(live: Live, call: Caller) -> None:
    large = {"start_number": str(2**95), "number_count": 10**15}
    given: dict[str, Any] = {"priority": "high", "device": "cpu", "max_running": 3, "timeout_seconds": 60.5}
    given |= {"name": "Large numbers", "tags": ["nightly"]}
    job = call("Submit", submission(parameters_json=json.dumps(large), **given)).job_id
    other = live.post("/api/submit", {"type": "collatz", "parameters": large, **given}).json()["job_id"]
    mine, theirs = live.job(job), live.job(other)
    own = ("job_id", "created", "waiting_because")
    assert {name: mine[name] for name in mine if name not in own} == {
        name: theirs[name] for name in theirs if name not in own
    }
    row = call("GetJob", messages.JobRequest(job_id=job))
    assert json.loads(row.row_json)["parameters"] == mine["parameters"], "integers are exact"
    assert (row.job_id, row.type, row.state, row.progress, row.error) == (job, "collatz", "queued", 0.0, "")
    assert call("Cancel", messages.JobRequest(job_id=job)).state == "cancelled"
    assert live.job(job)["state"] == "cancelled"
    assert json.loads(call("GetStatus", messages.StatusRequest()).status_json).keys() == live.get("/api/status").keys()


def test_every_field_of_a_submission_arrives(live: Live, call: Caller) -> None:
    first = call("Submit", submission()).job_id
    keyed = submission(
        idempotency_key="k", after=[first], after_any=[], hold=True, notify="https://93.184.216.34/x", wait_seconds=0.01
    )
    reply = call("Submit", keyed)
    assert reply.status == "blocked" and not reply.HasField("estimated_wait_seconds")
    assert call("Submit", keyed).job_id == reply.job_id, "the key counts"
    row = live.job(reply.job_id)
    assert row["notify"].startswith("https://93.184.216.34/")
    assert [one["job_id"] for one in live.get(f"/api/jobs/{reply.job_id}/relations")["parents"]] == [first]
    assert not reply.HasField("result_json")


def test_a_result_is_given_once_the_job_is_done(live: Live, call: Caller) -> None:
    job = call("Submit", submission()).job_id
    assert call.refused("GetResult", messages.JobRequest(job_id=job))[0] == "FAILED_PRECONDITION"
    client = live.redis()
    client.hset(f"ct:job:{job}", mapping={"state": "done", "done": 1000, "cursor": 1000, "total": 1000})
    client.set(f"ct:job:{job}:result", '{"count":1000,"largest":79228162514264337593543950335}')
    answer = call("GetResult", messages.JobRequest(job_id=job))
    assert json.loads(answer.result_json) == live.get(f"/api/jobs/{job}/result")["result"]
    assert "79228162514264337593543950335" in answer.result_json and answer.type == "collatz"


def test_a_call_stands_in_its_callers_trace(live: Live, call: Caller) -> None:
    given = f"00-{TRACE}-00f067aa0ba902b7-01"
    reply, sent = call.method("Submit").with_call(
        submission(), metadata=[("authorization", f"Bearer {TOKEN}"), ("traceparent", given)], timeout=60
    )
    assert live.job(reply.job_id)["trace_id"] == TRACE
    assert dict(sent.initial_metadata())["traceparent"] == given


# -- the same refusals ----------------------------------------------------------------------------------------------

BAD: list[tuple[dict[str, Any], str]] = [
    ({"type": ""}, "type"),
    ({"type": "nothing"}, "type"),
    ({"priority": "urgent"}, "priority"),
    ({"parameters_json": '{"start_number": 0, "number_count": 1}'}, "parameters.start_number"),
    ({"parameters_json": '{"unheard": 1}'}, "parameters.unheard"),
    ({"parameters_json": "[]"}, "parameters"),
    ({"timeout_seconds": -1.0}, "timeout_seconds"),
    ({"max_running": 0}, "max_running"),
    ({"after": ["no job"]}, "after.0"),
    ({"notify": "http://127.0.0.1/"}, "notify"),
    ({"device": "gpu", "gpu_preferred": True}, "gpu_preferred"),
    ({"idempotency_key": "k" * 201}, "idempotency_key"),
]


def test_what_http_refuses_is_refused_with_the_same_problem(live: Live, call: Caller) -> None:
    for change, field in BAD:
        fields = {"type": "collatz", "parameters_json": json.dumps(COLLATZ), **change}
        body = {name: value for name, value in fields.items() if name != "parameters_json" and value != ""}
        answer = live.post("/api/submit", body | {"parameters": json.loads(fields["parameters_json"])})
        code, words, problem = call.refused("Submit", messages.SubmitRequest(**fields))
        assert answer.status_code >= 400 and problem == answer.json() and problem["field"] == field, (change, problem)
        assert (code, words) == ("INVALID_ARGUMENT", problem["detail"]), change


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not valid JSON"),
        ('{}, "priority": "high"', "is not valid JSON"),
        ("[" * 100_000, "is not valid JSON"),
        ("{}{}", "is not valid JSON"),
    ],
)
def test_parameters_that_are_no_json_are_named(call: Caller, text: str, words: str) -> None:
    code, said, problem = call.refused("Submit", submission(parameters_json=text))
    assert (code, problem["field"]) == ("INVALID_ARGUMENT", "parameters_json") and words in said


def test_ids_lead_to_jobs_alone(call: Caller) -> None:
    for name in ("GetJob", "GetResult", "Cancel", "StreamEvents"):
        for bad in ("a/result", "../status", "%2e%2e", "a?wait_seconds=1", "x" * 65, "ü"):
            code, words, _ = call.refused(
                name, messages.JobRequest(job_id=bad) if name != "StreamEvents" else messages.EventsRequest(job_id=bad)
            )
            assert code == "INVALID_ARGUMENT" and words.startswith("job_id: "), (name, bad, words)
    assert call.refused("GetJob", messages.JobRequest())[0] == "INVALID_ARGUMENT"
    assert call.refused("GetJob", messages.JobRequest(job_id="gone"))[0] == "NOT_FOUND"
    code, words, _ = call.refused("GetJob", messages.JobRequest(job_id="gone", wait_seconds=31))
    assert (code, "wait_seconds" in words) == ("INVALID_ARGUMENT", True)


def minted(live: Live, tenant: str, *scopes: str) -> str:
    token = tokens.mint()
    assert Store(live.redis()).tokens.create(token, name=f"t-{tenant}", scopes=scopes, tenant=tenant) == "new"
    return token.text


def test_tokens_scopes_and_tenants_count_as_over_http(live: Live, port: int, call: Caller) -> None:
    job = call("Submit", submission()).job_id
    assert fetch.put(f"{live.url()}/api/tenants/a", json={}, headers=live.headers(), timeout=60).is_success
    nobody, wrong = Caller(port, ""), Caller(port, "x" * 40)
    reader, theirs = Caller(port, minted(live, "default", "read")), Caller(port, minted(live, "a", "read", "submit"))
    for caller in (nobody, wrong):
        assert caller.refused("GetStatus", messages.StatusRequest())[0] == "UNAUTHENTICATED"
        assert caller.refused("StreamEvents", messages.EventsRequest())[0] == "UNAUTHENTICATED"
        assert caller.refused("StreamMetrics", messages.MetricsRequest())[0] == "UNAUTHENTICATED"
    code, words, problem = reader.refused("Submit", submission())
    assert code == "PERMISSION_DENIED" and "submit" in words and problem["status"] == 403
    assert theirs.refused("GetJob", messages.JobRequest(job_id=job))[0] == "NOT_FOUND"
    assert theirs.refused("Cancel", messages.JobRequest(job_id=job))[0] == "NOT_FOUND"
    mine = theirs("Submit", submission()).job_id
    assert json.loads(theirs("GetJob", messages.JobRequest(job_id=mine)).row_json)["tenant"] == "a"


def test_what_is_too_large_is_refused_before_it_is_read(call: Caller) -> None:
    text = json.dumps({"start_number": "1" * server.MAX_MESSAGE})
    assert call.refused("Submit", submission(parameters_json=text))[0] == "RESOURCE_EXHAUSTED"
    text = json.dumps({"start_number": "1" * (1 << 20)})
    code, _, problem = call.refused("Submit", submission(parameters_json=text))
    assert (code, problem["status"]) == ("RESOURCE_EXHAUSTED", 413), "as the API says it"


# -- streams and deadlines ------------------------------------------------------------------------------------------


def test_a_jobs_events_end_with_it_and_go_on_after_a_place(live: Live, call: Caller) -> None:
    job = call("Submit", submission()).job_id
    stream = call("StreamEvents", messages.EventsRequest(job_id=job))
    first = next(stream)
    assert (first.type, json.loads(first.data_json)["total"]) == ("queued", 1000)
    live.post(f"/api/jobs/{job}/cancel")
    rest = list(stream)
    assert [one.type for one in rest] == ["cancelled"] and rest[-1].id
    again = messages.EventsRequest(job_id=job, after=rest[-1].id)
    assert list(call("StreamEvents", again)) == [], "nothing comes after the end"
    code, words, _ = call.refused("StreamEvents", messages.EventsRequest(after="never"))
    assert code == "INVALID_ARGUMENT" and words


def test_the_clusters_events_are_those_of_ones_tenant(live: Live, port: int, call: Caller) -> None:
    assert fetch.put(f"{live.url()}/api/tenants/b", json={}, headers=live.headers(), timeout=60).is_success
    theirs = Caller(port, minted(live, "b", "read", "submit"))
    stream = theirs("StreamEvents", messages.EventsRequest(topics="jobs", after="0-0"))
    call("Submit", submission())
    mine = theirs("Submit", submission()).job_id
    events = (json.loads(one.data_json) for one in stream if one.type == "queued")
    assert next(events)["job"] == mine
    stream.cancel()


def test_metrics_come_each_interval(call: Caller) -> None:
    stream = call("StreamMetrics", messages.MetricsRequest(names="jobs.*"))
    told = (one for one in stream if one.values)  # none is known of a second in which nobody led
    first, second = next(told), next(told)
    assert second.time > first.time and "jobs.queued" in first.values
    assert all(name.startswith("jobs.") for name in first.values)
    stream.cancel()
    for bad in (0.5, 61.0, -1.0, float("nan")):
        code, words, _ = call.refused("StreamMetrics", messages.MetricsRequest(interval_seconds=bad))
        assert code == "INVALID_ARGUMENT" and words.startswith("interval_seconds: must be 1 to 60"), bad


def test_streams_are_bounded_and_those_that_are_cancelled_make_room(port: int) -> None:
    callers = [Caller(port) for _ in range(3)]
    streams = [call("StreamEvents", messages.EventsRequest(topics="fleet")) for call in callers for _ in range(100)]
    refused = until(lambda: len(some := [one for one in streams if is_refused(one)]) >= 300 - 256 and some, 60)
    assert len(refused) < 60, "some of earlier tests may still have been open"
    for stream in streams:
        stream.cancel()
    until(lambda: begins(callers[0]("StreamEvents", messages.EventsRequest(topics="jobs", after="0-0"))), 60)
    for caller in callers:
        caller.channel.close()


def is_refused(stream: Any) -> bool:
    """Return True for a stream that has ended because there is no room."""
    return not stream.is_active() and bool(stream.code() is grpc.StatusCode.RESOURCE_EXHAUSTED)


def begins(stream: Any) -> bool:
    """Return True if a message arrives, and False if the stream ends first."""
    try:
        next(stream)
    except grpc.RpcError:
        return False
    stream.cancel()
    return True


def test_a_deadline_ends_a_call_that_waits(live: Live, call: Caller) -> None:
    job = call("Submit", submission()).job_id
    code, _, _ = call.refused("GetJob", messages.JobRequest(job_id=job, wait_seconds=30), seconds=0.3)
    assert code == "DEADLINE_EXCEEDED"
    waiting = call.method("GetJob").future(
        messages.JobRequest(job_id=job, wait_seconds=30), metadata=[("authorization", f"Bearer {TOKEN}")], timeout=60
    )
    threading.Timer(0.2, lambda: live.post(f"/api/jobs/{job}/cancel")).start()
    assert waiting.result().state == "cancelled", "a wait ends with the job"


def test_bytes_that_are_no_grpc_harm_nobody(port: int, call: Caller) -> None:
    for junk in (
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\0" * 4096,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 999,
    ):
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            connection.sendall(junk)
    raw = call.channel.unary_unary(f"/{server.NAME}/Submit")
    with pytest.raises(grpc.RpcError) as refused:
        raw(b"\xff\xff\xff", metadata=[("authorization", f"Bearer {TOKEN}")], timeout=60)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(grpc.RpcError) as unknown:
        call.channel.unary_unary(f"/{server.NAME}/DropEverything")(b"", timeout=60)
    assert unknown.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert call("GetStatus", messages.StatusRequest()).status_json


def test_a_port_that_is_taken_ends_the_start_with_its_name(port: int) -> None:
    settings = Settings(grpc_port=port)
    with pytest.raises(server.PortTaken, match=f"cannot listen on GRPC_PORT={port} at 127.0.0.1"):
        asyncio.run(server.serve(app.create(settings), settings))


def test_the_code_of_the_messages_is_that_of_their_description(tmp_path: Path) -> None:
    """`make proto` generates the code."""
    options = ["-I.", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}"]
    made = [sys.executable, "-m", "grpc_tools.protoc", *options, "coordinator/rpc/cluster.proto"]
    subprocess.run(made, cwd=TOP, check=True)
    for name in ("cluster_pb2.py", "cluster_pb2.pyi"):
        place = Path("coordinator/rpc") / name
        assert (tmp_path / place).read_text() == (TOP / place).read_text(), "run: make proto"


def test_events_are_put_together_from_any_pieces() -> None:
    text = b'retry: 2000\n\nid: 1-0\nevent: done\ndata: {"a": 1}\n\n: ping\n\nevent: gone\ndata: {}\n\n'
    for size in (1, 2, 7, len(text)):
        frames = Frames()
        found = [one for at in range(0, len(text), size) for one in frames.take(text[at : at + size])]
        assert found == [("1-0", "done", '{"a": 1}'), ("", "gone", "{}")], size


# Last, since nothing answers after it.
def test_a_stream_hears_of_the_coordinators_end(live: Live, call: Caller) -> None:
    stream = call("StreamEvents", messages.EventsRequest(topics="fleet,jobs", after="0-0"))
    next(stream)
    live.kill("coordinator-0", signal.SIGTERM)
    with pytest.raises(grpc.RpcError) as ended:
        list(stream)
    assert ended.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
