"""Tests logging in with a real browser, and attacks by pages of other origins that use the login."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests import fetch
from tests.browser.conftest import DIST, Open
from tests.integration.live import Live, until

pytest.importorskip("playwright", reason="the browser's tests need playwright: pip install playwright")
from playwright.sync_api import Page, expect

MASTER = "a-long-secret-of-the-cluster"
SMALL = {"type": "paced", "parameters": {"units": 1}}
#: Requests that a foreign page tries with the browser's cookies: forms, simple requests, requests with our header, a
#: stream.
ATTACK = """async ([url, body]) => {
  const attempt = (path, options) =>
    fetch(url + path, {credentials: "include", ...options}).then(answer => answer.text(), () => "refused");
  const outcomes = [];
  for (const headers of [{}, {"Content-Type": "text/plain"}, {"Content-Type": "application/json"},
      {"Content-Type": "application/json", "X-CSRF-Token": "guess"}]) {
    outcomes.push(await attempt("/api/submit", {method: "POST", headers, body}));
    outcomes.push(await attempt("/api/submit", {method: "POST", headers, body, mode: "no-cors"}));
  }
  for (const path of ["/api/status", "/api/jobs", "/api/session", "/api/snapshot", "/api/events"]) {
    outcomes.push(await attempt(path, {}));
    outcomes.push(await attempt(path, {mode: "no-cors"}));
  }
  const source = new EventSource(url + "/api/events", {withCredentials: true});
  outcomes.push(await new Promise(done => {
    source.onerror = () => done("refused");
    source.onopen = () => done("a stream opened");
  }));
  source.close();
  const form = Object.assign(document.createElement("form"), {action: url + "/api/submit", method: "post",
    enctype: "text/plain", target: "frame"});
  const field = Object.assign(document.createElement("input"), {name: body, value: ""});
  form.append(field);
  document.body.append(Object.assign(document.createElement("iframe"), {name: "frame"}), form);
  form.submit();
  await new Promise(done => setTimeout(done, 500));
  return [outcomes, Object.keys(localStorage)];
}"""


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Start a cluster that requires a token and serves the pages."""
    live = Live(tmp_path_factory.mktemp("locked"), workers=0, PAGES_DIR=str(DIST), CLUSTER_TOKEN=MASTER)
    try:
        live.start_redis()
        live.start_coordinator()
        yield live
    finally:
        live.stop()


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, list[str]]]:
    """Start a foreign server on another port of this machine, and record the cookies that it receives."""
    folder, given = tmp_path_factory.mktemp("elsewhere"), []
    (folder / "index.html").write_text("<!doctype html><title>Elsewhere</title>")

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            given.append(self.headers.get("Cookie", ""))
            super().do_GET()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1], given
    server.shutdown()
    server.server_close()


def bearer(method: str, live: Live, path: str, body: Any = None) -> Any:
    headers = {"Authorization": f"Bearer {MASTER}"}
    answer = fetch.request(method, live.url() + path, json=body, headers=headers, timeout=30)
    assert answer.is_success, answer.text
    return answer.json() if answer.content else None


def log_in(page: Page, token: str = MASTER) -> None:
    dialog = page.get_by_role("dialog", name="Log in")
    dialog.get_by_role("textbox", name="Token").fill(token)
    dialog.get_by_role("button", name="Log in").click()
    expect(page.locator(".connection")).to_have_attribute("data-state", "live")


def cookies(page: Page, live: Live) -> list[Any]:
    return [one for one in page.context.cookies() if one["name"] == f"cluster_session_{live.ports[0]}"]


def test_a_login_link_works_in_a_tab_that_shows_the_pages(open_page: Open, locked: Live) -> None:
    """Only the hash of the address changes, so the browser does not load the page again."""
    page = open_page("/cluster.html", url=locked.url())
    expect(page.get_by_role("dialog", name="Log in")).to_be_visible()
    code = bearer("POST", locked, "/api/login-codes")["code"]
    page.evaluate("code => { location.hash = `login=${code}` }", code)
    expect(page.locator(".connection")).to_have_attribute("data-state", "live")
    assert code not in page.url and cookies(page, locked)


def test_a_login_opens_the_pages_and_a_logout_closes_them(open_page: Open, locked: Live) -> None:
    page = open_page(url=locked.url())
    log_in(page)
    [cookie] = cookies(page, locked)
    assert cookie["httpOnly"] and cookie["sameSite"] == "Strict" and MASTER not in cookie["value"]
    assert MASTER not in page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])")
    page.goto(f"{locked.url()}/kinds.html")
    expect(page.locator(".connection")).to_have_attribute("data-state", "live")
    other = page.context.new_page()
    other.goto(f"{locked.url()}/cluster.html")
    expect(other.locator(".connection")).to_have_attribute("data-state", "live")
    page.get_by_role("button", name="Log out").click()
    for tab in (page, other):
        expect(tab.get_by_role("dialog", name="Log in")).to_be_visible()
    until(lambda: cookies(page, locked) == [] and page.evaluate("localStorage.length") == 0)
    log_in(page)
    expect(page.get_by_role("link", name="paced").first).to_be_visible()  # requested again after the login


def test_a_token_is_created_shown_once_and_revoked(open_page: Open, locked: Live) -> None:
    page = open_page("/cluster.html#tab=admin", url=locked.url())
    log_in(page)
    page.get_by_role("button", name="New token").click()
    form = page.get_by_role("dialog", name="New token")
    form.get_by_label("name").fill("a b")
    form.get_by_role("button", name="Create token").click()
    expect(form.get_by_label("name")).to_have_attribute("aria-invalid", "true")
    form.get_by_label("name").fill("laptop")
    form.get_by_label("run", exact=True).check()
    form.get_by_role("button", name="Create token").click()
    created = page.get_by_role("dialog", name="Token created")
    secret = created.locator("code").inner_text()
    [stored] = [token for token in bearer("GET", locked, "/api/tokens")["tokens"] if token["name"] == "laptop"]
    assert stored["scopes"] == ["read", "run", "submit"] and secret.startswith("tc_")
    created.get_by_role("button", name="Close").click()
    assert secret not in page.content()
    page.get_by_role("button", name="Revoke token laptop").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke token").click()
    expect(page.get_by_role("button", name="Revoke token laptop")).to_have_count(0)
    assert "laptop" not in [token["name"] for token in bearer("GET", locked, "/api/tokens")["tokens"]]


def test_a_login_as_somebody_else_in_another_tab_takes_away_what_the_first_one_saw(
    open_page: Open, locked: Live
) -> None:
    token = {}
    for tenant in ("red", "blue"):
        bearer("PUT", locked, f"/api/tenants/{tenant}", {})
        asked = {"name": tenant, "scopes": ["read", "submit"], "tenant": tenant}
        token[tenant] = bearer("POST", locked, "/api/tokens", asked)["token"]
    headers = {name: {"Authorization": f"Bearer {one}"} for name, one in token.items()}
    job = fetch.post(locked.url() + "/api/submit", json=SMALL, headers=headers["red"]).json()["job_id"]
    page = open_page("/cluster.html#tab=jobs", url=locked.url())
    log_in(page, token["red"])
    row = page.locator(f"tr[data-row='{job}']")
    expect(row).to_be_visible()
    link = fetch.post(locked.url() + "/api/login-codes", headers=headers["blue"]).json()["path"]
    other = page.context.new_page()
    other.goto(locked.url() + link)
    expect(other.locator(".connection")).to_have_attribute("data-state", "live")
    expect(page.get_by_role("banner").get_by_text("blue", exact=True)).to_be_visible()
    expect(page.locator(".connection")).to_have_attribute("data-state", "live")
    expect(row).to_have_count(0)


def test_a_wrong_token_and_a_missing_scope_are_said_in_words(open_page: Open, locked: Live) -> None:
    page = open_page(url=locked.url())
    dialog = page.get_by_role("dialog", name="Log in")
    dialog.get_by_role("textbox", name="Token").fill("wrong")
    dialog.get_by_role("button", name="Log in").click()
    expect(dialog).to_contain_text("this token is unknown, was revoked or has expired")
    asked = {"name": "blind", "scopes": ["submit"]}
    dialog.get_by_role("textbox", name="Token").fill(bearer("POST", locked, "/api/tokens", asked)["token"])
    dialog.get_by_role("button", name="Log in").click()
    expect(page.locator(".banner")).to_contain_text(
        "The cluster refused the requests of this page: this request needs the scope read"
    )


def test_a_page_whose_token_is_revoked_asks_for_another_and_for_nothing_else(open_page: Open, locked: Live) -> None:
    minted = bearer("POST", locked, "/api/tokens", {"name": "passing", "scopes": ["read"]})
    page = open_page(url=locked.url())
    log_in(page, minted["token"])
    expect(page.get_by_role("region", name="The cluster now")).to_be_visible()
    bearer("DELETE", locked, f"/api/tokens/{minted['id']}")
    expect(page.get_by_role("dialog", name="Log in")).to_be_visible()
    expect(page.locator("[data-age]")).to_have_attribute("data-age", "lost")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(2000)
    assert len(asked) <= 1, asked  # a request that was already on its way
    log_in(page)


def test_a_one_time_link_logs_in_once_and_leaves_no_trace(open_page: Open, locked: Live) -> None:
    path = bearer("POST", locked, "/api/login-codes")["path"]
    page = open_page(path, url=locked.url())
    expect(page.locator(".connection")).to_have_attribute("data-state", "live")
    assert "login" not in page.url
    again = open_page(path, url=locked.url())
    expect(again.get_by_role("dialog")).to_contain_text("this link was already used")
    assert path.partition("=")[2] not in locked.log("coordinator-0")


def test_a_page_of_another_port_gets_nothing_with_the_cookie(
    open_page: Open, locked: Live, elsewhere: tuple[int, list[str]], tmp_path: Path
) -> None:
    page = open_page(url=locked.url())
    log_in(page)
    before = len(bearer("GET", locked, "/api/jobs")["jobs"])
    port, given = elsewhere
    foreign = page.context.new_page()
    foreign.goto(f"http://127.0.0.1:{port}/")
    body = '{"type": "paced", "parameters": {"units": 1}}'
    outcomes, stored = foreign.evaluate(ATTACK, [locked.url(), body])
    assert set(outcomes) <= {"refused", ""} and stored == []
    assert len(bearer("GET", locked, "/api/jobs")["jobs"]) == before
    [stolen] = {one for one in given if "cluster_session" in one}
    for method, path in (("GET", "/api/jobs"), ("POST", "/api/submit"), ("GET", "/api/events")):
        answer = fetch.request(
            method, locked.url() + path, headers={"Cookie": stolen}, json=SMALL if method == "POST" else None
        )
        assert answer.status_code == 401, "what was given the cookie cannot use it"
    page.reload()
    expect(page.locator(".connection")).to_have_attribute("data-state", "live")


def test_a_name_that_was_made_to_resolve_to_this_machine_gets_nothing(
    browser: Any, playwright: Any, locked: Live, pages: Live
) -> None:
    from tests.browser.conftest import FLAGS, chromium

    rules = "--host-resolver-rules=MAP evil.example 127.0.0.1"
    with playwright.chromium.launch(executable_path=chromium(), args=[*FLAGS, rules]) as rebound:
        for live, status in ((locked, 401), (pages, 403)):
            page = rebound.new_page()
            page.goto(f"http://evil.example:{live.ports[0]}/health")
            read = "async path => { const answer = await fetch(path); return [answer.status, await answer.text()]; }"
            for path in ("/api/status", "/api/jobs", "/api/events"):
                code, text = page.evaluate(read, path)
                assert code == status and "job_id" not in text
            send = """async body => (await fetch("/api/submit", {method: "POST", body,
                headers: {"Content-Type": "application/json"}})).status"""
            assert page.evaluate(send, '{"type": "paced", "parameters": {"units": 1}}') == status
            login = """async token => (await fetch("/api/login", {method: "POST", body: JSON.stringify({token}),
                headers: {"Content-Type": "application/json"}})).status"""
            assert page.evaluate(login, MASTER) == 403
