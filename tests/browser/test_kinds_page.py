"""Tests the page of all kinds: forms generated from schemas, live progress, and results as figures, tables and
histograms.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import PHONE, Open, in_both_themes, overflow, settled, shot, violations
from tests.integration.live import Live, until


def form(page: Page) -> Locator:
    return page.get_by_role("region", name="New job")


def test_the_list_names_every_kind_and_leads_to_its_form(open_page: Open, pages: Live) -> None:
    page = open_page("/cluster.html")
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Run").click()
    table = page.get_by_role("region", name="Kinds of job")
    for kind in pages.get("/api/job-types")["kinds"]:
        expect(table.get_by_role("link", name=kind["type"], exact=True)).to_be_visible()
    expect(table.get_by_role("link", name="Collatz", exact=True)).to_have_attribute("href", "/collatz.html")
    table.get_by_role("link", name="paced").click()
    expect(page.get_by_role("heading", name="paced")).to_be_visible()
    expect(page).to_have_url(re.compile("/kinds.html#kind=paced$"))
    page.go_back()
    expect(table).to_be_visible()


def test_a_kind_without_a_page_goes_from_its_form_to_its_result(open_page: Open, pages: Live) -> None:
    page = open_page("/kinds.html#kind=paced", permissions=["clipboard-read", "clipboard-write"])
    new = form(page)
    units = new.get_by_label("units", exact=True)
    # Bounds and defaults come from the schema.
    expect(units).to_have_attribute("placeholder", "100")
    units.fill("0")
    expect(units).to_have_attribute("aria-invalid", "true")
    units.fill("5e2")
    new.get_by_label("cpu seconds per unit").fill("0.03")
    new.get_by_role("button", name="Submit").click()
    job = page.get_by_role("region", name=re.compile("^Job "))
    expect(job.get_by_text("running", exact=True).first).to_be_visible()
    # The page shows live progress, the rate and the remaining time.
    bar = job.get_by_role("progressbar")
    until(lambda: int(bar.get_attribute("aria-valuenow") or 0) > 0)
    expect(job.get_by_text(re.compile(r"units/s"))).to_be_visible()
    expect(job.get_by_text(re.compile(r" left$"))).to_be_visible()
    # Pause the job, so that it does not finish before the next check.
    name = (job.get_attribute("aria-label") or "").removeprefix("Job ")
    assert pages.post(f"/api/jobs/{name}/pause").is_success
    page.get_by_role("tab", name="Result").click()
    job.get_by_role("button", name="Show partial result").click()
    expect(job.get_by_role("heading", name="Partial result")).to_be_visible()
    shot(page, "kind-running-light-desktop")
    assert pages.post(f"/api/jobs/{name}/resume").is_success
    expect(job.get_by_text("done", exact=True).first).to_be_visible(timeout=150_000)
    expect(job.get_by_role("heading", name="Result", exact=True)).to_be_visible()
    expect(job.locator(".figures")).to_contain_text(re.compile(r"sum\s*124.750"))
    job.get_by_role("button", name="Copy as JSON").click()
    expect(page.get_by_text("Copied as JSON")).to_be_visible()
    assert json.loads(page.evaluate("navigator.clipboard.readText()")) == {"sum": 124750}
    shot(page, "kind-done-light-desktop")


def test_a_job_is_cancelled_and_its_parameters_go_back_into_the_form(open_page: Open, pages: Live) -> None:
    made = pages.submit("paced", {"units": 100_000, "cpu_seconds_per_unit": 0.5})
    page = open_page(f"/job.html#job={made}")
    job = page.get_by_role("region", name=f"Job {made}")
    expect(job.get_by_text("running", exact=True).first).to_be_visible()
    job.get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel job").click()
    expect(job.get_by_text("cancelled", exact=True).first).to_be_visible()
    job.get_by_role("link", name="Edit and rerun").click()
    expect(form(page).get_by_label("units", exact=True)).to_have_value("100000")
    # The URL contains the form's values, so that users can share it.
    expect(page).to_have_url(re.compile("set=units:100000"))
    page.reload()
    expect(form(page).get_by_label("units", exact=True)).to_have_value("100000")


def test_what_the_api_refuses_stands_at_its_field(open_page: Open) -> None:
    page = open_page("/kinds.html#kind=faulty")
    new = form(page)
    expect(new.get_by_label("fault", exact=True).get_by_role("option")).to_have_text(
        ["none", "crash", "hang", "raise", "result", "wait"]
    )
    new.get_by_label("max lease seconds").fill("a while")
    new.get_by_role("button", name="Submit").click()
    expect(new.get_by_role("alert")).to_contain_text("Refused: max_lease_seconds")
    expect(new.get_by_label("max lease seconds")).to_have_attribute("aria-invalid", "true")
    # A text that looks like a number remains a text.
    new.get_by_label("max lease seconds").fill("")
    new.get_by_label("once").fill("5")
    expect(page).to_have_url(re.compile("set=once"))
    page.reload()
    expect(new.get_by_label("once")).to_have_value("5")
    new.get_by_role("button", name="Submit").click()
    expect(page.get_by_role("region", name=re.compile("^Job "))).to_contain_text("done")


def test_a_failed_job_says_why(open_page: Open, pages: Live) -> None:
    failed = pages.submit("faulty", {"units": 5, "fault": "raise", "at": 3})
    pages.wait_for(failed, "failed", 60)
    page = open_page(f"/job.html#job={failed}")
    job = page.get_by_role("region", name=f"Job {failed}")
    expect(job.get_by_role("alert")).to_contain_text(pages.job(failed)["error"])
    expect(job.get_by_role("button", name="Retry")).to_be_visible()


def test_a_result_has_tables_and_a_histogram_where_it_says_so(open_page: Open, pages: Live, tmp_path: Path) -> None:
    made = pages.submit("collatz", {"start_number": 1, "number_count": 1000})
    result = pages.result(made)
    page = open_page(f"/job.html#job={made}&tab=result")
    job = page.get_by_role("region", name=f"Job {made}")
    expect(job.locator(".figures")).to_contain_text(re.compile(r"at n\s*871"))
    picture = job.locator("figure", has_text="delay histogram").get_by_role("img")
    expect(picture).to_have_attribute("aria-label", re.compile("1.000 values"))
    records = job.locator("details", has_text="records delay")
    expect(records.get_by_role("row")).to_have_count(1 + len(result["records"]["delay"]))
    with page.expect_download() as saved:
        records.get_by_role("button", name="Save as CSV").click()
    saved.value.save_as(tmp_path / "records.csv")
    assert (tmp_path / "records.csv").read_text().splitlines()[:2] == ["n,value", "1,0"]
    page.keyboard.press("Shift+T")
    expect(job.locator("figure").get_by_role("table").first).to_be_visible()
    expect(job.get_by_role("link", name="Open in Collatz")).to_have_attribute("href", f"/collatz.html#job={made}")


@pytest.mark.parametrize("width", ["desktop", "phone"])
def test_the_page_is_whole_and_accessible(open_page: Open, pages: Live, width: str) -> None:
    options = {"viewport": PHONE, "has_touch": True} if width == "phone" else {}
    made = pages.submit("thread", {"thread_count": 20, "max_depth": 3, "replicas": 8, "cores": [2, 4], "seed": 1})
    pages.result(made)
    page = open_page(f"/job.html#job={made}&tab=result", **options)
    expect(page.locator(".figures")).to_contain_text("mean speedup")
    whole(page, f"result-{width}")
    page.get_by_role("link", name="Edit and rerun").click()
    expect(form(page).get_by_label("max depth")).to_have_value("3")
    whole(page, f"kind-{width}")
    page.keyboard.press("Shift+L")
    expect(page.get_by_role("heading", name="Run a job")).to_be_visible()
    whole(page, f"kinds-{width}")


def test_fields_stay_inside_their_form_however_long_their_bounds_are(open_page: Open, pages: Live) -> None:
    """A bound with 29 digits once made its column wider than the form and covered the job next to it."""
    page = open_page("/kinds.html#kind=collatz")
    expect(form(page).get_by_label("start number")).to_be_visible()
    beyond = """form => {
      const right = form.getBoundingClientRect().right;
      const parts = [...form.querySelectorAll("input, select, .hint")];
      return parts.filter(each => each.getBoundingClientRect().right > right + 1).length;
    }"""
    assert form(page).evaluate(beyond) == 0


def whole(page: Page, part: str) -> None:
    """Check that the page does not overflow and that axe finds no violation in both themes."""
    for theme in in_both_themes(page):
        settled(page)
        shot(page, f"{part}-{theme}")
        assert violations(page) == [] and overflow(page) == 0, f"{part} in {theme}"
