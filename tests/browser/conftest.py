"""Runs the pages in a real browser against a real cluster. Each session starts one cluster, whose coordinator serves
the pages built by `npm run build`.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import ViewportSize

from tests.integration.live import TOP, Live

pytest.importorskip("playwright", reason="the browser's tests need playwright: pip install playwright")
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Locator,
    Page,
    Playwright,
    expect,
    sync_playwright,
)

DIST = TOP / "web" / "dist"
SCREENSHOTS = Path(__file__).parent / "screenshots"
AXE = TOP / "web" / "node_modules" / "axe-core" / "axe.min.js"
WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
#: Timeout in milliseconds for a page to draw or load, also on a busy machine.
PATIENCE_MS = 60_000
expect.set_options(timeout=PATIENCE_MS)
#: Runs axe and returns only violations, because a complete report has megabytes.
SCAN = """async tags => {
  const options = {runOnly: {type: "tag", values: tags}, resultTypes: ["violations"]};
  return (await axe.run(document, options)).violations;
}"""
#: Waits for two frames and for the end of all finite animations.
DRAWN = """async () => {
  const drawn = () => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done())));
  await drawn();
  const moving = document.getAnimations().filter(each => each.effect?.getComputedTiming().endTime !== Infinity);
  await Promise.allSettled(moving.map(each => each.finished));
  await drawn();
}"""
#: Waits until the page's delayed timers have run, such as the timer that writes the URL.
RESTED = "() => new Promise(done => setTimeout(() => requestAnimationFrame(() => setTimeout(done)), 600))"
PHONE: ViewportSize = {"width": 390, "height": 844}
DESKTOP: ViewportSize = {"width": 1280, "height": 800}
#: Console messages of the browser about failed responses and connections, which the pages report in words.
NETWORK = re.compile(r"Failed to load resource|net::ERR_")
FLAGS = [
    "--no-sandbox",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--disable-gpu-watchdog",
]
#: Disables the pages of the address bar, which take a third of the CPU time. Chromium uses only the last list of
#: features, so this list repeats Playwright's list.
WITHOUT_FEATURES = "--disable-features=" + ",".join(
    [
        *("WebUIOmniboxPopup", "WebUIOmniboxAimPopup", "WebUIOmniboxFullPopup"),
        *("AvoidUnnecessaryBeforeUnloadCheckSync", "DestroyProfileOnBrowserClose", "HttpsUpgrades"),
        *("HttpsFirstBalancedModeAutoEnable", "LensOverlay", "MediaRouter", "PaintHolding"),
        *("ThirdPartyStoragePartitioning", "AvoidCorsURLLoaderRestartOnRedirect", "OptimizationHints"),
        *("NetworkTimeServiceQuerying", "AimEnabled", "PreconnectToSearch"),
    ]
)
#: Disables GPU compositing: OpenGL runs in software here, and pages without WebGL need half the CPU time without it.
WITHOUT_GL = "--disable-gpu-compositing"


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark every test in this folder, so that it runs separately from tests without a browser."""
    item.add_marker("browser")


def require(found: bool, reason: str) -> None:
    """Skip the test if a requirement is missing, or fail it in CI."""
    if found:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def find_program(*names: str) -> str | None:
    return next(filter(None, map(shutil.which, names)), None)


def chromium() -> str | None:
    return find_program("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as running:
        yield running


def _launched(playwright: Playwright, binary: str | None, *more: str) -> Iterator[Browser]:
    require(binary is not None, "there is no chromium on the PATH: apt-get install chromium")
    with playwright.chromium.launch(executable_path=binary, args=[*FLAGS, *more]) as found:
        yield found


@pytest.fixture(scope="session")
def browser(playwright: Playwright) -> Iterator[Browser]:
    """Start the headless shell if it is installed, which needs a third of the browser's CPU time."""
    yield from _launched(playwright, find_program("chromium-headless-shell") or chromium(), WITHOUT_GL)


@pytest.fixture(scope="session")
def gl_browser(playwright: Playwright) -> Iterator[Browser]:
    """Start a browser for pages that draw with WebGL. The headless shell needs five times its CPU time for them."""
    yield from _launched(playwright, chromium(), WITHOUT_FEATURES)


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Start a cluster whose coordinator serves the pages. Its worker has two lanes with a lower CPU priority than the
    browser.
    """
    require((DIST / "cluster.html").exists(), "there is no web/dist: cd web && npm ci && npm run build")
    cluster = Live(tmp_path_factory.mktemp("pages"), nice=10, PAGES_DIR=str(DIST))
    try:
        yield cluster.start()
    finally:
        cluster.stop()


Open = Callable[..., Page]


@pytest.fixture
def open_address(browser: Browser) -> Iterator[Open]:
    """Return a function that opens a URL. The test fails if the console has an unexpected message."""
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def heard(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not NETWORK.search(message.text):
            complaints.append(f"{message.type}: {message.text} ({message.location.get('url', '')})")

    def opened(address: str, *, theme: str = "light", **options: Any) -> Page:
        context = browser.new_context(color_scheme=theme, **{"viewport": DESKTOP, **options})  # type: ignore[arg-type]
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", heard)
        page.on("pageerror", lambda error: complaints.append(f"uncaught: {error}"))
        page.goto(address)
        page.locator(".connection:not([data-state=connecting])").wait_for()
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not complaints, complaints


@pytest.fixture
def open_page(open_address: Open, pages: Live) -> Open:
    """Return a function that opens a page of the cluster."""

    def opened(path: str = "/cluster.html", *, url: str | None = None, **options: Any) -> Page:
        return open_address((url or pages.url()) + path, **options)

    return opened


@pytest.fixture
def page(open_page: Open) -> Page:
    """Open the Cluster page with desktop size and the light theme."""
    return open_page()


#: Names of the header's links to the parts of the Cluster page.
PARTS = {"overview": "Home", "hosts": "Machines", "workers": "Machines", "gpus": "Machines"}


def go(page: Page, part: str) -> None:
    """Open a part of the Cluster page from the header."""
    if (menu := page.get_by_role("button", name="Menu")).is_visible():
        menu.click()
    name = PARTS.get(part, part.capitalize())
    page.get_by_role("navigation", name="Pages").get_by_role("link", name=name).click()
    if name == "Machines":
        page.get_by_role("tab", name=re.compile(part, re.IGNORECASE)).click()
    expect(page.locator(f"#panel-{part}")).to_be_visible()


def shot(page: Page, name: str) -> Path:
    """Save a screenshot for people in tests/browser/screenshots."""
    SCREENSHOTS.mkdir(exist_ok=True)
    path = SCREENSHOTS / f"{name}.png"
    page.screenshot(path=path)
    return path


def violations(page: Page) -> list[str]:
    """Return axe's violations of WCAG 2.2 AA, one line each: rule, number of elements, and the first element."""
    require(AXE.exists(), "there is no axe-core: cd web && npm ci")
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text() + "; undefined")
    return [
        f"{one['id']} x{len(one['nodes'])}: {one['nodes'][0]['target']} {one['nodes'][0]['failureSummary']}"
        for one in page.evaluate(SCAN, WCAG)
    ]


def in_both_themes(page: Page) -> Iterator[str]:
    """Switch the page to the light theme, then to the dark theme, as a change of the system setting does."""
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        yield theme


def settled(page: Page) -> None:
    """Wait until all data is loaded and the last change is drawn."""
    expect(page.locator("[aria-busy=true]")).to_have_count(0)
    page.evaluate(DRAWN)


def by_keys(page: Page, keys: str, shown: Locator) -> None:
    """Press keys until an element is visible. Keys of a sequence only count within 1.2 s, so slow machines need
    retries.
    """
    for _ in range(8):
        for key in keys:
            page.keyboard.press(key)
        with suppress(AssertionError):
            expect(shown).to_be_visible(timeout=5000)
            return
    raise AssertionError(f"{keys} shows nothing: {shown}")


def focused_row(page: Page, name: str) -> None:
    """Wait until the focus is in the row with this name."""
    page.wait_for_function("name => document.activeElement.closest('tr')?.dataset.row === name", arg=name)


#: Returns the number of text lines and the text of each visible element.
LINES = """selector => [...document.querySelectorAll(selector)].filter(each => each.offsetParent).map(each => {
  const texts = document.createTreeWalker(each, NodeFilter.SHOW_TEXT), boxes = [];
  while (texts.nextNode()) {
    const range = document.createRange();
    range.selectNodeContents(texts.currentNode);
    boxes.push(...[...range.getClientRects()].filter(box => box.width > 1));
  }
  boxes.sort((one, other) => one.top - other.top);
  let lines = 0, bottom = -Infinity;
  for (const box of boxes) if (box.top >= bottom - 3) [lines, bottom] = [lines + 1, box.bottom];
  return [lines, each.innerText.replaceAll(/\\s+/g, " ")];
})"""


def wrapped(page: Page, selector: str) -> list[str]:
    """Return the texts of matching elements with several lines. Raises AssertionError if no element matches."""
    found = page.evaluate(LINES, selector)
    assert found, f"nothing is {selector}"
    return [text for lines, text in found if lines > 1]


def overflow(page: Page) -> int:
    """Return by how many pixels the page is wider than its window."""
    wide: int = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return wide
