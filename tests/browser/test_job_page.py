"""Tests the page of a job with programs against a fake coordinator: failures, logs of all units, and values."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from jobs.kinds.command.parameters import Parameters
from tests.browser.conftest import DIST, PHONE, Open, in_both_themes, overflow, settled, shot, violations
from tests.browser.programs import JOB, Programs, served


def test_a_failed_job_shows_its_first_failed_log_all_logs_and_charts(open_address: Open) -> None:
    programs = Programs(12, Parameters.model_json_schema())
    programs.set("done", *range(12))
    programs.set("dead", 4, 7)
    programs.logs = {unit: b"step %d\nloss %d\n" % (unit, unit * 2) for unit in range(12)}
    with served(programs, DIST) as url:
        page = open_address(f"{url}/job.html#job={JOB}")
        # The overview contains the log of the first failed unit.
        expect(page.get_by_role("log")).to_contain_text("loss 8")
        expect(page.get_by_role("region", name="Failures by error")).to_contain_text("timeout, exit 137")
        whole(page, "job-overview")
        page.get_by_role("tab", name="Overview").press("ArrowRight")
        expect(page).to_have_url(re.compile("tab=units"))
        page.get_by_role("tab", name="Logs").click()
        logs = page.get_by_role("region", name="Logs of all units")
        expect(logs.get_by_role("heading")).to_have_count(12)
        logs.get_by_label("Search all logs").fill("loss 14")
        expect(logs.locator("p[data-stream]")).to_have_text(["loss 14"])
        whole(page, "job-logs")
        page.get_by_role("tab", name="Result").click()
        expect(page.get_by_role("img", name=re.compile("^loss by unit: 10 units"))).to_be_visible()
        whole(page, "job-values")
        page.set_viewport_size(PHONE)
        for tab in ("Overview", "Units", "Logs", "Result", "Configuration"):
            page.get_by_role("tab", name=tab).click()
            settled(page)
            shot(page, f"job-{tab.lower()}-phone")
            assert overflow(page) == 0, tab


def whole(page: Page, part: str) -> None:
    """Check that the page does not overflow and that axe finds no violation in both themes."""
    for theme in in_both_themes(page):
        settled(page)
        shot(page, f"{part}-{theme}")
        assert violations(page) == [] and overflow(page) == 0, f"{part} in {theme}"
