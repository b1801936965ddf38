"""Tests service pages between browsers and a fake replica: which users and headers are permitted."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient, WebSocketDenialResponse

from coordinator import app
from coordinator.__main__ import is_relevant
from coordinator.services.gateway import routing
from coordinator.services.pages import page_layer, tickets
from jobs.store.services import Service
from tests.unit.test_protocol import serving
from tests.unit.test_services import Served, grouped, leads
from tests.unit.test_webhooks import TOKEN

KEY = "the-key-of-the-one-that-leads"
FETCHED = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"}
Ask = Callable[..., Awaitable[httpx.Response]]


class Replica:
    """HTTP server of a fake dashboard, which records requests and sends its own headers."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str, dict[str, str]]] = []
        self.status = 200
        #: Number of announced bytes that are never sent.
        self.lacks = 0
        #: Bytes after a response, and after the headers of a response to HEAD.
        self.left_over = b""
        self.answers: dict[str, str] = {"Content-Type": "text/html", "Set-Cookie": "a=b", "Server": "x"}
        replica = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                replica.heard.append((self.command, self.path, dict(self.headers.items())))
                while replica.status < 200:
                    self.wfile.write(b"HTTP/1.1 %d Later\r\n\r\n" % replica.status)
                    time.sleep(0.05)
                status, body = (302 if "Location" in replica.answers else replica.status), b"<p>tasks</p>"
                self.send_response_only(status)
                for name, value in {**replica.answers, "Content-Length": str(len(body) + replica.lacks)}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write((body if self.command == "GET" else b"") + replica.left_over)

            def do_HEAD(self) -> None:
                self.do_GET()

            def log_message(self, *_: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def end(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def replica() -> Iterator[Replica]:
    replica = Replica()
    yield replica
    replica.end()


class Shown:
    """An application with a service that has a page."""

    def __init__(self, api: Served, port: int) -> None:
        self.api = api
        api.ask("PUT", "/api/tenants/a", {})
        first, *_ = grouped(api, 1)
        assert leads(api, first) == 1
        api.run(first, port=port, key=KEY, host=api.settings.host_name())
        found = api.store.services.one("default", "dask")
        assert found
        self.service: Service = found
        self.host = f"dask-{found.service_id}.localhost:3000"

    def run(self, work: Callable[[Ask], Awaitable[None]], application: Any = None) -> None:
        """Call `work` with a function that sends requests to the application, in one event loop."""

        asked = application or self.api.app

        async def go() -> None:
            transport = httpx.ASGITransport(asked, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:3000") as client:

                async def ask(path: str, method: str = "GET", host: str = "", **headers: str) -> httpx.Response:
                    client.cookies.clear()  # what a browser has is said each time
                    sent = {name.replace("_", "-"): value for name, value in headers.items()}
                    return await client.request(method, path, headers={"Host": host or self.host, **sent})

                try:
                    await work(ask)
                finally:
                    await asked.state.coordinator.gateway.close()

        asyncio.run(asyncio.wait_for(go(), 60))

    async def link(self, ask: Ask, token: str = TOKEN, host: str = "127.0.0.1:3000", **headers: str) -> httpx.Response:
        bearer = {"Authorization": f"Bearer {token}", **headers}
        return await ask("/api/services/dask/open", "POST", host, **bearer)

    async def let_in(self, ask: Ask, token: str = TOKEN) -> dict[str, str]:
        """Return the headers of a browser that has followed a link."""
        made = await self.link(ask, token)
        assert made.status_code == 200 and made.json()["seconds"] == 600, made.text
        url = httpx.URL(made.json()["url"])
        assert f"{url.host}:{url.port}" == self.host
        answer = await ask(url.raw_path.decode())
        assert (answer.status_code, answer.headers["location"]) == (303, "/status"), answer.text
        cookie, *words = answer.headers["set-cookie"].split("; ")
        assert {"HttpOnly", "SameSite=lax", "Path=/"} <= set(words) and "Domain" not in answer.headers["set-cookie"]
        return {"Cookie": cookie}


@pytest.fixture
def shown(any_redis_url: str, replica: Replica) -> Iterator[Shown]:
    api = Served(any_redis_url)
    yield Shown(api, replica.port)
    api.store.client.close()


def test_what_passes_is_the_page_and_no_credential_of_either_side(shown: Shown, replica: Replica) -> None:
    async def work(ask: Ask) -> None:
        browser = await shown.let_in(ask)
        answer = await ask("/status?a=%2F..%2Fb&x", X_Other="1", Authorization="Bearer x", **browser)
        assert (answer.status_code, answer.text) == (200, "<p>tasks</p>")
        [(method, path, heard)] = replica.heard
        assert (method, path, heard["Authorization"]) == ("GET", "/status?a=%2F..%2Fb&x", f"Bearer {KEY}")
        assert not {"cookie", "x-other", "referer", "origin"} & {name.lower() for name in heard}
        assert "set-cookie" not in answer.headers and "server" not in answer.headers
        assert answer.headers["cache-control"] == "private, no-cache"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        head = await ask("/status", "HEAD", **browser)
        assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", "12")

    shown.run(work)


@pytest.mark.parametrize(("method", "status"), [("GET", 200), ("HEAD", 200), ("GET", 204), ("GET", 304)])
def test_bytes_after_an_answer_reach_no_other_browser(shown: Shown, replica: Replica, method: str, status: int) -> None:
    async def work(ask: Ask) -> None:
        browser = await shown.let_in(ask)
        replica.left_over, replica.status = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret", status
        assert b"secret" not in (await ask("/status", method, **browser)).content
        replica.left_over, replica.status = b"", 200
        for _ in range(3):
            assert (await ask("/status", **browser)).text == "<p>tasks</p>"

    shown.run(work)


def test_a_replica_leads_a_browser_nowhere_else(shown: Shown, replica: Replica) -> None:
    async def work(ask: Ask) -> None:
        browser = await shown.let_in(ask)
        for to in ("http://169.254.169.254/", "//elsewhere.example/", "/\\elsewhere.example", "x:y", "status"):
            replica.answers["Location"] = to
            answer = await ask("/", **browser)
            assert answer.status_code == 502, to
            assert "redirects to another host" in answer.text or "did not respond" in answer.text, answer.text
            assert "location" not in answer.headers
        replica.answers["Location"] = "/status"
        assert (await ask("/", **browser)).headers["location"] == "/status"

    shown.run(work)


def test_a_replica_that_puts_its_answer_off_for_ever_is_given_up(
    shown: Shown, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(ask: Ask) -> None:
        browser = await shown.let_in(ask)
        monkeypatch.setattr(page_layer, "SILENT_SECONDS", 0.5)
        replica.status = 102
        answer = await ask("/status", **browser)
        assert answer.status_code == 502 and "did not respond: TimeoutError" in answer.text

    shown.run(work)


def test_a_status_that_there_is_not_is_passed_on_to_nobody(shown: Shown, replica: Replica) -> None:
    async def work(ask: Ask) -> None:
        browser = await shown.let_in(ask)
        replica.status = 999
        answer = await ask("/status", **browser)
        assert answer.status_code == 502 and "invalid HTTP status 999" in answer.text

    shown.run(work)


def test_without_a_ticket_nobody_is_let_in_and_the_words_say_how(shown: Shown, replica: Replica) -> None:
    async def work(ask: Ask) -> None:
        browser = await shown.let_in(ask)
        name, _, text = browser["Cookie"].partition("=")
        link = httpx.URL((await shown.link(ask)).json()["url"]).params["ticket"]
        other = f"dask-{'0' * 12}.localhost:3000"
        for cookie in ("", f"{name}=", f"{name}={text[:-1]}", f"{name}={link}", f"x{name}={text}"):
            answer = await ask("/status", Cookie=cookie)
            assert answer.status_code == 401 and "cluster service open" in answer.text, cookie
        assert (await ask(f"{page_layer.LINK}?ticket={text}")).status_code == 401, "a cookie is no link"
        assert (await ask("/status", host=other, **browser)).status_code == 404
        bearer = await ask("/status", Authorization=f"Bearer {TOKEN}")
        assert bearer.status_code == 401, "a token that a page knows opens nothing here"
        assert replica.heard == []

    shown.run(work)


def test_a_ticket_ends_with_its_token_and_with_the_replica_that_leads(shown: Shown) -> None:
    secret = shown.api.token("read")

    async def work(ask: Ask) -> None:
        browser, owner = await shown.let_in(ask, secret), await shown.let_in(ask)
        assert (await ask("/status", **browser)).status_code == 200
        revoking = {"Authorization": f"Bearer {TOKEN}"}
        gone = await ask(f"/api/tokens/{secret.split('_')[1]}", "DELETE", "127.0.0.1:3000", **revoking)
        assert gone.status_code == 204
        assert (await ask("/status", **browser)).status_code == 401
        assert (await ask("/status", **owner)).status_code == 200
        [job] = [one.job_id for one in shown.api.store.services.replicas([shown.service.service_id]).popitem()[1]]
        await asyncio.to_thread(shown.api.die, job)
        await asyncio.sleep(0.6)  # what a coordinator knows is half a second old at most
        answer = await ask("/status", **owner)
        assert answer.status_code == 503 and "cluster service show dask" in answer.text
        assert answer.headers["retry-after"] == "1"

    shown.run(work)


def test_pages_of_other_origins_are_refused_and_a_link_that_was_followed_is_not(shown: Shown, replica: Replica) -> None:
    visit = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}

    async def work(ask: Ask) -> None:
        browser = await shown.let_in(ask)
        for wrong in (
            {"Origin": "http://evil.example"},
            {"Origin": "null"},
            {"Origin": "http://other.localhost:3000"},
            FETCHED,
            {"Origin": f"http://{shown.host}0"},
            {**visit, "Sec-Fetch-Dest": "iframe"},
            {**FETCHED, "Sec-Fetch-Site": "same-site"},
        ):
            assert (await ask("/status", **browser, **wrong)).status_code == 403, wrong
        assert replica.heard == []
        for right in (visit, {"Origin": f"http://{shown.host}", "Sec-Fetch-Site": "same-origin"}):
            assert (await ask("/status", **browser, **right)).status_code == 200, right

    shown.run(work)


def test_pages_are_looked_at_alone(shown: Shown, replica: Replica) -> None:
    async def work(ask: Ask) -> None:
        browser = await shown.let_in(ask)
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
            assert (await ask("/status", method, **browser)).status_code == 405, method
        assert replica.heard == []

    shown.run(work)


def test_the_cluster_answers_nothing_under_a_pages_name_nor_to_a_page(shown: Shown, replica: Replica) -> None:
    async def work(ask: Ask) -> None:
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        for path in ("/api/services", "/health", "/api/openapi.json", "/v1/models"):
            assert (await ask(path, **bearer)).status_code == 401, path
        browser = await shown.let_in(ask)
        assert (await ask("/api/services", **browser)).text == "<p>tasks</p>"
        for method in ("GET", "POST", "OPTIONS"):
            answer = await ask("/api/services", method, "127.0.0.1:3000", Origin=f"http://{shown.host}", **bearer)
            assert answer.status_code == 403 and "the page of a service" in answer.text
        assert (await ask("/health", host="other.localhost:3000")).status_code != 401

    shown.run(work)


def test_links_are_for_who_may_read_what_the_tenant_has(shown: Shown) -> None:
    foreign, narrow = shown.api.token("read", tenant="a"), shown.api.token("infer")
    shown.api.serve()

    async def work(ask: Ask) -> None:
        statuses = [(await shown.link(ask, token)).status_code for token in (foreign, narrow, "tc_x")]
        assert statuses == [404, 403, 401]
        web = await ask("/api/services/web/open", "POST", "127.0.0.1:3000", Authorization=f"Bearer {TOKEN}")
        assert web.status_code == 409 and "engines with pages: dask" in web.text
        elsewhere = await shown.link(ask, host="cluster.example", X_Forwarded_Proto="https")
        assert elsewhere.status_code == 409 and "SERVICES_DOMAIN" in elsewhere.text
        assert (await shown.link(ask, host="cluster.example")).status_code == 403, "without TLS"

    shown.run(work)


def test_a_domain_of_the_operator_needs_tls_and_its_cookie_is_of_one_host(shown: Shown) -> None:
    application = app.create(shown.api.settings.model_copy(update={"services_domain": "apps.example"}))

    async def work(ask: Ask) -> None:
        tls = {"X_Forwarded_Proto": "https"}
        url = httpx.URL((await shown.link(ask, host="cluster.example", **tls)).json()["url"])
        assert (url.scheme, url.host) == ("https", f"dask-{shown.service.service_id}.apps.example")
        assert (await ask(url.raw_path.decode(), host=url.host)).status_code == 403
        answer = await ask(url.raw_path.decode(), host=url.host, **tls)
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Host-service_page=") and "Secure" in cookie and "Domain" not in cookie
        looked = await ask("/status", host=url.host, Cookie=cookie.partition(";")[0], **tls)
        assert looked.status_code == 200

    shown.run(work, application)


def test_where_no_token_is_needed_the_address_alone_opens_the_page(shown: Shown) -> None:
    application = app.create(shown.api.settings.model_copy(update={"cluster_token": ""}))

    async def work(ask: Ask) -> None:
        made = await ask("/api/services/dask/open", "POST", "127.0.0.1:3000")
        assert made.json() == {"url": f"http://{shown.host}/status", "seconds": None}
        assert (await ask("/status")).status_code == 200
        assert (await ask("/status", **FETCHED)).status_code == 403
        assert (await ask("/status", Cookie="service_page_3000=x")).status_code == 200

    shown.run(work, application)


def test_more_than_a_coordinator_passes_on_is_refused(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_layer, "MOST", 0)

    async def work(ask: Ask) -> None:
        answer = await ask("/status", **await shown.let_in(ask))
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")

    shown.run(work)


def test_a_replica_that_is_gone_is_a_bad_gateway(shown: Shown, replica: Replica) -> None:
    async def work(ask: Ask) -> None:
        browser = await shown.let_in(ask)
        replica.end()
        answer = await ask("/status", **browser)
        assert answer.status_code == 502 and "did not respond" in answer.text

    shown.run(work)


def test_a_page_that_breaks_off_ends_with_its_connection_and_a_line_that_says_why(
    shown: Shown, replica: Replica, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(ask: Ask) -> None:
        browser = await shown.let_in(ask)
        replica.lacks = 100
        caplog.clear()
        async with serving(shown.api.app) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            head = {"Host": shown.host, **browser}
            lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
            writer.write(f"GET /status HTTP/1.1\r\n{lines}\r\n".encode())
            answer = await asyncio.wait_for(reader.read(), 60)
            writer.close()
        assert answer.startswith(b"HTTP/1.1 200 ") and answer.endswith(b"\r\n\r\n<p>tasks</p>")
        assert b"content-length: 112\r\n" in answer.lower(), "the browser sees that it lacks some"
        worst = [record for record in caplog.records if record.levelno >= logging.WARNING and is_relevant(record)]
        assert [record.name for record in worst] == ["coordinator.services.pages.page_layer"]
        assert worst[0].getMessage().startswith("a service's page was interrupted: ") and worst[0].exc_info is None
        assert not [record for record in caplog.records if record.exc_info]
        replica.lacks = 0
        assert (await ask("/status", **browser)).status_code == 200, "its place is free again"

    shown.run(work)


def test_a_page_is_found_without_reading_other_services_and_a_name_of_none_is_one_look(
    shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shown.api.serve(name="other", engine="dask", parameters={}).status_code == 201
    services, looks = shown.api.app.state.coordinator.cluster.store.services, list[str]()
    real = services.by_ids

    def noting(ids: Sequence[str]) -> list[Service]:
        looks.extend(ids)
        return real(ids)

    async def work(ask: Ask) -> None:
        browser = await shown.let_in(ask)
        monkeypatch.setattr(services, "by_ids", noting)
        for number in range(20):
            answer = await ask("/status", host=f"dask-{number:012x}.localhost:3000", **browser)
            assert answer.status_code == 404
        assert looks == [f"{number:012x}" for number in range(20)]
        await asyncio.sleep(routing.FRESH_SECONDS)
        looks.clear()
        assert (await ask("/status", **browser)).status_code == 200
        assert set(looks) == {shown.service.service_id}

    shown.run(work)


def test_a_web_socket_ends_once_its_ticket_counts_no_more(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_layer, "WATCH_SECONDS", 0.01)
    secret = shown.api.token("read")

    async def work(ask: Ask) -> None:
        state = shown.api.app.state.coordinator
        layer = page_layer.PageLayer(shown.api.app, state.page_names, state.gateway, state.cluster)
        page = await state.gateway.routes.page(shown.service.service_id)
        principal = await state.cluster.credentials.principal_by_bearer(secret)
        ticket = tickets.issue(page_layer.place(page, page.leader), tickets.Use.COOKIE, principal, 600)
        let = page_layer.Admission(principal=principal, page=page, replica=page.leader, ticket=ticket)
        watching = asyncio.ensure_future(layer.watch(let))
        await asyncio.sleep(0.1)
        assert not watching.done()
        state.cluster.store.tokens.revoke(principal.token, principal.actor)
        await asyncio.wait_for(watching, 30)

    shown.run(work)


def test_a_web_socket_needs_a_ticket_and_its_own_origin(shown: Shown) -> None:
    client = TestClient(shown.api.app)

    def refused(headers: Mapping[str, str]) -> int:
        with (
            pytest.raises(WebSocketDenialResponse) as answer,
            client.websocket_connect("/status/ws", headers={"Host": shown.host, **headers}),
        ):
            pass
        return answer.value.status_code

    for headers, status in (
        ({}, 401),
        ({"Origin": "http://evil.example"}, 403),
        ({"Cookie": "service_page_3000=x"}, 401),
    ):
        assert refused(headers) == status, headers
