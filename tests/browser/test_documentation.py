"""Tests the documentation site in a browser, with both themes and with wide and narrow windows, for console errors."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
import uvicorn
from playwright.sync_api import Browser, Page, expect

from coordinator import app
from jobs.settings import Settings
from tests.browser.conftest import DIST, require
from tests.ports import free_port

PAGES = ("index", "quickstart", "settings", "reference/cluster", "reference/http/jobs", "lease-protocol")


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """Serve the site by a coordinator without Redis, and return its address."""
    require((DIST / "docs/index.html").exists(), "web/dist/docs does not exist: run deploy/documentation.sh")
    port = free_port()
    served = app.create(Settings(pages_dir=str(DIST), redis_url="redis://127.0.0.1:1/0", metrics_port=0))
    server = uvicorn.Server(uvicorn.Config(served, host="127.0.0.1", port=port, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    yield f"http://127.0.0.1:{port}/docs"
    server.should_exit = True
    thread.join()


def watch(page: Page, site: str) -> list[str]:
    """Return a list that receives errors of the page and requests to other hosts."""
    complaints: list[str] = []
    page.on("console", lambda each: complaints.append(each.text) if each.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda each: None if each.url.startswith(site) else complaints.append(each.url))
    return complaints


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_pages_fit_and_load_without_complaints(browser: Browser, site: str, theme: str, width: int) -> None:
    context = browser.new_context(color_scheme=theme, viewport={"width": width, "height": 900})  # type: ignore[arg-type]
    page = context.new_page()
    complaints = watch(page, site)
    for name in PAGES:
        page.goto(f"{site}/{name}.html")
        expected = "slate" if theme == "dark" else "default"
        expect(page.locator("body")).to_have_attribute("data-md-color-scheme", expected)
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, name
    context.close()
    assert complaints == []


def test_the_search_finds_pages(browser: Browser, site: str) -> None:
    context = browser.new_context()
    page = context.new_page()
    complaints = watch(page, site)
    page.goto(f"{site}/")
    page.get_by_role("textbox", name="Search").fill("webhook")
    expect(page.locator(".md-search-result__link").first).to_contain_text("Webhook")
    context.close()
    assert complaints == []
