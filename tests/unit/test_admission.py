"""Tests that foreign pages cannot control a cluster without a token, and that bodies must be declared as JSON."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from coordinator.server.admission import Admission
from jobs.network.exposure import host_name
from jobs.settings import Settings

JSON = {"Content-Type": "application/json"}


async def _answer(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"let in"})


def ask(
    method: str = "GET",
    path: str = "/api/status",
    headers: dict[str, str] | None = None,
    body: bytes = b"",
    **chosen: str,
) -> httpx.Response:
    """Send a request through a coordinator's admission layer. The Host defaults to a loopback name."""

    async def go() -> httpx.Response:
        app = Admission(_answer, Settings.model_validate(chosen))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1:3000") as http:
            return await http.request(method, path, headers=headers, content=body)

    return asyncio.run(go())


def refused(answer: httpx.Response, field: str, *words: str) -> None:
    assert answer.status_code == (415 if field == "Content-Type" else 403)
    assert answer.headers["content-type"] == "application/problem+json"
    told = answer.json()
    assert told["field"] == field and told["status"] == answer.status_code
    for word in words:
        assert word in told["detail"], told


WAYS_OUT = ("CLUSTER_TOKEN", "ALLOWED_HOSTS")


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:3000",
        "192.168.1.7:3000",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "0.0.0.0:3000",
        "[fe80::1]:3000",
        "127.0.0.1@evil.example",
        "loopback",
        "",
    ],
)
def test_a_foreign_host_is_refused_with_the_ways_out(host: str) -> None:
    for method in ("GET", "POST", "OPTIONS"):
        refused(ask(method, headers={"Host": host}), "Host", *WAYS_OUT)
    refused(ask(path="/", headers={"Host": host}), "Host")


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:3000", "127.0.0.1:80", "127.1.2.3", "[::1]:3000", "localhost.", "a.localhost"]
)
def test_every_name_of_loopback_is_let_in(host: str) -> None:
    assert ask(headers={"Host": host}).text == "let in"


def test_hosts_may_be_allowed_by_name_whatever_the_port() -> None:
    allowed = " cluster.example , BOX,[fd00::7],coordinator,"
    for host in (
        "cluster.example",
        "cluster.example:8443",
        "box:80",
        "[fd00::7]:3000",
        "coordinator:3000",
        "localhost",
    ):
        assert ask(headers={"Host": host}, allowed_hosts=allowed).status_code == 200, host
    refused(ask(headers={"Host": "other.example"}, allowed_hosts=allowed), "Host")
    refused(ask(headers={"Host": ""}, allowed_hosts=allowed), "Host")
    origin = {"Host": "cluster.example", "Origin": "https://cluster.example"}
    assert ask("POST", headers=origin, allowed_hosts=allowed).status_code == 200


def test_what_is_no_list_of_hosts_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="allowed_hosts"):
        Settings(allowed_hosts="http://cluster.example/")


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "https://evil.example:3000",
        "null",
        "http://192.168.1.7",
        "http://localhost.evil.example",
        "http://localhost:80@evil.example",
        "http://[::1",
        "file://",
    ],
)
def test_a_foreign_origin_is_refused_even_with_a_simple_body(origin: str) -> None:
    for path in ("/api/jobs/a/cancel", "/api/workers/n/drain", "/api/submit"):
        refused(ask("POST", path, {"Origin": origin}), "Origin", *WAYS_OUT)
    refused(ask("POST", "/api/submit", {"Origin": origin, **JSON}, b"{}"), "Origin")
    refused(ask("OPTIONS", "/api/submit", {"Origin": origin, "Access-Control-Request-Method": "POST"}), "Origin")


@pytest.mark.parametrize("origin", ["http://127.0.0.1:3000", "http://localhost", "http://[::1]:5173"])
def test_our_own_pages_are_let_in(origin: str) -> None:
    same = {"Origin": origin, "Sec-Fetch-Site": "same-origin", **JSON}
    assert ask("POST", "/api/submit", same, b"{}").status_code == 200


def test_what_a_foreign_page_embeds_is_refused_and_a_link_to_us_is_not() -> None:
    image = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
    refused(ask(path="/api/history?names=x", headers=image), "Sec-Fetch-Site", *WAYS_OUT)
    refused(ask(headers={"Sec-Fetch-Site": "cross-site"}), "Sec-Fetch-Site")
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert ask(path="/cluster.html", headers=link).status_code == 200
    refused(ask("POST", "/api/jobs/a/cancel", link), "Sec-Fetch-Site")
    refused(ask(headers=link | {"Sec-Fetch-Dest": "iframe"}), "Sec-Fetch-Site")
    for site in ("same-origin", "none"):
        assert ask(headers={"Sec-Fetch-Site": site}).status_code == 200


def test_probes_may_ask_by_an_address() -> None:
    foreign = {"Host": "10.0.0.7:3000", "Origin": "http://evil.example"}
    for path in ("/health", "/ready"):
        assert ask(path=path, headers=foreign).status_code == 200
    refused(ask(path="/health/", headers=foreign), "Host")


def test_with_a_token_the_token_decides() -> None:
    foreign = {"Host": "evil.example", "Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}
    assert ask("POST", headers=foreign, cluster_token="t").status_code == 200


@pytest.mark.parametrize(
    "given",
    [
        "",
        "text/plain",
        "text/plain;application/json",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/jsonp",
    ],
)
@pytest.mark.parametrize("token", ["", "t"])
def test_a_body_must_say_that_it_is_json(given: str, token: str) -> None:
    for path in ("/api/submit", "/api/jobs/a/cancel", "/health"):
        answer = ask("POST", path, {"Content-Type": given} if given else {}, b"{}", cluster_token=token)
        refused(answer, "Content-Type", "application/json")


def test_json_is_let_in_however_it_is_written_and_no_body_needs_no_type() -> None:
    for given in ("application/json", "Application/JSON; charset=utf-8", "application/json ;x=1"):
        assert ask("POST", headers={"Content-Type": given}, body=b"{}").status_code == 200
    for method in ("POST", "DELETE", "GET"):
        assert ask(method).status_code == 200
    assert ask("POST", headers={"Content-Length": "0"}).status_code == 200
    refused(ask("POST", headers={"Transfer-Encoding": "chunked"}), "Content-Type")


def test_names_are_taken_out_of_authorities() -> None:
    cases = {"a:1": "a", "A.": "a", "[::1]:3": "::1", "[::1": "", "": "", ":80": "", "a.b": "a.b", "a@b": ""}
    assert {given: host_name(given) for given in cases} == cases
