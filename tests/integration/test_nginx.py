"""Tests nginx with misbehaving upstreams: load balancing, retries, rejections, streams and error messages."""

from __future__ import annotations

import re
import shutil
import socket
import ssl
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import fetch
from tests.integration.live import until
from tests.integration.nginx_bench import USER, Front, Names, Replica, front, require_nginx, silent, web
from tests.ports import free_port

KEY = {"Idempotency-Key": "k1"}
FIRST, SECOND, THIRD = "127.0.0.2", "127.0.0.3", "127.0.0.4"
HEADERS = (
    "content-security-policy",
    "x-content-type-options",
    "x-frame-options",
    "referrer-policy",
    "permissions-policy",
    "cross-origin-opener-policy",
    "x-request-id",
)


@pytest.fixture(scope="module", autouse=True)
def _nginx() -> None:
    require_nginx()


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
def shared(names: Names, port: int) -> Iterator[Front]:
    with front(names, port, REQUEST_RATE="10000", REQUEST_BURST="10000") as running:
        yield running


@pytest.fixture
def replicas(names: Names, port: int) -> Iterator[list[Replica]]:
    """Start two coordinators and a page server, known by name."""
    found = [Replica(address, port) for address in (FIRST, SECOND, THIRD)]
    names.are(coordinator=[FIRST, SECOND], web=[THIRD])
    yield found
    for replica in found:
        replica.end()


@pytest.fixture
def proxy(shared: Front, names: Names, replicas: list[Replica]) -> Front:
    names.settle()
    return shared


def ask(proxy: Front, count: int, path: str = "/api/status") -> Counter[str]:
    with httpx.Client(base_url=proxy.url, timeout=10) as http:
        answers = [http.get(path) for _ in range(count)]
    assert {answer.status_code for answer in answers} == {200}
    return Counter(answer.json()["replica"] for answer in answers)


def is_problem(answer: httpx.Response, status: int) -> str:
    """Check a problem response and return its detail."""
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), answer.text
    problem = answer.json()
    assert problem["status"] == status and problem["type"].startswith("urn:threads-cluster:") and problem["title"]
    for name in HEADERS:
        assert len(answer.headers.get_list(name)) == 1, (status, name)
    return str(problem["detail"])


# -- replicas -------------------------------------------------------------------------------------------------------


def test_requests_are_balanced_and_replicas_come_and_go(proxy: Front, names: Names) -> None:
    seen = ask(proxy, 80)
    assert seen.keys() == {FIRST, SECOND} and min(seen.values()) > 10
    names.are(coordinator=[FIRST, SECOND, THIRD], web=[THIRD])
    names.settle()
    assert ask(proxy, 90)[THIRD] > 5
    names.are(coordinator=[SECOND], web=[THIRD])
    names.settle()
    assert ask(proxy, 20) == {SECOND: 20}


def test_a_replica_is_told_the_name_that_was_asked_and_whether_tls_was_used(
    proxy: Front, replicas: list[Replica]
) -> None:
    def seen(**headers: str) -> tuple[str, str, str]:
        for replica in replicas:
            replica.headers.clear()
        fetch.get(f"{proxy.url}/api/status", headers={"Cookie": "cluster_session=x", **headers})
        [given] = [one for replica in replicas for one in replica.headers]
        return given["Host"], given["X-Forwarded-Proto"], given["Cookie"]

    own = proxy.url.partition("://")[2]
    assert seen() == (own, "http", "cluster_session=x")
    assert seen(Host="cluster.example", **{"X-Forwarded-Proto": "https"}) == (
        "cluster.example",
        "https",
        "cluster_session=x",
    )
    assert seen(**{"X-Forwarded-Proto": "ftp"})[1] == "http"


def test_a_replica_that_is_gone_but_still_known_fails_no_request(proxy: Front, replicas: list[Replica]) -> None:
    replicas[0].end()
    assert ask(proxy, 40) == {SECOND: 40}
    for headers in ({}, KEY):
        for _ in range(10):
            assert fetch.post(f"{proxy.url}/api/submit", json={}, headers=headers).status_code == 200


@pytest.mark.alone
def test_a_replica_whose_machine_is_gone_costs_a_second_and_no_request(
    proxy: Front, replicas: list[Replica], port: int
) -> None:
    replicas[0].end()
    with silent(FIRST, port):
        for _ in range(4):
            began = time.monotonic()
            assert fetch.post(f"{proxy.url}/api/submit", json={}, timeout=10).json()["replica"] == SECOND
            assert time.monotonic() - began < 2


def test_when_all_known_replicas_are_gone_the_names_are_asked_for_again(
    proxy: Front, replicas: list[Replica], names: Names
) -> None:
    assert ask(proxy, 1)
    names.are(coordinator=[THIRD], web=[THIRD])
    for replica in replicas[:2]:
        replica.end()
    assert ask(proxy, 5) == {THIRD: 5}
    assert fetch.post(f"{proxy.url}/api/submit", json={}, headers=KEY).status_code == 200


def test_what_may_be_sent_again_is_when_a_replica_breaks(proxy: Front, replicas: list[Replica]) -> None:
    for method, path, headers in (
        ("GET", "/api/jobs/a%2Fb?a=1", {}),
        ("DELETE", "/api/jobs/a", {}),
        ("POST", "/api/submit", KEY),
        ("POST", "/api/submit-batch", KEY),
        ("POST", "/api/results", {}),
    ):
        for replica in replicas[:2]:
            replica.breaks, replica.heard = 0, []
        for broken in replicas[:2]:
            broken.breaks = 1
            while broken.breaks:
                answer = fetch.request(method, f"{proxy.url}{path}", content=b"{}", headers=headers)
                assert answer.status_code == 200, (method, path)
        assert set(replicas[0].heard + replicas[1].heard) == {(method, path, b"{}")}


def test_a_post_without_a_key_is_sent_once(proxy: Front, replicas: list[Replica]) -> None:
    for path in ("/api/submit", "/api/submit-batch", "/api/jobs/a/cancel"):
        for replica in replicas[:2]:
            replica.breaks, replica.heard = 1000, []
        answer = fetch.post(f"{proxy.url}{path}", json={})
        assert "may have been carried out" in is_problem(answer, 502)
        assert len(replicas[0].heard + replicas[1].heard) == 1


def test_what_makes_a_credential_is_sent_once_whatever_key_it_has(proxy: Front, replicas: list[Replica]) -> None:
    for path in ("/api/tokens", "/api/login", "/api/login-codes", "/api/join"):
        for replica in replicas[:2]:
            replica.breaks, replica.heard = 1000, []
        answer = fetch.post(f"{proxy.url}{path}", json={}, headers=KEY)
        assert "GET /api/tokens" in is_problem(answer, 502)
        assert len(replicas[0].heard + replicas[1].heard) == 1


def test_a_replica_without_redis_hands_over_and_its_own_words_pass(proxy: Front, replicas: list[Replica]) -> None:
    replicas[0].busy = True
    assert ask(proxy, 20) == {SECOND: 20}
    for _ in range(10):
        assert fetch.post(f"{proxy.url}/api/submit", json={}, headers=KEY).status_code == 200
    replicas[1].busy = True
    for answer in (fetch.get(f"{proxy.url}/api/status"), fetch.post(f"{proxy.url}/api/submit", json={})):
        assert (answer.status_code, answer.json()["told"]) == (503, "by the coordinator itself")


def test_when_nobody_answers_the_error_says_so(proxy: Front, replicas: list[Replica], names: Names) -> None:
    for replica in replicas:
        replica.end()
    for path in ("/api/status", "/api/events", "/health", "/"):
        answer = fetch.get(f"{proxy.url}{path}", timeout=10)
        assert "nothing was lost" in is_problem(answer, 502)
        assert answer.headers["retry-after"] == "1"
    names.are()
    names.settle()
    is_problem(fetch.get(f"{proxy.url}/api/status", timeout=10), 502)


def test_an_upstream_of_ones_own_has_weights(names: Names, port: int, replicas: list[Replica]) -> None:
    servers = f"server {FIRST}:{port} weight=3; server {SECOND}:{port};"
    more = f"upstream coordinators {{ zone coordinators 64k; {servers} keepalive 8; }}"
    with front(names, port, more, COORDINATOR_HOST="coordinators") as proxy:
        assert ask(proxy, 40) == {FIRST: 30, SECOND: 10}
        replicas[0].end()
        assert ask(proxy, 10) == {SECOND: 10}


# -- streams --------------------------------------------------------------------------------------------------------


def test_events_arrive_one_by_one(proxy: Front, replicas: list[Replica]) -> None:
    asked = [("GET", path) for path in ("/api/events", "/api/jobs/j1/events", "/api/jobs/j1/logs/3/follow")]
    for method, path in [*asked, ("POST", "/v1/chat/completions")]:
        for replica in replicas[:2]:
            replica.go_on.clear()
        with fetch.stream(method, f"{proxy.url}{path}", headers={"Accept-Encoding": "gzip"}, timeout=30) as answer:
            chunks = answer.iter_text()
            assert next(chunks) == "data: first\n\n"
            for replica in replicas[:2]:
                replica.go_on.set()
            assert "".join(chunks) == "data: second\n\n"


def test_a_long_prompt_reaches_a_coordinator_once_and_an_endless_one_does_not(
    proxy: Front, replicas: list[Replica]
) -> None:
    asked = f"{proxy.url}/v1/embeddings"
    assert fetch.post(asked, content=b"x" * (8 << 20), timeout=30).status_code == 200
    assert sum(path == "/v1/embeddings" for replica in replicas for _, path, _ in replica.heard) == 1
    is_problem(fetch.post(asked, content=b"x" * (10 << 20), timeout=30), 413)


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages", "/v1/messages/count_tokens"])
def test_its_own_errors_under_v1_are_in_the_form_of_the_path(
    names: Names, port: int, replicas: list[Replica], path: str
) -> None:
    anthropic = path.startswith("/v1/messages")
    with front(names, port, REQUEST_RATE="1", REQUEST_BURST="4") as strict:
        too_large = fetch.post(f"{strict.url}{path}", content=b"x" * (10 << 20), timeout=30)
        for replica in replicas[:2]:
            replica.breaks = 9
        broken = fetch.post(f"{strict.url}{path}", content=b"{}", timeout=30)
        refused = [fetch.post(f"{strict.url}{path}", content=b"{}", timeout=30) for _ in range(20)][-1]
    for answer, status, kind in (
        (too_large, 413, "request_too_large" if anthropic else "invalid_request_error"),
        (broken, 502, "api_error" if anthropic else "server_error"),
        (refused, 429, "rate_limit_error"),
    ):
        told = answer.json()
        assert (answer.status_code, told["status"], told["error"]["type"]) == (status, status, kind), answer.text
        assert told["error"]["message"] == told["detail"] and told["error"].keys() >= {"param", "code"}
        assert (told["type"] == "error") is anthropic, "the member by which Anthropic's clients know an error"
        assert answer.headers["x-request-id"] and answer.headers["request-id"] == answer.headers["x-request-id"]
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers.get("retry-after") == (None if status == 413 else "1")


# -- what is said ---------------------------------------------------------------------------------------------------


def test_every_answer_has_the_security_headers_once(proxy: Front) -> None:
    for path in ("/", "/collatz.html", "/assets/a.js", "/api/status", "/metrics", "/health"):
        answer = fetch.get(f"{proxy.url}{path}")
        for name in HEADERS:
            assert len(answer.headers.get_list(name)) == 1, (path, name)
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["server"] == "nginx"
        assert "strict-transport-security" not in answer.headers
    assert "immutable" in fetch.get(f"{proxy.url}/assets/a.js").headers["cache-control"]
    assert fetch.get(proxy.url).headers["cache-control"] == "no-cache"


def test_each_port_serves_its_own(proxy: Front) -> None:
    assert fetch.get(f"{proxy.url}/").json()["replica"] == THIRD
    assert fetch.get(f"{proxy.api}/api/status").status_code == 200
    for url in (f"{proxy.api}/", f"{proxy.api}/app.js", f"{proxy.url}/metrics", f"{proxy.api}/metrics"):
        is_problem(fetch.get(url), 404)
    assert "Active connections" in fetch.get(f"{proxy.inner}/stub_status").text


def test_a_body_over_the_bound_is_refused_by_field(proxy: Front) -> None:
    answer = fetch.post(f"{proxy.url}/api/submit", content=b"x" * (3 << 20))
    assert "split the batch" in is_problem(answer, 413) and answer.json()["field"] == "body"
    for headers in ({}, KEY):
        for body in (b"x" * (3 << 20), iter([b"x" * (1 << 20)] * 3)):
            answer = fetch.post(f"{proxy.url}/api/submit-batch", content=body, headers=headers, timeout=10)
            assert answer.status_code == 200


def test_what_is_not_http_is_a_problem_too(proxy: Front) -> None:
    assert "over 32 KiB" in is_problem(fetch.get(f"{proxy.url}/api/status", headers={"X": "x" * 40000}), 400)
    is_problem(fetch.get(f"{proxy.url}/api/status?{'x' * 40000}"), 414)


def test_a_requests_number_goes_to_the_replica_the_client_and_the_log(proxy: Front, replicas: list[Replica]) -> None:
    answer = fetch.get(f"{proxy.url}/api/status", headers={"X-Request-ID": "abcdef-123456"})
    assert answer.headers["x-request-id"] == "abcdef-123456"
    heard = [headers for replica in replicas[:2] for headers in replica.headers]
    assert [headers["X-Request-ID"] for headers in heard] == ["abcdef-123456"]
    assert heard[0]["X-Forwarded-For"] == "127.0.0.1"
    fetch.get(f"{proxy.url}/api/status", headers={"X-Request-ID": 'no"number', "User-Agent": 'a "quoted" \\ agent'})

    def logged(field: str, value: str) -> Any:
        """Of two processes of nginx one may write its line after the other's next."""
        return until(lambda: next((line for line in proxy.lines() if line[field] == value), None))

    given = logged("request_id", "abcdef-123456")
    assert {"method", "path", "status", "duration", "upstream", "upstream_status"} <= given.keys()
    assert re.fullmatch("[0-9a-f]{32}", logged("agent", 'a "quoted" \\ agent')["request_id"])


def test_a_token_in_a_query_or_a_path_is_not_logged(proxy: Front, replicas: list[Replica]) -> None:
    secret = "x-" * 20 + "abc"
    paths = ("/api/status?token=anything", f"/api/tokens/tc_0123456789_{secret}?a=1", f"/api/ts_0123456789_{secret}")
    for replica in replicas[:2]:
        replica.end()  # such an error repeats the request
    for path in paths:
        fetch.get(f"{proxy.url}{path}", timeout=10)
    expected = {"/api/status", "/api/tokens/tc_0123456789_...", "/api/ts_0123456789_..."}
    # Of two processes of nginx one may write its line after the other's next.
    until(lambda: expected <= {line["path"] for line in proxy.lines()})
    assert secret not in proxy.log.read_text()
    assert "anything" not in proxy.errors.read_text() and secret not in proxy.errors.read_text()


# -- limits ---------------------------------------------------------------------------------------------------------


def test_too_many_requests_are_a_429_that_says_when_to_come_back(
    names: Names, port: int, replicas: list[Replica]
) -> None:
    with front(names, port, REQUEST_RATE="1", REQUEST_BURST="2") as strict, fetch.client(base_url=strict.url) as http:
        began = time.monotonic()
        answers = [http.get("/api/status") for _ in range(40)]
        seconds = time.monotonic() - began
        assert {http.get(path).status_code for path in ("/health", "/ready", "/")} == {200}
    refused = [answer for answer in answers if answer.status_code == 429]
    assert 2 <= len(answers) - len(refused) <= 3 + seconds + 1, "its burst, and one each second"
    assert "try again" in is_problem(refused[0], 429) and refused[0].headers["retry-after"] == "1"


def test_calls_of_workers_have_limits_of_their_own(names: Names, port: int, replicas: list[Replica]) -> None:
    limits = {"REQUEST_RATE": "1", "REQUEST_BURST": "2", "UPLOADS": "1", "WORKER_RATE": "1", "WORKER_BURST": "20"}
    with front(names, port, **limits) as strict, fetch.client(base_url=strict.url) as http:
        assert http.post("/api/worker/commit", content=b"x" * 3_000_000).status_code == 200
        began = time.monotonic()
        statuses = [http.post("/api/worker/commit", content=b"{}").status_code for _ in range(100)]
        seconds = time.monotonic() - began
        assert statuses[:15] == [200] * 15 and set(statuses) == {200, 429}
        assert statuses.count(200) <= 20 + seconds + 2
        assert http.get("/api/status").status_code == 200
        until(lambda: {line["status"] for line in strict.lines() if "/api/worker/" in line["path"]} == {429})


def test_streams_and_large_batches_are_counted(names: Names, port: int, replicas: list[Replica]) -> None:
    large = b"x" * 1_000_000
    with front(names, port, STREAMS="1", UPLOADS="1") as strict:
        with fetch.stream("GET", f"{strict.url}/api/events") as stream:
            chunks = stream.iter_text()
            assert next(chunks)
            is_problem(fetch.get(f"{strict.url}/api/events"), 429)
            for replica in replicas:
                replica.go_on.set()
        with socket.create_connection(("127.0.0.1", strict.ports["LISTEN_HTTP"])) as slow:
            slow.sendall(b"POST /api/submit-batch HTTP/1.1\r\nHost: a\r\nContent-Length: 9000000\r\n\r\nx")
            posted = lambda body: fetch.post(f"{strict.url}/api/submit-batch", content=body)  # noqa: E731
            is_problem(until(lambda: (found := posted(large)).status_code == 429 and found), 429)
            assert posted(b"{}").status_code == 200
        until(lambda: posted(large).status_code == 200)


# -- how it runs ----------------------------------------------------------------------------------------------------


def test_it_runs_without_root_and_writes_to_one_folder(proxy: Front) -> None:
    assert proxy.process
    status = Path(f"/proc/{proxy.process.pid}/status")
    if status.exists():
        assert re.findall(r"^Uid:\s+(\d+)", status.read_text(), re.MULTILINE) == [str(USER)]
    text = (proxy.folder / "rendered/nginx.conf").read_text()
    assert not re.search("@[A-Z]+_", text)
    assert not [line for line in proxy.errors.read_text().splitlines() if "[emerg]" in line or "[alert]" in line]


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"COORDINATOR_HOST": "a:1; }"}, "COORDINATOR_HOST is 'a:1; }'"),
        ({"REQUEST_RATE": "many"}, "REQUEST_RATE is 'many'"),
        ({"TLS_CERTIFICATE": "/etc/hostname"}, "no key"),
        ({"TLS_KEY": "/etc/hostname"}, "no certificate"),
    ],
)
def test_a_setting_that_cannot_be_right_ends_the_start(
    names: Names, port: int, variables: dict[str, str], said: str
) -> None:
    with pytest.raises(AssertionError, match=re.escape(said)), front(names, port, **variables):
        pass


def test_a_certificate_opens_the_tls_port(tmp_path: Path, names: Names, port: int, replicas: list[Replica]) -> None:
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
    running = Front(names, port)
    for path in (certificate, key):
        shutil.copy(path, running.folder)
        running.variables[f"TLS_{'KEY' if path == key else 'CERTIFICATE'}"] = str(running.folder / path.name)
    trust = ssl.create_default_context(cafile=str(certificate))
    try:
        running.run()
        for asked in ("/", "/api/status", "/assets/a.js", "/metrics"):
            answer = fetch.get(f"{running.tls}{asked}", verify=trust)
            assert answer.headers.get_list("strict-transport-security") == ["max-age=31536000"], asked
        assert fetch.get(f"{running.url}/api/status").status_code == 200
        assert "https" in is_problem(fetch.get(running.tls.replace("https", "http")), 400)
        trust.set_alpn_protocols(["h2"])
        with (
            socket.create_connection(("127.0.0.1", running.ports["LISTEN_TLS"])) as plain,
            trust.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
        ):
            assert secure.selected_alpn_protocol() == "h2"
    finally:
        running.end()
    heard = replicas[0].headers + replicas[1].headers
    assert {headers["X-Forwarded-Proto"] for headers in heard} == {"https", "http"}


# -- the pages ------------------------------------------------------------------------------------------------------


def test_pages_have_types_and_nothing_from_elsewhere() -> None:
    with web() as (pages, _):
        page = fetch.get(pages)
        assert page.text == fetch.get(f"{pages}/cluster.html").text
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert not re.findall(r"(?:src|href)=[\"']?(?:https?:)?//(?!127\.0\.0\.1)", page.text)
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|<script(?![^>]* src=)", page.text)
        for name in re.findall(r"(?:src|href)=\"(/[^\"]+\.(?:js|css|svg))\"", page.text):
            assert fetch.get(f"{pages}{name}").status_code == 200, name
        assert fetch.get(f"{pages}/assets/a-1b2c.mjs").headers["content-type"] == "text/javascript; charset=utf-8"
        assert fetch.get(f"{pages}/healthz").text == "ok\n"
        for path in ("/none.js", "/assets/none.js", "/../nginx.conf"):
            answer = fetch.get(f"{pages}{path}")
            assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")


def test_the_documentation_has_types_and_its_address_gets_a_slash() -> None:
    with web() as (pages, _):
        moved = fetch.get(f"{pages}/docs")
        assert (moved.status_code, moved.headers["location"]) == (308, "/docs/")
        page = fetch.get(f"{pages}/docs/")
        assert (page.text, page.headers["content-type"]) == ("documentation", "text/html; charset=utf-8")
        index = fetch.get(f"{pages}/docs/search/search_index.json")
        assert index.headers["content-type"] == "application/json; charset=utf-8"


def test_the_documentation_comes_from_the_page_servers_with_the_headers_of_pages(proxy: Front) -> None:
    answer = fetch.get(f"{proxy.url}/docs/")
    assert answer.status_code == 200 and answer.json()["replica"] == THIRD
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    for name in HEADERS:
        assert len(answer.headers.get_list(name)) == 1, name


def test_the_figures_are_what_prometheus_reads() -> None:
    with web() as (_, figures):
        answer = fetch.get(f"{figures}/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert len(re.findall(r'^web_connections\{state="\w+"\} \d+$', answer.text, re.MULTILINE)) == 4
    if promtool := shutil.which("promtool"):
        checked = subprocess.run([promtool, "check", "metrics"], input=answer.text, capture_output=True, text=True)
        assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
