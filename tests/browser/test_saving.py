"""Tests saving pictures with their title, as PNG with double resolution and as SVG."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Open, settled, violations
from tests.integration.live import Live


@pytest.fixture
def page(open_page: Open, pages: Live) -> Page:
    """Open a job whose result has a histogram."""
    job = pages.submit("collatz", {"start_number": 1, "number_count": 1000})
    pages.wait_for(job, "done")
    return open_page(f"/job.html#job={job}&tab=result")


def test_a_histogram_is_saved_as_pixels_and_as_lines(page: Page) -> None:
    figure = page.locator("figure", has=page.locator(".histogram")).first
    figure.scroll_into_view_if_needed()
    figure.hover()
    title = figure.get_by_role("heading").inner_text()
    box = figure.locator("canvas").bounding_box()
    assert box
    saved = {}
    for form in ("PNG", "SVG"):
        figure.get_by_role("button", name=f"Save {title} as a file").click()
        dialog = page.get_by_role("dialog", name="Save picture")
        expect(dialog).to_contain_text(title)
        settled(page)
        assert violations(page) == []
        with page.expect_download() as download:
            dialog.get_by_role("button", name=form).click()
        expect(dialog).to_be_hidden()
        saved[form] = download.value
    assert [each.suggested_filename.rpartition(".")[2] for each in saved.values()] == ["png", "svg"]
    png = Path(saved["PNG"].path()).read_bytes()
    wide, high = struct.unpack(">II", png[16:24])
    # The file has twice the size of the canvas and its margins, with the title and a description above.
    assert wide == 2 * (round(box["width"]) + 32) and high > 2 * (box["height"] + 60)
    svg = Path(saved["SVG"].path()).read_text()
    assert f">{title}</text>" in svg and "1000 values" in svg.replace("\u202f", "")
    assert svg.count("<rect") > 20, "bars are rectangles, not pixels"
    assert (
        page.evaluate(
            "text => new DOMParser().parseFromString(text, 'image/svg+xml').querySelector('parsererror')", svg
        )
        is None
    )
