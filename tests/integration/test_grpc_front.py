"""Tests gRPC through nginx to a real coordinator: calls, errors, streams, TLS, and no running coordinator."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest

from coordinator.rpc import cluster_pb2 as messages
from coordinator.rpc import service
from tests import fetch
from tests.integration.live import Live, until
from tests.integration.nginx_bench import Front, Names, before, require_nginx
from tests.integration.test_grpc import TOKEN, Caller, minted, submission
from tests.ports import free_port

#: Address of a known replica that does not answer.
DEAD = "127.0.0.9"


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    made = Live(
        tmp_path_factory.mktemp("grpc-front"),
        workers=0,
        CLUSTER_TOKEN=TOKEN,
        TRUSTED_PROXIES="127.0.0.1",
        GRPC_PORT=str(free_port()),
    )
    try:
        made.start_redis()
        made.start_coordinator()
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def proxy(live: Live) -> Iterator[Front]:
    calls = f"coordinator.test:{live.environment['GRPC_PORT']}"
    with before(["127.0.0.1", DEAD], free_port(), COORDINATOR_CALLS=calls) as running:
        yield running


@pytest.fixture
def call(proxy: Front) -> Iterator[Caller]:
    caller = Caller(proxy.ports["LISTEN_GRPC"])
    yield caller
    caller.channel.close()


def test_calls_refusals_and_streams_pass(live: Live, call: Caller) -> None:
    jobs = [call("Submit", submission()).job_id for _ in range(20)]
    assert len(set(jobs)) == 20, "a replica that is gone fails no call"
    assert json.loads(call("GetJob", messages.JobRequest(job_id=jobs[0])).row_json) == live.job(jobs[0])
    code, words, problem = call.refused("Submit", submission(priority="urgent"))
    assert (code, problem["field"]) == ("INVALID_ARGUMENT", "priority") and words == problem["detail"]
    stream = call("StreamEvents", messages.EventsRequest(job_id=jobs[0]))
    assert next(stream).type == "queued"
    live.post(f"/api/jobs/{jobs[0]}/cancel")
    assert [one.type for one in stream] == ["cancelled"]


def test_tokens_and_scopes_count(live: Live, proxy: Front) -> None:
    port = proxy.ports["LISTEN_GRPC"]
    nobody, reader = Caller(port, ""), Caller(port, minted(live, "default", "read"))
    try:
        assert nobody.refused("GetStatus", messages.StatusRequest())[0] == "UNAUTHENTICATED"
        assert reader.refused("Submit", submission())[0] == "PERMISSION_DENIED"
    finally:
        for one in (nobody, reader):
            one.channel.close()
    until(lambda: [line for line in proxy.lines() if line["path"].endswith("/GetStatus")])


def test_the_api_hears_who_called_nginx_and_no_other_metadata() -> None:
    """client_address.py uses this metadata as TRUSTED_PROXIES determines."""
    given = (("x-forwarded-for", "203.0.113.9"), ("host", "evil"), ("cookie", "cluster_session=x"))
    headers = service.list_headers(SimpleNamespace(invocation_metadata=lambda: given))
    assert headers == [(b"host", b"localhost"), (b"x-forwarded-for", b"203.0.113.9")]


def test_what_is_too_large_is_refused(call: Caller) -> None:
    text = json.dumps({"start_number": "1" * (3 << 20)})
    assert call.refused("Submit", submission(parameters_json=text))[0] == "RESOURCE_EXHAUSTED"
    text = json.dumps({"start_number": "1" * (1 << 20)})
    code, _, problem = call.refused("Submit", submission(parameters_json=text))
    assert (code, problem["status"]) == ("RESOURCE_EXHAUSTED", 413), "the coordinator's own bound"


def test_where_nobody_answers_calls_are_unavailable(live: Live) -> None:
    with before([DEAD], free_port(), COORDINATOR_CALLS=f"coordinator.test:{free_port()}") as running:
        caller = Caller(running.ports["LISTEN_GRPC"])
        code, words, _ = caller.refused("GetStatus", messages.StatusRequest())
        caller.channel.close()
    assert (code, words) == ("UNAVAILABLE", "no coordinator answers gRPC; try again in a moment")


def test_too_many_calls_at_once_are_refused_and_others_go_on(live: Live) -> None:
    calls = f"coordinator.test:{live.environment['GRPC_PORT']}"
    with before(["127.0.0.1"], free_port(), COORDINATOR_CALLS=calls, CALLS="2") as running:
        caller = Caller(running.ports["LISTEN_GRPC"])
        streams = [caller("StreamEvents", messages.EventsRequest(topics="jobs", after="0-0")) for _ in range(2)]
        job = Caller(int(live.environment["GRPC_PORT"]))("Submit", submission()).job_id
        assert job and all(next(stream).type for stream in streams)
        assert caller.refused("GetStatus", messages.StatusRequest())[0] == "RESOURCE_EXHAUSTED"
        for stream in streams:
            stream.cancel()
        until(lambda: answers(caller), 60)
        caller.channel.close()


def answers(caller: Caller) -> bool:
    try:
        return bool(caller("GetStatus", messages.StatusRequest()).status_json)
    except grpc.RpcError:
        return False


def test_with_a_certificate_it_is_tls_alone(live: Live, tmp_path: Path) -> None:
    require_nginx()
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "1",
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-keyout",
            key,
            "-out",
            certificate,
        ],
        check=True,
        capture_output=True,
    )
    names = Names()
    names.start()
    names.are(coordinator=["127.0.0.1"])
    running = Front(names, free_port(), COORDINATOR_CALLS=f"coordinator.test:{live.environment['GRPC_PORT']}")
    for path in (certificate, key):
        shutil.copy(path, running.folder)
        running.variables[f"TLS_{'KEY' if path == key else 'CERTIFICATE'}"] = str(running.folder / path.name)
    try:
        running.run()
        place = f"127.0.0.1:{running.ports['LISTEN_GRPC']}"
        trusted = grpc.ssl_channel_credentials(certificate.read_bytes())
        with grpc.secure_channel(place, trusted) as channel:
            ask = channel.unary_unary(
                "/threads_cluster.v1.Cluster/GetStatus",
                request_serializer=messages.StatusRequest.SerializeToString,
                response_deserializer=messages.Status.FromString,
            )
            assert ask(messages.StatusRequest(), metadata=[("authorization", f"Bearer {TOKEN}")], timeout=60)
        plain = Caller(running.ports["LISTEN_GRPC"])
        assert plain.refused("GetStatus", messages.StatusRequest())[0] == "UNAVAILABLE"
        plain.channel.close()
        assert fetch.get(f"https://{place}/", verify=False, timeout=60).status_code in (204, 415)
    finally:
        running.end()
        names.end()
