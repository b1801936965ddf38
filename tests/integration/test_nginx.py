"""The front: what is balanced, sent again, refused, streamed and said, before upstreams that break."""

from __future__ import annotations

import json
import ssl
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.conftest import IN_CI
from tests.integration.nginx_bench import Front, Names, Replica, free_port, front, have_nginx

KEY = {"Idempotency-Key": "k1"}
#: Seconds after which nginx asks for a name again; it counts whole ones.
FORGETS = 3.1


@pytest.fixture(scope="module", autouse=True)
def _nginx() -> None:
    if not have_nginx():
        assert not IN_CI, "nginx is not installed"
        pytest.skip("nginx is not installed")


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def names() -> Iterator[Names]:
    names = Names()
    names.start()
    yield names
    names.end()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, names: Names, port: int) -> Iterator[Front]:
    with front(tmp_path_factory.mktemp("front"), names, port, REQUEST_RATE="10000", REQUEST_BURST="10000") as running:
        yield running


@pytest.fixture
def replicas(names: Names, port: int) -> Iterator[list[Replica]]:
    """Two coordinators and a page server, known by name."""
    found = [Replica(address, port) for address in ("127.0.0.2", "127.0.0.3", "127.0.0.4")]
    names.known = {"coordinator.test": ["127.0.0.2", "127.0.0.3"], "web.test": ["127.0.0.4"]}
    yield found
    for replica in found:
        replica.end()


@pytest.fixture
def proxy(shared: Front, replicas: list[Replica]) -> Front:
    time.sleep(FORGETS)  # what it knew of the names is forgotten
    return shared


def ask(proxy: Front, count: int, path: str = "/api/status") -> Counter[str]:
    with httpx.Client(base_url=proxy.url, timeout=10) as http:
        answers = [http.get(path) for _ in range(count)]
    assert {answer.status_code for answer in answers} == {200}
    return Counter(answer.json()["replica"] for answer in answers)


def test_requests_are_balanced_and_replicas_come_and_go(proxy: Front, names: Names) -> None:
    assert min(ask(proxy, 60)["127.0.0.2"], ask(proxy, 60)["127.0.0.3"]) > 5
    names.known["coordinator.test"] = ["127.0.0.2", "127.0.0.3", "127.0.0.4"]
    time.sleep(FORGETS)
    assert ask(proxy, 60)["127.0.0.4"] > 5
    names.known["coordinator.test"] = ["127.0.0.3"]
    time.sleep(FORGETS)
    assert ask(proxy, 20) == {"127.0.0.3": 20}


def test_a_replica_that_is_gone_but_still_known_fails_no_request(proxy: Front, replicas: list[Replica]) -> None:
    replicas[0].end()
    assert ask(proxy, 40) == {"127.0.0.3": 40}
    for headers in ({}, KEY):
        for _ in range(10):
            assert httpx.post(f"{proxy.url}/api/submit", json={}, headers=headers).status_code == 200


def test_what_may_be_sent_again_is_when_a_replica_breaks(proxy: Front, replicas: list[Replica]) -> None:
    for method, headers in (("GET", {}), ("DELETE", {}), ("POST", KEY)):
        replicas[0].breaks = replicas[1].breaks = 0
        replicas[0].heard.clear()
        replicas[1].heard.clear()
        for broken in replicas[:2]:
            broken.breaks = 1
            while broken.breaks:
                answer = httpx.request(method, f"{proxy.url}/api/submit?a=1", content=b"{}", headers=headers)
                assert answer.status_code == 200, method
        heard = replicas[0].heard + replicas[1].heard
        assert set(heard) == {(method, "/api/submit?a=1", b"{}")}


def test_a_post_without_a_key_is_sent_once(proxy: Front, replicas: list[Replica]) -> None:
    for replica in replicas[:2]:
        replica.breaks = 1000
    answer = httpx.post(f"{proxy.url}/api/submit", json={})
    assert answer.status_code == 502
    assert answer.json()["type"] == "urn:threads-cluster:Unavailable"
    assert len(replicas[0].heard) + len(replicas[1].heard) == 1


def test_events_arrive_one_by_one(proxy: Front, replicas: list[Replica]) -> None:
    for path in ("/api/events", "/api/jobs/j1/events"):
        for replica in replicas[:2]:
            replica.go_on.clear()
        with httpx.stream("GET", f"{proxy.url}{path}", headers={"Accept-Encoding": "gzip"}, timeout=5) as answer:
            chunks = answer.iter_text()
            assert next(chunks) == "data: first\n\n"
            for replica in replicas[:2]:
                replica.go_on.set()
            assert "".join(chunks) == "data: second\n\n"


def test_every_answer_has_the_security_headers_once(proxy: Front) -> None:
    for path in ("/", "/collatz.html", "/assets/a.js", "/api/status", "/metrics", "/api/jobs/busy"):
        answer = httpx.get(f"{proxy.url}{path}")
        for name in ("content-security-policy", "x-content-type-options", "x-frame-options", "x-request-id"):
            assert len(answer.headers.get_list(name)) == 1, (path, name)
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["server"] == "nginx"
    assert "immutable" in httpx.get(f"{proxy.url}/assets/a.js").headers["cache-control"]
    assert httpx.get(proxy.url).headers["cache-control"] == "no-cache"


def test_each_port_serves_its_own(proxy: Front) -> None:
    assert httpx.get(f"{proxy.url}/").json()["replica"] == "127.0.0.4"
    assert httpx.get(f"{proxy.api}/api/status").status_code == 200
    for url in (f"{proxy.api}/", f"{proxy.url}/metrics", f"{proxy.api}/metrics"):
        answer = httpx.get(url)
        assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
        assert answer.json()["status"] == 404
    assert "Active connections" in httpx.get(f"{proxy.inner}/stub_status").text


def test_a_replicas_own_words_pass_untouched(proxy: Front) -> None:
    answer = httpx.get(f"{proxy.url}/api/busy")
    assert (answer.status_code, answer.json()["told"]) == (503, "by the coordinator itself")


def test_a_body_over_the_bound_is_refused_by_field(proxy: Front) -> None:
    answer = httpx.post(f"{proxy.url}/api/submit", content=b"x" * (3 << 20))
    assert (answer.status_code, answer.json()["field"]) == (413, "body")
    assert httpx.post(f"{proxy.url}/api/submit-batch", content=b"x" * (3 << 20), headers=KEY).status_code == 200


def test_when_nobody_answers_the_error_says_so(proxy: Front, replicas: list[Replica], names: Names) -> None:
    for replica in replicas:
        replica.end()
    answer = httpx.get(f"{proxy.url}/api/status", timeout=10)
    assert answer.status_code == 502 and "nothing was lost" in answer.json()["detail"]
    assert answer.headers["retry-after"] == "1"
    names.known = {}
    time.sleep(FORGETS)
    answer = httpx.get(f"{proxy.url}/api/status", timeout=10)
    assert answer.status_code == 502 and answer.headers["content-type"] == "application/problem+json"


def test_a_requests_number_goes_to_the_replica_the_client_and_the_log(proxy: Front, replicas: list[Replica]) -> None:
    answer = httpx.get(f"{proxy.url}/api/status", headers={"X-Request-ID": "abcdef-123456"})
    assert answer.headers["x-request-id"] == "abcdef-123456"
    heard = [headers for replica in replicas[:2] for headers in replica.headers]
    assert [headers["X-Request-ID"] for headers in heard] == ["abcdef-123456"]
    assert heard[0]["X-Forwarded-For"] == "127.0.0.1"
    time.sleep(0.2)
    lines = [json.loads(line) for line in proxy.log.read_text().splitlines()]
    assert {"method", "path", "status", "duration", "upstream", "request_id"} <= lines[-1].keys()


def test_too_many_requests_are_a_429_that_says_when_to_come_back(
    tmp_path: Path, names: Names, port: int, replicas: list[Replica]
) -> None:
    with front(tmp_path, names, port, REQUEST_RATE="1", REQUEST_BURST="2") as strict:
        answers = [httpx.get(f"{strict.url}/api/status") for _ in range(8)]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert 4 <= len(refused) <= 6
    assert refused[0].json()["status"] == 429 and refused[0].headers["retry-after"] == "1"


def test_a_certificate_opens_the_tls_port(tmp_path: Path, names: Names, port: int, replicas: list[Replica]) -> None:
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    trust = ssl.create_default_context(cafile=str(certificate))
    with front(tmp_path, names, port, TLS_CERTIFICATE=str(certificate), TLS_KEY=str(key)) as secure:
        answer = httpx.get(f"{secure.tls}/api/status", verify=trust)
        assert answer.status_code == 200
        assert answer.headers["strict-transport-security"] == "max-age=31536000"
        assert httpx.get(f"{secure.url}/api/status").status_code == 200
    heard = replicas[0].headers + replicas[1].headers
    assert {headers["X-Forwarded-Proto"] for headers in heard} == {"https", "http"}
