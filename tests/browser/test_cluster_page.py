"""Tests the Cluster page: from submission to result, live updates, a killed coordinator, the keyboard, and phones."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from jobs.store import Store
from jobs.store.server import connection
from tests.browser.conftest import (
    DIST,
    PHONE,
    Open,
    by_keys,
    focused_row,
    go,
    in_both_themes,
    overflow,
    settled,
    shot,
    violations,
)
from tests.integration.live import Live, until

PARTS = ("overview", "gpus", "hosts", "workers", "jobs", "monitoring", "admin")
#: Parameters of a job that runs for hours, and of a job that finishes immediately.
LONG = {"start_number": 10**15, "number_count": 10**13}
SHORT = {"start_number": 1, "number_count": 1000}


def row(page: Page, job: str) -> Locator:
    return page.locator(f'tr[data-row="{job}"]')


@pytest.fixture
def long_job(pages: Live) -> Iterator[str]:
    """Run a job for hours, unless the test cancels it."""
    job = pages.submit("collatz", LONG)
    yield job
    pages.post(f"/api/jobs/{job}/cancel")
    until(lambda: pages.job(job)["state"] in ("cancelled", "done"))


def test_a_job_from_the_form_to_its_result(page: Page, pages: Live) -> None:
    page.keyboard.press("n")
    form = page.get_by_role("dialog", name="New job")
    form.get_by_label("kind", exact=True).select_option("collatz")
    form.get_by_label("start number").fill("2^61 - 1")
    expect(form.get_by_label("start number")).to_have_attribute("aria-invalid", "true")
    form.get_by_label("start number").fill("1")
    form.get_by_label("number count").fill("1e3")
    shot(page, "new-job-light")
    form.get_by_role("button", name="Submit").click()
    shown = page.get_by_role("region", name=re.compile("^Job "))
    expect(shown.get_by_text("done", exact=True).first).to_be_visible()
    # Of all numbers up to 1000, n = 871 has the longest trajectory: 178 steps.
    expect(shown.locator(".figures")).to_contain_text("871")
    expect(shown.locator(".figures")).to_contain_text("178")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Collatz")
    job = page.url.split("job=")[1].split("&")[0]
    assert pages.job(job)["parameters"]["number_count"] == 1000
    expect(shown.get_by_role("link", name="Open in Collatz")).to_have_attribute("href", f"/collatz.html#job={job}")
    shot(page, "job-done-light")


def test_what_the_api_refuses_stands_at_its_field(page: Page) -> None:
    page.keyboard.press("n")
    form = page.get_by_role("dialog", name="New job")
    form.get_by_label("kind", exact=True).select_option("thread")
    form.get_by_label("cores").fill("8, 99")
    form.get_by_role("button", name="Submit").click()
    expect(form.get_by_role("alert")).to_contain_text("Refused: cores")
    expect(form).not_to_contain_text("parameters.cores")
    expect(form.get_by_label("cores")).to_have_attribute("aria-invalid", "true")
    expect(form.get_by_label("cores")).to_be_focused()
    shot(page, "new-job-refused-light")
    form.get_by_label("cores").fill("8")
    # A closed form keeps its values.
    page.keyboard.press("Escape")
    expect(form).to_be_hidden()
    page.keyboard.press("n")
    expect(form.get_by_label("kind", exact=True)).to_have_value("thread")


def test_a_submission_is_copied_as_curl_and_python(open_page: Open, pages: Live) -> None:
    page = open_page(permissions=["clipboard-read", "clipboard-write"])
    page.keyboard.press("n")
    form = page.get_by_role("dialog", name="New job")
    form.get_by_role("button", name="Fill in an example").click()
    form.get_by_role("button", name="Copy as curl").click()
    expect(page.get_by_text("Copied as curl")).to_be_visible()
    command = page.evaluate("navigator.clipboard.readText()")
    assert f"{pages.url()}/api/submit" in command
    sent = json.loads(command.split("-d '", 1)[1].removesuffix("'"))
    assert pages.submit(sent["type"], sent["parameters"])
    form.get_by_role("button", name="Copy as Python").click()
    expect(page.get_by_text("Copied as Python")).to_be_visible()
    compile(page.evaluate("navigator.clipboard.readText()"), "copied", "exec")


def test_progress_is_live_and_cancel_is_honest(page: Page, pages: Live, long_job: str) -> None:
    go(page, "jobs")
    bar = page.locator(f'tr[data-row="{long_job}"] [role=progressbar]')
    expect(row(page, long_job)).to_contain_text("running")
    first = _width(page, long_job)
    until(lambda: _width(page, long_job) > first)
    expect(bar).to_have_attribute("aria-valuenow", re.compile(r"\d+"))
    expect(row(page, long_job).locator(".col-rate")).to_contain_text(re.compile(r"\d"))
    row(page, long_job).locator(".opens").click()
    shown = page.get_by_role("region", name=f"Job {long_job}")
    ran = shown.locator("dt", has_text=re.compile("^ran$")).locator("xpath=following-sibling::dd[1]")
    before = ran.inner_text()
    expect(ran).not_to_have_text(before)
    shown.get_by_role("button", name="Cancel").first.click()
    page.get_by_role("dialog", name=re.compile("Cancel job")).get_by_role("button", name="Cancel job").click()
    for state in ("cancelling", "cancelled"):
        expect(shown.get_by_role("list", name="Events of this job")).to_contain_text(state)
    assert pages.job(long_job)["state"] == "cancelled"


def _width(page: Page, job: str) -> float:
    bar = page.locator(f'tr[data-row="{job}"] [role=progressbar] i')
    wide: float = bar.evaluate("each => parseFloat(each.style.width)")
    return wide


def test_the_page_lives_on_when_its_coordinator_dies_and_comes_back(page: Page, pages: Live, long_job: str) -> None:
    go(page, "jobs")
    expect(row(page, long_job)).to_contain_text("running")
    pages.kill("coordinator-0")
    state = page.locator(".connection")
    expect(state).to_have_attribute("data-state", "reconnecting")
    expect(page.locator(".banner")).to_contain_text("Showing data from")
    expect(row(page, long_job)).to_be_visible()
    shot(page, "reconnecting-light")
    before = _width(page, long_job)
    pages.start_coordinator()
    expect(state).to_have_attribute("data-state", "live")
    expect(page.locator(".banner")).to_be_hidden()
    until(lambda: _width(page, long_job) > before)
    newer = pages.submit("collatz", SHORT)
    # A worker looks for other jobs every five seconds.
    expect(row(page, newer)).to_contain_text("done")


def test_the_page_comes_back_through_502(page: Page, pages: Live) -> None:
    """nginx answers 502 while no coordinator is running, after which EventSource would never reconnect."""
    asked: list[str] = []

    def bad_gateway(route: Route) -> None:
        asked.append(route.request.url)
        route.fulfill(status=502, content_type="application/problem+json", body='{"detail": "no coordinator answers"}')

    page.route("**/api/**", bad_gateway)
    pages.kill("coordinator-0")
    expect(page.locator(".banner")).to_contain_text("502: no coordinator answers")
    page.wait_for_timeout(6000)  # time in which the page repeats its requests
    assert 1 <= len(asked) <= 12, f"a dead server is hammered: {len(asked)} calls in some seconds"
    pages.start_coordinator()
    page.unroute("**/api/**")
    expect(page.locator(".connection")).to_have_attribute("data-state", "live")


def test_an_empty_and_an_unknown_job_say_so(page: Page) -> None:
    page.goto(page.url.split("#")[0] + "#tab=jobs&filter=id:zzzz")
    expect(page.get_by_role("heading", name="No job matches the filter")).to_be_visible()
    # A link to a job in the list, as in earlier versions, opens the job's page.
    page.goto(page.url.split("#")[0] + "#tab=jobs&job=ffffffffffffffff")
    expect(page.get_by_role("alert")).to_contain_text("Job ffffffffffffffff does not exist")
    shot(page, "unknown-job-light")


def test_everything_by_keys_alone(page: Page, pages: Live) -> None:
    done = pages.submit("collatz", SHORT)
    pages.result(done)
    by_keys(page, "gj", page.locator("#panel-jobs"))
    page.keyboard.press("/")
    page.keyboard.type(f"id:{done}")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.keyboard.press("Enter")
    focused_row(page, done)
    page.keyboard.press("x")
    expect(page.get_by_text("1 selected")).to_be_visible()
    page.keyboard.press("x")
    expect(page.get_by_text("1 selected")).to_be_hidden()
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name=f"Job {done}")).to_be_visible()
    page.keyboard.press("4")
    expect(page.get_by_role("tab", name="Result")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("[")
    expect(page).to_have_url(re.compile(f"job={done}&tab=units"))
    page.keyboard.press("J")
    expect(page.locator("#panel-jobs")).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_contain_text("next job")
    shot(page, "keys-light")
    page.keyboard.press("Escape")
    for key, tab in (("o", "overview"), ("g", "gpus"), ("w", "workers"), ("m", "monitoring")):
        by_keys(page, f"g{key}", page.locator(f"#panel-{tab}"))


def test_rows_are_moved_through_and_stay_while_the_stream_is_paused(page: Page, pages: Live) -> None:
    first, second = pages.submit("collatz", SHORT), pages.submit("collatz", SHORT)
    pages.result(second)
    go(page, "jobs")
    expect(row(page, second)).to_contain_text("done")
    expect(row(page, first)).to_be_visible()
    for key, job in (("j", second), ("j", first), ("k", second)):
        page.keyboard.press(key)
        focused_row(page, job)
    page.keyboard.press("p")
    expect(page.get_by_role("button", name="Paused: resume")).to_be_visible()
    newer = pages.submit("collatz", SHORT)
    pages.result(newer)
    page.wait_for_timeout(1500)
    expect(row(page, newer)).to_have_count(0)
    page.keyboard.press("p")
    expect(row(page, newer)).to_be_visible()


def test_many_jobs_are_cancelled_and_retried_at_once(page: Page, pages: Live) -> None:
    jobs = [pages.submit("collatz", LONG, priority="low") for _ in range(3)]
    go(page, "jobs")
    page.get_by_label("Filter jobs").fill("queue:any.low -state:cancelled -state:done")
    for job in jobs:
        expect(row(page, job)).to_be_visible()
    page.get_by_label("Select all shown jobs").check()
    bulk = page.get_by_role("group", name="Selected jobs")
    expect(bulk).to_contain_text("3 selected")
    shot(page, "selected-light")
    bulk.get_by_role("button", name="Pause 3").click()
    page.get_by_label("Filter jobs").fill("queue:any.low state:paused")
    for job in jobs:
        expect(row(page, job)).to_contain_text("paused")
    page.get_by_label("Select all shown jobs").check()
    bulk.get_by_role("button", name="Cancel 3").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    page.get_by_label("Filter jobs").fill("queue:any.low state:cancelled")
    for job in jobs:
        expect(row(page, job)).to_contain_text("cancelled")
        assert until(lambda: pages.job(job)["state"] == "cancelled")  # noqa: B023
    row(page, jobs[0]).locator(".opens").focus()
    page.keyboard.press("r")
    until(lambda: pages.job(jobs[0])["state"] in ("queued", "running"))
    pages.post(f"/api/jobs/{jobs[0]}/cancel")


def test_a_failed_job_says_why_and_raises_an_alert(page: Page, pages: Live) -> None:
    job = pages.submit("faulty", {"units": 5, "fault": "raise", "at": 3})
    pages.wait_for(job, "failed", 60)
    go(page, "jobs")
    page.get_by_label("Filter jobs").fill("state:failed")
    why = pages.job(job)["error"]
    assert why
    expect(row(page, job)).to_contain_text(why)
    row(page, job).locator(".opens").click()
    expect(page.get_by_role("region", name=f"Job {job}").get_by_role("alert")).to_contain_text(why)
    shot(page, "job-failed-light")
    go(page, "monitoring")
    expect(row(page, "jobs-failed/faulty")).to_contain_text("firing")
    expect(page.get_by_role("navigation").get_by_role("link", name="Monitoring")).to_contain_text("1 firing")
    shot(page, "alert-light")
    row(page, "jobs-failed/faulty").get_by_role("button").click()
    expect(page.get_by_role("navigation").get_by_role("link", name="Monitoring")).not_to_contain_text("firing")


def test_a_worker_is_drained_and_let_work_again(page: Page, pages: Live) -> None:
    go(page, "workers")
    expect(page.locator(".worker-counts")).to_contain_text(re.compile(r"CPU workers\s*1 live, \d+ suggested"))
    page.get_by_role("button", name="Drain: worker-0").click()
    page.get_by_role("dialog").get_by_role("button", name="Drain").click()
    worker = row(page, "worker-0")
    expect(worker).to_contain_text(re.compile("drain(ing|ed)"))
    shot(page, "drained-light")
    page.get_by_role("button", name="Resume: worker-0").click()
    expect(worker).to_contain_text(re.compile("idle|busy"))


def test_the_stream_shows_who_computed_what(page: Page, pages: Live, long_job: str) -> None:
    until(lambda: any(span["job_id"] == long_job for span in pages.get("/api/stream?seconds=60")["spans"]))
    figure = page.locator("figure", has_text="Worker stream")
    expect(figure.get_by_role("img")).to_have_attribute("aria-label", re.compile("[12] compute now"))
    figure.scroll_into_view_if_needed()

    def told() -> object:
        box = figure.locator("canvas").bounding_box()
        assert box
        page.mouse.move(box["x"] + box["width"] - 12, box["y"] + box["height"] - 30)
        settled(page)
        return re.search("Collatz.*(computing now|units)", figure.locator(".readout").inner_text())

    until(told)
    page.keyboard.press("Shift+T")
    expect(figure.get_by_role("table")).to_contain_text(long_job)


def test_usage_is_shown_by_day_and_tenant(page: Page, pages: Live) -> None:
    job = pages.submit("collatz", {"start_number": 1, "number_count": 1000})
    pages.wait_for(job, "done", 60)
    go(page, "monitoring")
    usage = page.get_by_role("region", name="Usage by day")
    expect(usage).to_contain_text("default")
    expect(usage).to_contain_text("collatz")


def test_the_history_has_one_clock_and_a_table(page: Page) -> None:
    go(page, "monitoring")
    figure = page.locator("figure", has_text="Busy lanes")
    expect(figure.get_by_role("img")).to_have_attribute("aria-label", re.compile(r"busy \d"))
    figure.scroll_into_view_if_needed()

    def one_clock() -> bool:
        box = figure.locator("canvas").bounding_box()
        assert box
        page.mouse.move(box["x"] + box["width"] - 60, box["y"] + 40)
        settled(page)
        times = page.locator(".charts .legend li:first-child").all_inner_texts()
        return len(set(times)) == 1 and bool(re.fullmatch(r"\d\d:\d\d:\d\d", times[0]))

    until(one_clock)


@pytest.fixture
def gpus(pages: Live) -> Iterator[None]:
    """Report two GPU workers by heartbeats. One GPU is computing, the other one is held by a job without being used."""
    store = Store(connection.connect(f"redis://127.0.0.1:{pages.redis_port}/0"))
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(0.5):
            for number, used in enumerate((0.93, 0.0)):
                gpu = {
                    "uuid": f"GPU-{number}",
                    "index": number,
                    "name": "Test GPU",
                    "utilization_ratio": used,
                    "memory_used_bytes": (3 + 40 * number) << 30,
                    "memory_total_bytes": 80 << 30,
                    "temperature_celsius": 61.0 - 20 * number,
                    "power_watts": 540.0 if used else 71.0,
                }
                facts: dict[str, Any] = {
                    "device": "gpu",
                    "state": "busy",
                    "lanes": 1,
                    "busy_lanes": 1,
                    "job": "0123456789abcdef",
                }
                store.fleet.heartbeat(f"gpu-{number}", "1", {**facts, "cpu_ratio": 0.2, "gpus": json.dumps([gpu])})

    beating = threading.Thread(target=beat)
    beating.start()
    yield
    ended.set()
    beating.join()
    for number in range(2):
        store.fleet.heartbeat(f"gpu-{number}", "1", {"state": "stopped"}, leaving=True)


def test_gpus_are_all_on_one_screen_and_waste_is_marked(open_page: Open, gpus: None) -> None:
    page = open_page("/cluster.html#tab=gpus")
    first, second = page.get_by_role("region", name="gpu-0 #0"), page.get_by_role("region", name="gpu-1 #1")
    expect(second).to_contain_text("held, idle")
    expect(first).to_contain_text("01234567")
    expect(first).not_to_contain_text("held, idle")
    expect(first.get_by_role("img").first).to_have_attribute("aria-label", re.compile("Utilization.*93"))
    page.wait_for_timeout(1500)
    shot(page, "gpus-two-light")
    assert violations(page) == []
    go(page, "overview")
    expect(page.locator(".gpu-strip li")).to_have_count(2)
    shot(page, "overview-gpus-light")
    go(page, "workers")
    expect(row(page, "gpu-1")).to_contain_text("gpu")
    expect(page.locator(".worker-counts")).to_contain_text(re.compile(r"GPU workers\s*2 live, 0 suggested"))


def test_a_cluster_with_a_token_asks_for_it(open_page: Open, tmp_path: Path) -> None:
    locked = Live(tmp_path, PAGES_DIR=str(DIST), CLUSTER_TOKEN="a-long-secret")
    try:
        locked.start_redis()
        locked.start_coordinator()
        page = open_page(url=locked.url())
        dialog = page.get_by_role("dialog", name="Log in")
        dialog.get_by_label("Token").fill("wrong")
        dialog.get_by_role("button", name="Log in").click()
        expect(dialog).to_contain_text("this token is unknown, was revoked or has expired")
        shot(page, "sign-in-light")
        dialog.get_by_label("Token").fill("a-long-secret")
        dialog.get_by_role("button", name="Log in").click()
        expect(page.locator(".connection")).to_have_attribute("data-state", "live")
        go(page, "workers")
        expect(page.get_by_role("heading", name="No worker is live")).to_be_visible()
        shot(page, "no-workers-light")
        go(page, "jobs")
        expect(page.get_by_role("heading", name="No jobs yet")).to_be_visible()
        shot(page, "no-jobs-light")
    finally:
        locked.stop()


@pytest.mark.parametrize("width", ["desktop", "phone"])
def test_every_tab_is_whole_and_accessible(open_page: Open, pages: Live, long_job: str, width: str) -> None:
    options = {"viewport": PHONE, "has_touch": True} if width == "phone" else {}
    page = open_page(**options)
    for tab in PARTS:
        go(page, tab)
        whole(page, tab, width)
    go(page, "jobs")
    row(page, long_job).locator(".opens").click()
    expect(page.get_by_role("region", name=f"Job {long_job}").get_by_text("running").first).to_be_visible()
    whole(page, "job", width)
    page.get_by_role("link", name="Edit and rerun").click()
    expect(page.get_by_label("start number")).to_have_value(str(LONG["start_number"]))
    whole(page, "form", width)


def whole(page: Page, part: str, width: str) -> None:
    """Check that the page does not overflow and that axe finds no violation in both themes."""
    for theme in in_both_themes(page):
        settled(page)
        shot(page, f"{part}-{theme}-{width}")
        assert violations(page) == [] and overflow(page) == 0, f"{part} in {theme}"
