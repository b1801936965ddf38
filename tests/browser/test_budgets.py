"""Checks the costs of a visit: requests before the first paint, bytes of the event stream per second, and redraws."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.conftest import DESKTOP, Open
from tests.integration.live import Live

PAGES = ("/index.html", "/collatz.html", "/job.html", "/cluster.html")
SECONDS = 8
#: Returns the time of the first paint, the URLs requested before it, and uncompressed files larger than a packet.
FIRST_VISIT = """() => {
  const painted = performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? performance.now();
  const all = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")];
  const plain = all.filter(each => !each.name.includes("/api/") && each.decodedBodySize > 1000
    && each.encodedBodySize >= each.decodedBodySize);
  const asked = all.filter(each => each.startTime < painted);
  return [painted, asked.map(each => each.name), plain.map(each => each.name)];
}"""
ONCE = ("/api/job-types", "/api/session", "/api/kinds/collatz/marks/verified")
#: Records the times at which the page's content changes.
WATCH = """() => {
  window.changes = [];
  new MutationObserver(() => window.changes.push(performance.now()))
    .observe(document.querySelector("main"), {subtree: true, childList: true, characterData: true, attributes: true});
  window.since = performance.now();
}"""
#: Counts the changes within some seconds of the page's own clock, because a busy machine runs this script late.
CHANGED = "seconds => window.changes.filter(at => at < window.since + seconds * 1000).length"


@pytest.fixture
def browser(gl_browser: Browser) -> Browser:
    return gl_browser


@pytest.fixture
def busy(pages: Live) -> Iterator[str]:
    """Run a job for hours, unless the test cancels it."""
    job = pages.submit("collatz", {"start_number": "1", "number_count": 10**14, "columns": 512})
    yield job
    pages.post(f"/api/jobs/{job}/cancel")
    assert pages.wait_for(job, "cancelled")


@pytest.mark.parametrize("path", [*PAGES, "/kinds.html"])
def test_a_first_visit_takes_six_requests_of_one_origin(browser: Browser, pages: Live, path: str) -> None:
    with browser.new_context(viewport=DESKTOP) as context:
        page = context.new_page()
        questions: list[str] = []
        page.on("request", lambda request: questions.append(urlsplit(request.url).path))
        page.goto(pages.url() + path)
        page.locator(".connection:not([data-state=connecting])").wait_for()
        painted, asked, plain = page.evaluate(FIRST_VISIT)
        page.wait_for_load_state("load")
    # Ignore API requests and web workers, which do not delay the first paint.
    static = [url for url in asked if not re.search(r"/api/|/worker-", url)]
    print(f"{path}: first contentful paint after {painted:.0f} ms, {len(static)} files, {len(asked)} requests")
    assert {urlsplit(url).netloc for url in asked} == {urlsplit(pages.url()).netloc}
    assert len(static) <= 6, static
    assert plain == [], "a coordinator sends what a build has packed as it is packed"
    # Data that several parts of a page need is requested once.
    assert {one: questions.count(one) for one in ONCE if questions.count(one) > 1} == {}, questions


@pytest.mark.parametrize("path", PAGES)
def test_the_stream_is_small_and_redraws_are_few(open_page: Open, busy: str, path: str) -> None:
    page: Page = open_page(path if path == "/cluster.html" else f"{path}#job={busy}")
    streams: set[str] = set()
    received = []
    session = page.context.new_cdp_session(page)
    session.on("Network.requestWillBeSent", lambda sent: _note(streams, sent))
    session.on("Network.dataReceived", lambda data: received.append((data["requestId"], data["dataLength"])))
    session.send("Network.enable")
    page.reload()
    page.locator(".connection[data-state=live]").wait_for()
    page.wait_for_timeout(2000)
    page.evaluate(WATCH)
    received.clear()
    began = time.monotonic()
    page.wait_for_timeout(SECONDS * 1000)
    seconds = time.monotonic() - began
    rate = sum(length for request, length in received if request in streams) / seconds / 1000
    changes = page.evaluate(CHANGED, SECONDS)
    print(f"{path}: {rate:.2f} KB/s of events, {changes / SECONDS:.1f} redraws/s")
    assert streams, "the page follows the stream"
    assert 0 < rate <= 10
    # Four redraws per second for data from the cluster, and one for the clock.
    assert changes / SECONDS <= 5.5


def _note(streams: set[str], sent: dict[str, object]) -> None:
    request = sent["request"]
    if isinstance(request, dict) and "/api/events" in request["url"]:
        streams.add(str(sent["requestId"]))
