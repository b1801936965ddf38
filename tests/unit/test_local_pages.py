"""Tests the local cluster's messages about the pages."""

from deploy.local.cluster import PAGES
from deploy.local.shape import CHECKOUT


def test_every_page_is_named() -> None:
    built = {"" if page.name == "index.html" else page.name for page in (CHECKOUT / "web").glob("*.html")}
    assert set(PAGES) == built
    assert len(PAGES) == len(built)
