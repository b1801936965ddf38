"""Tests services on the Cluster page: the list, one service with its buttons, replicas and logs, and the playground."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests import fetch
from tests.browser.conftest import DIST, PHONE, Open, in_both_themes, overflow, settled, shot, violations
from tests.integration.live import Live, until
from threads_cluster import Cluster

TOKEN = "t" * 40
#: Timeout in milliseconds for operations that take a cluster several seconds.
PATIENCE_MS = 90_000
#: A fake engine that obeys the last message: it answers, streams forever, crashes, or writes markup or a long text.
ENGINE = """
import http.server, json, os, sys, time
print("engine is up", flush=True)
class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_): pass
    def do_GET(self):
        self.send_response(200); self.send_header("Content-Length", "0"); self.end_headers()
    def piece(self, text):
        chunk = json.dumps({"choices": [{"index": 0, "delta": {"content": text}}]})
        self.wfile.write(b"data: " + chunk.encode() + b"\\n\\n"); self.wfile.flush()
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        what = body["messages"][-1]["content"]
        self.send_response(200); self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close"); self.end_headers()
        try:
            if what == "markup":
                self.piece("<img src=x onerror=\\"document.title='taken'\\"><script>document.title='taken'</script>")
            elif what == "much":
                for number in range(20000):
                    self.piece("token%d%s" % (number, "\\n" if number % 12 == 11 else " "))
            elif what in ("endless", "die"):
                for number in range(6000):
                    self.piece("word%d " % number); time.sleep(0.05)
                    if what == "die" and number == 25: print("engine dies", flush=True); os._exit(9)
            else:
                for word in ("I ", "heard %d " % len(body["messages"]), "messages: ", what): self.piece(word)
            self.wfile.write(b'data: {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}\\n\\n')
            self.wfile.write(b"data: [DONE]\\n\\n")
        except OSError:
            print("the client left", flush=True)
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Answer).serve_forever()
"""
LONGEST = "a" + 61 * "b" + "z"


def serve(live: Live, name: str, **more: Any) -> None:
    parameters = {"command": ["{python}", "-u", "-c", ENGINE, "{port}"], "health": "/"}
    body = {"name": name, "engine": "http", "parameters": parameters, **more}
    answer = live.post("/api/services", body)
    assert answer.status_code == 201, answer.text


def row(live: Live, name: str = "chat") -> Any:
    return live.get(f"/api/services/{name}")


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Start a cluster with a runner and a ready service, whose coordinator serves the pages."""
    folder = tmp_path_factory.mktemp("services")
    with tempfile.TemporaryDirectory(prefix="runner-") as place:
        Path(place).chmod(0o711)
        store = f"file://{folder}/artifacts"
        live = Live(folder, workers=0, CLUSTER_TOKEN=TOKEN, ARTIFACT_URL=store, HOST_ID="host-0", PAGES_DIR=str(DIST))
        try:
            live.start_redis()
            live.start_coordinator()
            live.start_runner(0, 4, RUNNER_DIR=place)
            live.wait_ready(1)
            serve(live, "chat")
            serve(live, LONGEST, requirements={"labels": ["nowhere"]})
            until(lambda: row(live)["ready"])
            yield live
        finally:
            live.stop()


Log = Any


@pytest.fixture
def log_in(open_page: Open, live: Live) -> Log:
    """Return a function that opens a page logged in with a token, by default the cluster's token."""

    def opened(address: str = "", token: str = TOKEN, **options: Any) -> Page:
        made = fetch.post(
            f"{live.url()}/api/login-codes", headers={"Authorization": f"Bearer {token}"}, timeout=60
        ).json()
        page = open_page(f"/cluster.html#login={made['code']}", url=live.url(), **options)
        page.goto(f"{live.url()}/cluster.html#tab=services{address}")
        return page

    return opened


def talk(page: Page) -> Locator:
    return page.get_by_role("region", name="Playground")


def ask(page: Page, text: str) -> Locator:
    """Send a message with the keyboard, and return the displayed answer."""
    playground = talk(page)
    count = playground.get_by_role("article").count()
    playground.get_by_label("Message").fill(text)
    playground.get_by_label("Message").press("Control+Enter")
    return playground.get_by_role("article").nth(count)


def confirm(page: Page, title: str, act: str) -> None:
    dialog = page.get_by_role("dialog", name=re.compile(title))
    dialog.get_by_role("button", name=act).click()
    expect(dialog).to_have_count(0)


def test_a_model_is_estimated_and_served_from_its_row(log_in: Log, live: Live, tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF" + bytes(5000))
    with Cluster(live.url(), token=TOKEN) as cluster:
        cluster.artifacts.put(tmp_path / "tiny.gguf", name="tiny_1")
    page = log_in()
    page.get_by_role("button", name="Serve tiny_1").click()
    form = page.get_by_role("dialog", name="Serve tiny_1")
    expect(form.get_by_label("name")).to_have_value("tiny-1")
    form.get_by_label("replicas").fill("0")
    form.get_by_label("context").fill("16")
    form.get_by_role("button", name="Estimate memory").click()
    expect(form.get_by_role("status")).to_contain_text("Memory of a replica: ")
    shot(page, "serve-form")
    form.get_by_role("button", name="Serve model").click()
    expect(page.get_by_text(f"{live.url()}/v1", exact=True)).to_be_visible()
    asked = row(live, "tiny-1")["asked"]
    assert (asked["model"], asked["parameters"]["context"], asked["replicas"]) == ("tiny_1", 16, 0)
    fetch.delete(f"{live.url()}/api/services/tiny-1", headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60)


def test_a_service_is_found_asked_scaled_stopped_and_started(log_in: Log, live: Live) -> None:
    page = log_in()
    listed = page.get_by_role("region", name="Services").get_by_role("row")
    expect(listed.filter(has_text=LONGEST)).to_contain_text("A replica is waiting")
    page.get_by_role("button", name="chat", exact=True).click()
    expect(page).to_have_url(re.compile("tab=services&service=chat"))
    expect(page.get_by_role("status").filter(has_text="first replica")).to_have_count(0)
    first = ask(page, "hello")
    expect(first).to_contain_text("I heard 1 messages: hello")
    expect(first.get_by_role("status")).to_have_text("Answered")
    expect(first).to_contain_text(re.compile(r"first token [\d.]+.(ms|s)"))
    expect(first).to_contain_text("4 tokens")
    expect(ask(page, "and now")).to_contain_text("I heard 3 messages: and now")
    # The figures include the requests of all coordinators and are updated.
    figures = page.get_by_role("region", name="The last minute")
    expect(figures.locator("div", has_text="Median latency")).not_to_contain_text("-")
    expect(figures.locator("div", has_text="tokens/s")).to_contain_text(re.compile(r"tokens/s\s*(0\.\d|[1-9])"))
    # The replica has a device, a memory usage and a growing log.
    replicas = page.get_by_role("region", name="Replicas").get_by_role("row")
    expect(replicas.nth(1)).to_contain_text("cpu")
    expect(replicas.nth(1)).to_contain_text(re.compile(r"\d [KM]iB|\d.[KM]iB"))
    replicas.nth(1).get_by_role("button", name=re.compile("^Log of")).click()
    expect(page.get_by_role("log", name="Lines of the log")).to_contain_text("engine is up")
    # Stopping an answer also stops the engine's stream.
    endless = ask(page, "endless")
    expect(endless).to_contain_text("word5 ")
    expect(endless.get_by_role("status")).to_have_text("Answering")
    talk(page).get_by_role("button", name="Stop").click()
    expect(endless.get_by_role("status")).to_have_text("Stopped")
    expect(page.get_by_role("log", name="Lines of the log")).to_contain_text("the client left")
    until(lambda: row(live)["requests"] == 0)
    # Scaling up needs no confirmation. Scaling down needs one while the service has active requests.
    page.get_by_role("button", name="One more").click()
    page.get_by_role("button", name="Scale", exact=True).click()
    until(lambda: row(live)["ready"] == 2)
    expect(page.get_by_text("2 of 2 ready")).to_be_visible()
    ask(page, "endless")
    expect(page.get_by_text(re.compile("1 now"))).to_be_visible()
    page.get_by_label("wanted").fill("1")
    page.get_by_label("wanted").press("Enter")
    confirm(page, "Scale chat from 2 to 1", "Scale to 1")
    until(lambda: row(live)["replicas"] == 1)
    talk(page).get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="Stop", exact=True).first.click()
    confirm(page, "Stop chat", "Stop service")
    refused = page.get_by_text("Requests are refused until the service is started.")
    expect(refused).to_be_visible(timeout=PATIENCE_MS)
    expect(ask(page, "anyone").get_by_role("status")).to_contain_text("no replica of chat is ready")
    page.get_by_role("button", name="Start", exact=True).click()
    until(lambda: row(live)["ready"] == 1)
    expect(page.get_by_text("1 of 1 ready")).to_be_visible()
    expect(page.get_by_text("has stopped, and its log was deleted")).to_be_visible()
    for _ in ("log", "service"):
        page.keyboard.press("Escape")
    expect(page.get_by_role("region", name="Services").get_by_role("row").first).to_be_visible()


def test_what_a_model_says_is_text_however_much_and_an_engine_that_dies_is_said(log_in: Log, live: Live) -> None:
    serve(live, "wild")
    until(lambda: row(live, "wild")["ready"])
    page = log_in("&service=wild")
    markup = ask(page, "markup")
    expect(markup).to_contain_text("<script>document.title='taken'</script>")
    expect(markup.get_by_role("status")).to_have_text("Answered")
    assert markup.locator("img, script").count() == 0 and page.title() != "taken"
    much = ask(page, "much")
    expect(much.get_by_role("status")).to_have_text("Answered", timeout=PATIENCE_MS)
    expect(much).to_contain_text("token19999")
    pieces = much.locator(".answer p")
    assert pieces.count() > 50 and max(map(len, pieces.all_inner_texts())) < 8001
    dies = ask(page, "die")
    expect(dies).to_contain_text("word4")
    expect(dies.get_by_role("status")).to_contain_text("Failed: the replica broke the connection")
    expect(page.get_by_text(re.compile("The last replica died: .*exit code 9"))).to_be_visible()
    page.get_by_role("button", name="Log of the replica that died last").click()
    expect(page.get_by_role("log", name="Lines of the log")).to_contain_text("engine dies")
    page.get_by_role("button", name="Delete").click()
    confirm(page, "Delete wild", "Delete service")
    expect(page.get_by_role("region", name="Services").get_by_role("row").filter(has_text="chat")).to_be_visible()
    expect(page.get_by_role("button", name="wild", exact=True)).to_have_count(0)


def test_who_may_only_ask_has_the_playground_alone_and_a_stranger_nothing(log_in: Log, live: Live) -> None:
    until(lambda: row(live)["ready"])
    made = live.post("/api/tokens", {"name": "asks", "scopes": ["infer"]}).json()["token"]
    page = log_in(token=made)
    expect(page.get_by_role("combobox", name="Model")).to_have_value("chat")
    expect(page.get_by_role("navigation", name="Pages").get_by_role("link")).to_have_text(["Services"])
    expect(ask(page, "hello")).to_contain_text("I heard 1 messages")
    assert fetch.put(f"{live.url()}/api/tenants/other", json={}, headers=live.headers(), timeout=60).is_success
    asked = {"name": "far", "tenant": "other", "scopes": ["read", "infer"]}
    made = live.post("/api/tokens", asked).json()["token"]
    page = log_in("&service=chat", token=made)
    expect(page.get_by_role("alert")).to_contain_text("There is no service chat")
    page.get_by_role("button", name="All services").click()
    empty = page.locator("#panel-services")
    expect(empty).to_contain_text("cluster serve model.gguf --name chat --wait")
    reads = live.post("/api/tokens", {"name": "reads", "scopes": ["read"]}).json()["token"]
    page = log_in("&service=chat", token=reads)
    expect(page.get_by_text("Changing the service requires a token with the scope run.")).to_be_visible()
    expect(talk(page)).to_contain_text("Sending messages requires a token with the scope infer")


def test_it_is_whole_and_accessible_on_any_screen(log_in: Log, live: Live) -> None:
    until(lambda: row(live)["ready"])
    for name, options in (("desktop", {"viewport": {"width": 1440, "height": 900}}), ("phone", {"viewport": PHONE})):
        page = log_in(**options)
        expect(page.get_by_role("region", name="Services").get_by_role("row").last).to_be_visible()
        for theme in in_both_themes(page):
            settled(page)
            assert violations(page) == [] and overflow(page) <= 0, (name, theme)
            shot(page, f"services-{theme}-{name}")
        page.get_by_role("button", name="chat", exact=True).click()
        expect(ask(page, "hello").get_by_role("status")).to_have_text("Answered")
        for theme in in_both_themes(page):
            settled(page)
            assert violations(page) == [] and overflow(page) <= 0, (name, theme)
            shot(page, f"service-{theme}-{name}")
