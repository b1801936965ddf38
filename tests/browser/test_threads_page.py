"""Tests the Threads page: the form, the replicas, and one replica core by core, with mouse and keyboard."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, Playwright, Position, Route, expect

from tests import fetch
from tests.browser.conftest import (
    PHONE,
    RESTED,
    Open,
    chromium,
    in_both_themes,
    overflow,
    settled,
    shot,
    violations,
    wrapped,
)
from tests.integration.live import Live, until

DESK = {"width": 1440, "height": 900}
#: A small program whose replicas differ a lot. Replica 0 has 12 threads and 4 steals, which the tests check against the
#: API.
PROGRAM = {
    "thread_count": 40,
    "max_depth": 5,
    "replicas": 300,
    "cores": 8,
    "seed": 1,
    "scheduler": "work_stealing",
}


@pytest.fixture(scope="module")
def job(pages: Live) -> str:
    """Submit a job and wait until it is done."""
    found = pages.submit("thread", PROGRAM)
    pages.result(found)
    return found


@pytest.fixture
def desk(open_page: Open, job: str) -> Page:
    """Open the job with desktop size, and wait until replica 0 is loaded."""
    page = open_page(f"/index.html#job={job}", viewport=DESK)
    loaded(page, 0)
    return page


def loaded(page: Page, replica: int) -> None:
    expect(page.locator(".tools .num")).to_have_text(f"replica {replica}", timeout=30_000)
    expect(page.locator(".lanes").first).to_be_visible()


def trace(pages: Live, job: str, replica: int, cell: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = pages.get(f"/api/jobs/{job}/trace.json?replica={replica}&cell={cell}&max_events=250000")
    return found


def slices(found: dict[str, Any], *, kind: str = "d") -> list[dict[str, Any]]:
    return [each for each in found["traceEvents"] if each["ph"] == "X" and each["cat"].startswith(kind)]


def counter(page: Page, title: str) -> str:
    entry = page.locator(".counters > div").filter(has=page.locator(f"dt:text-is('{title}')"))
    return plain(entry.locator("dd"))


def measure(page: Page, title: str) -> str:
    return plain(page.locator("#window-statistics tr").filter(has_text=title).locator("td").first)


def plain(at: Locator) -> str:
    """Return an element's text with ordinary spaces."""
    return re.sub(r"[\u202f\u2009\u00a0]", " ", at.inner_text())


def lane_point(page: Page, share: float, core: int, cores: int = 8) -> Position:
    box = page.locator(".lanes").first.bounding_box()
    assert box
    return {"x": 60 + share * (box["width"] - 64), "y": (core + 0.5) * (box["height"] - 20) / cores}


def drag(page: Page, begin: float, end: float, *, shift: bool = False) -> None:
    """Drag over the lanes between two positions, given as fractions of their width."""
    lanes = page.locator(".lanes").first
    lanes.scroll_into_view_if_needed()
    box = lanes.bounding_box()
    assert box
    if shift:
        page.keyboard.down("Shift")
    page.mouse.move(box["x"] + begin * box["width"], box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], box["y"] + 50, steps=8)
    page.mouse.up()
    if shift:
        page.keyboard.up("Shift")


def shows(page: Page, title: str, text: str) -> None:
    """Wait until a counter has this text."""
    until(lambda: counter(page, title) == text)


def hash_of(page: Page, *names: str) -> dict[str, str]:
    """Return the values in the URL's hash once they have these keys."""
    page.evaluate(RESTED)
    until(lambda: all(f"{name}=" in page.evaluate("location.hash") for name in names))
    return dict(part.split("=", 1) for part in page.evaluate("location.hash").removeprefix("#").split("&") if part)


# -- from the form to the picture -----------------------------------------------------------------------------------


def opened_form(open_page: Open) -> tuple[Page, Locator]:
    """Open the page as a first visitor and unfold the form."""
    page = open_page("/index.html", viewport=DESK)
    page.get_by_role("button", name="Your own program").click()
    form = page.locator(".program-form")
    expect(form).to_be_visible()
    return page, form


def test_a_first_visit_sees_a_run_that_plays(open_page: Open, pages: Live) -> None:
    page = open_page("/index.html", viewport=DESK)
    page.get_by_role("button", name="Pause").click()  # the playback takes ten seconds
    created = int(counter(page, "created"))
    assert 40 <= created <= 152  # between the number of roots and the total number of threads
    expect(page.locator(".headlines")).to_contain_text("6.92")
    expect(page.locator(".program-form")).to_have_count(0)
    assert wrapped(page, ".tools, .player, .headlines > div, .header") == []
    page.locator(".player .at input").fill("0")
    # At the start only the roots exist, because the counters refer to the playhead.
    for title, text in (("created", "40"), ("active", "40"), ("steals", "0"), ("busy cores", "8 of 8")):
        shows(page, title, text)
    until(lambda: plain(page.locator(".clock")) == "0 µs")
    shot(page, "threads-empty-light")
    page.get_by_role("button", name="Run it here").click()
    loaded(page, 0)
    expect(page).to_have_url(re.compile("job="))
    job = hash_of(page)["job"]
    assert (pages.job(job)["parameters"]["seed"], pages.job(job)["parameters"]["replicas"]) == (1, 300)
    shows(page, "created", "152")  # this simulator computed the example
    page.go_back()
    expect(page.get_by_role("button", name="Run it here")).to_be_visible()


def test_a_preset_runs_at_a_click(open_page: Open, pages: Live) -> None:
    page = open_page("/index.html", viewport=DESK, reduced_motion="reduce")
    expect(page.get_by_role("button", name="Play")).to_be_visible()  # users who prefer reduced motion see no playback
    page.get_by_role("button", name="Few big tasks").click()
    loaded(page, 0)
    expect(page).to_have_url(re.compile("job="))
    assert pages.job(hash_of(page)["job"])["parameters"]["thread_count"] == 10
    # This run has no steals and no waits, so modes about them are not offered.
    expect(page.get_by_role("button", name="Critical path")).to_be_visible()


def test_a_job_that_is_not_there_is_told(open_page: Open, pages: Live) -> None:
    asked: list[str] = []
    page = open_page("/index.html#job=ffffffffffffffff", viewport=DESK)
    page.on("request", lambda request: asked.append(request.url))
    expect(page.get_by_role("alert")).to_contain_text("There is no job ffffffffffffffff")
    expect(page.locator("[aria-busy=true]")).to_have_count(0)
    expect(page.get_by_role("group", name="Run on this cluster")).to_be_visible()
    short = pages.submit("thread", {**PROGRAM, "replicas": 2})
    pages.result(short)
    page.goto(f"{pages.url()}/index.html#job={short}")
    loaded(page, 0)
    fetch.delete(f"{pages.url()}/api/jobs/{short}").raise_for_status()
    page.reload()
    expect(page.get_by_role("alert")).to_contain_text(f"There is no job {short}")
    assert len([url for url in asked if "/api/jobs/ffff" in url]) <= 1


def test_a_program_from_the_form_to_its_picture(open_page: Open, pages: Live) -> None:
    page, form = opened_form(open_page)
    for name, value in (("cores", "4"), ("max depth", "4"), ("thread count", "30"), ("replicas", "2^6"), ("seed", "7")):
        form.get_by_label(name, exact=True).fill(value)
    expect(form.get_by_text("threads in a replica")).to_be_visible()
    shot(page, "threads-form-light")
    form.get_by_role("button", name="Start").click()
    loaded(page, 0)
    expect(page).to_have_url(re.compile("job="))
    job = hash_of(page)["job"]
    parameters = pages.job(job)["parameters"]
    assert (parameters["cores"], parameters["replicas"], parameters["seed"]) == (4, 64, 7)
    result = pages.result(job)["cells"][0]["metrics"]
    expect(page.locator(".headlines")).to_contain_text(f"{result['speedup']['mean']:.3g}")
    found = trace(pages, job, 0)
    shows(page, "created", str(len({each["args"]["path"] for each in slices(found)})))
    shows(page, "steals", str(sum(each["args"]["ok"] for each in slices(found, kind="steal"))))
    shows(page, "active", "0")


def test_what_is_too_big_is_told_before_and_refused_after(open_page: Open) -> None:
    page, form = opened_form(open_page)
    form.get_by_label("work_stealing").uncheck()  # the last scheduler
    expect(form.get_by_text("choose at least one")).to_be_visible()
    form.get_by_label("fifo").check()
    expect(form.get_by_label("work_stealing")).not_to_be_checked()
    form.get_by_label("distribution").first.select_option("fixed")
    form.get_by_label("children").fill("2")
    form.get_by_label("max depth").fill("17")
    expect(form.get_by_text("it will be refused")).to_be_visible()
    form.get_by_role("button", name="Start").click()
    expect(form.get_by_role("alert")).to_contain_text("expected 2.62e+08 threads per replica")
    form.get_by_label("cores").fill("99")
    expect(form.get_by_text("must be 1 to 64")).to_be_visible()
    shot(page, "threads-refused-light")


def test_progress_is_seen_and_a_job_can_be_cancelled(open_page: Open, pages: Live) -> None:
    big = pages.submit("thread", {"replicas": 1_000_000, "seed": 3})
    page = open_page(f"/index.html#job={big}", viewport=DESK)
    expect(page.get_by_role("progressbar")).to_be_visible()
    expect(page.locator(".metrics")).to_contain_text("so far", timeout=60_000)  # the partial result is displayed
    expect(page.locator(".histogram canvas")).to_be_visible()
    expect(page).to_have_title(re.compile(r"on 1 worker - Threads"))
    shot(page, "threads-running-light")
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator(".summary")).to_contain_text("cancelled")
    expect(page.get_by_role("button", name="Retry")).to_be_visible()
    expect(page.locator(".metrics")).to_contain_text("done when it was cancelled")
    expect(page.locator("[aria-busy=true]")).to_have_count(0)


def test_a_job_that_was_cancelled_before_it_began_waits_for_nothing(open_page: Open, pages: Live) -> None:
    first = pages.submit("thread", {"replicas": 1_000_000, "seed": 4})
    body = {"type": "thread", "parameters": PROGRAM, "after": [first]}
    never = pages.post("/api/submit", body).json()["job_id"]
    page = open_page(f"/index.html#job={never}", viewport=DESK)
    expect(page.get_by_role("status").filter(has_text="The picture appears when the result is ready")).to_be_visible()
    pages.post(f"/api/jobs/{never}/cancel")
    pages.post(f"/api/jobs/{first}/cancel")
    for _ in ("seen live", "opened later"):
        expect(page.get_by_text("The job was cancelled, so it has no picture")).to_be_visible()
        expect(page.locator(".summary")).not_to_contain_text("took")  # a job that never started has no duration
        expect(page.locator("[aria-busy=true], .skeleton")).to_have_count(0)
        expect(page.get_by_role("button", name="Retry")).to_be_visible()
        page.reload()


# -- replicas ---------------------------------------------------------------------------------------------------------


def test_a_bar_loads_a_replica_of_its_makespan(desk: Page, pages: Live, job: str) -> None:
    cell = pages.result(job)["cells"][0]
    desk.get_by_role("button", name="Slowest").click()
    loaded(desk, cell["examples"]["slowest"]["replica"])
    until(lambda: counter(desk, "runtime").split()[0] == f"{cell['metrics']['makespan_us']['max'] / 1000:.4g}")
    box = desk.locator(".histogram").bounding_box()
    assert box
    desk.locator(".histogram").click(position={"x": box["width"] * 0.5, "y": 90})
    expect(desk.locator(".tools .num")).not_to_have_text(
        f"replica {cell['examples']['slowest']['replica']}", timeout=60_000
    )
    replica = shown_replica(desk)
    until(lambda: int(hash_of(desk).get("replica", "0")) == replica)
    # The loaded replica's makespan is in the bar that was clicked.
    runtime = trace(pages, job, replica)["otherData"]["until_us"] / 1000
    low, high = (each / 1000 for each in bounds(cell, 0.5, box["width"]))
    assert low <= runtime < high
    # No earlier replica has a makespan in this bar.
    before = pages.result(pages.submit("thread", {**PROGRAM, "replicas": replica})) if replica else None
    if before:
        bins = before["cells"][0]["histograms"]["makespan_ns"]["bins"]
        assert not [index for index, _ in bins if low * 1e6 <= edges(index)[0] < high * 1e6]


def shown_replica(page: Page) -> int:
    """Return the number of the displayed replica, which changes when a replica is loaded."""
    return int(plain(page.locator(".tools .num")).removeprefix("replica ").replace(" ", ""))


def edges(index: int) -> tuple[int, int]:
    if index < 64:
        return index, index + 1
    width = 1 << (index // 64 - 1)
    return (index % 64 + 64) * width, (index % 64 + 65) * width


def bounds(cell: dict[str, Any], share: float, width: float) -> tuple[float, float]:
    """Return the bounds in µs of the bar at a fraction of the histogram's width, computed independently of the page."""
    indexes = [index for index, _ in cell["histograms"]["makespan_ns"]["bins"]]
    each = -(-(indexes[-1] - indexes[0] + 1) // 40)
    bars = [(edges(low)[0] / 1000, edges(low + each - 1)[1] / 1000) for low in range(indexes[0], indexes[-1] + 1, each)]
    at = bars[0][0] + (share * width - 44) / (width - 52) * (bars[-1][1] - bars[0][0])
    return next(bar for bar in bars if bar[0] <= at < bar[1])


def test_quantiles_and_neighbours(desk: Page, pages: Live, job: str) -> None:
    metrics = pages.result(job)["cells"][0]["metrics"]["makespan_us"]
    desk.get_by_role("button", name="Median").click()
    median = pytest.approx(metrics["p50"], rel=0.02)
    until(lambda: trace(pages, job, shown_replica(desk))["otherData"]["until_us"] == median, 60, every=0.2)
    replica = shown_replica(desk)
    expect(desk.locator(".distribution")).not_to_contain_text("looking", timeout=60_000)
    loaded(desk, replica)
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    desk.route("**/trace.json?*", hold, times=1)
    desk.keyboard.press("]")
    until(lambda: desk.evaluate("true") and held)  # Playwright runs route handlers during its calls
    # While the previous picture is visible, the page does not name the new replica as shown.
    expect(desk.locator(".distribution")).to_contain_text(f"Loading replica {replica + 1}")
    expect(desk.locator(".distribution")).not_to_contain_text("Shown")
    expect(desk.locator(".tools .num")).to_have_text(f"replica {replica}")
    expect(desk.locator(".shown")).to_have_attribute("aria-busy", "true")
    held.pop().continue_()
    loaded(desk, replica + 1)
    desk.keyboard.press("[")
    loaded(desk, replica)


def test_a_deadlock_is_shown(open_page: Open, pages: Live) -> None:
    spawn = {"distribution": "binomial", "children": 3, "probability": 0.5}
    held = pages.submit(
        "thread",
        {
            "scheduler": "fifo",
            "join": "block",
            "cores": 12,
            "thread_count": 8,
            "max_depth": 3,
            "spawn": spawn,
            "replicas": 200,
            "seed": 1,
        },
    )
    result = pages.result(held)["cells"][0]
    page = open_page(f"/index.html#job={held}", viewport=DESK)
    loaded(page, 0)
    page.get_by_role("button", name="Deadlocked").click()
    loaded(page, result["examples"]["deadlocked"]["replica"])
    expect(page.locator(".legend")).to_contain_text("blocked in join")
    until(lambda: int(counter(page, "active")) > 0)
    expect(page.locator(".metrics")).to_contain_text(f"{100 * result['deadlock']['probability']['mean']:.1f}")
    shot(page, "threads-deadlock-light")


# -- one replica ------------------------------------------------------------------------------------------------------


def test_a_marked_range_restricts_statistics_tree_and_log(desk: Page, pages: Live, job: str) -> None:
    found = trace(pages, job, 0)
    desk.get_by_role("tab", name="Statistics").click()
    every = len({each["args"]["path"] for each in slices(found)})
    until(lambda: int(measure(desk, "threads started")) == every)
    drag(desk, 0.2, 0.5, shift=True)
    state = hash_of(desk, "a", "b")
    a, b = float(state["a"]), float(state["b"])
    started = [each for each in slices(found) if a <= each["ts"] <= b]
    expect(desk.locator("#window-statistics")).to_contain_text("Marked")
    until(lambda: int(measure(desk, "threads started")) == len(started))
    busy = sum(max(0, min(b, each["ts"] + each["dur"]) - max(a, each["ts"])) for each in slices(found)) / (b - a)
    assert float(measure(desk, "busy cores, mean").split()[0]) == pytest.approx(busy, rel=1e-3)
    shot(desk, "threads-range-light")
    desk.get_by_role("tab", name="Log").click()
    steals = [each for each in slices(found, kind="steal") if a <= each["ts"] <= b]
    expect(desk.locator("#log-known")).to_contain_text(f"{len(started) + len(steals)} lines")
    desk.get_by_role("tab", name="Tree").click()
    expect(desk.locator(".tree")).to_contain_text("in the marked range")
    desk.keyboard.press("Escape")
    expect(desk.locator(".tree")).not_to_contain_text("in the marked range")


def test_a_slice_tells_its_thread_in_lanes_tree_and_log(desk: Page, pages: Live, job: str) -> None:
    found = trace(pages, job, 0)
    longest = max(slices(found), key=lambda each: float(each["dur"]))
    middle = (longest["ts"] + longest["dur"] / 2) / found["otherData"]["until_us"]
    # The picture has a margin of 2 % on each side.
    desk.locator(".lanes").first.click(position=lane_point(desk, (middle + 0.02) / 1.04, longest["tid"]))
    details = desk.locator(".details")
    expect(details).to_contain_text(longest["args"]["path"])
    expect(details).to_contain_text("Thread-" + longest["args"]["path"][1:].split(".")[0])
    expect(details).to_contain_text(f"core {longest['tid']}")
    until(lambda: hash_of(desk, "pick")["pick"] == longest["args"]["path"])
    shot(desk, "threads-picked-light")
    desk.keyboard.press("v")
    log = desk.locator(".log")
    log.get_by_label("Filter").fill(f"core:{longest['tid']} start")
    starts = [each for each in slices(found) if each["tid"] == longest["tid"]]
    expect(desk.locator("#log-known")).to_contain_text(f"{len(starts)} lines")
    log.get_by_label("Filter").fill("nosuch")
    expect(desk.locator("#log-known")).to_contain_text("not known")
    log.get_by_label("Filter").fill("stolen")
    expect(log.locator(".line").last).to_contain_text("stolen")
    log.get_by_role("button", name="Clear").click()
    expect(log).to_contain_text("Nothing happened")


def test_the_log_is_followed_until_somebody_scrolls_up(desk: Page) -> None:
    desk.get_by_role("tab", name="Log").click()
    lines, follow = desk.locator(".lines"), desk.get_by_label("Follow the end")
    expect(follow).to_be_checked()
    room = "each => each.scrollHeight - each.clientHeight - each.scrollTop"
    until(lambda: lines.evaluate(room) < 22)
    expect(lines.locator(".line").last).to_contain_text(re.compile("ends|steal|finds"))
    lines.evaluate("each => each.scrollTo(0, 0)")
    expect(follow).not_to_be_checked()
    expect(lines.locator(".line").first).to_contain_text("system Threads Cluster: a program of threads")
    expect(lines).to_contain_text("replica 0:")
    follow.check()
    until(lambda: lines.evaluate(room) < 22)


def test_playback_builds_the_counters_up_and_reset_can_be_undone(desk: Page, pages: Live, job: str) -> None:
    found = trace(pages, job, 0)
    desk.locator(".speed input").fill("20")  # the playback takes 40 s instead of 10 s
    desk.keyboard.press("Escape")
    desk.evaluate("document.activeElement.blur()")
    desk.keyboard.press("Space")
    expect(desk.get_by_role("button", name="Pause")).to_be_visible()
    desk.wait_for_timeout(1500)
    desk.keyboard.press("Space")
    expect(desk.get_by_role("button", name="Play")).to_be_visible()
    at = float(hash_of(desk, "at")["at"])
    assert 0 < at < found["otherData"]["until_us"]
    born = {each["args"]["path"]: each["ts"] - each["args"]["wait_us"] for each in reversed(slices(found))}
    shows(desk, "created", str(sum(when <= at + 1e-6 for when in born.values())))
    shot(desk, "threads-playing-light")
    still = desk.locator(".clock").inner_text()
    desk.wait_for_timeout(300)
    assert desk.locator(".clock").inner_text() == still
    desk.get_by_role("button", name="Reset").click()
    until(lambda: plain(desk.locator(".clock")) == counter(desk, "runtime"))  # the whole replica is visible
    desk.get_by_role("button", name="Undo").click()
    expect(desk.locator(".clock")).to_have_text(still)
    slow = desk.locator(".speed .num").inner_text()
    desk.locator(".speed input").press("ArrowRight")
    expect(desk.locator(".speed .num")).not_to_have_text(slow)


def test_two_policies_on_the_same_seed(desk: Page, pages: Live, job: str) -> None:
    desk.get_by_label("compare with").select_option("fifo")
    expect(desk.locator(".lanes")).to_have_count(2, timeout=60_000)
    other = hash_of(desk, "job2")["job2"]
    result = pages.result(other)["cells"][0]
    assert pages.job(other)["parameters"]["seed"] == PROGRAM["seed"]
    expect(desk.locator(".headlines")).to_contain_text(f"({result['metrics']['speedup']['mean']:.3g} fifo)")
    expect(desk.locator(".verdict")).to_contain_text("against")

    def both_in_one_screen() -> bool:
        bottom = desk.locator(".lanes").nth(1).bounding_box()
        return bottom is not None and bottom["y"] + bottom["height"] <= DESK["height"]

    until(both_in_one_screen)
    desk.get_by_role("tab", name="Statistics").click()
    heads = desk.locator("#window-statistics thead").first
    expect(heads).to_contain_text("work stealing")
    expect(heads).to_contain_text("fifo")
    # Both replicas have the same threads.
    row = desk.locator("#window-statistics tr").filter(has_text="threads started").locator("td")
    until(lambda: row.nth(0).inner_text() == row.nth(1).inner_text())
    shot(desk, "threads-compare-light")


def test_cells_of_one_job_are_compared_without_another(open_page: Open, pages: Live) -> None:
    sweep = pages.submit("thread", {**PROGRAM, "scheduler": ["fifo", "work_stealing"], "cores": [2, 4], "replicas": 50})
    pages.result(sweep)
    page = open_page(f"/index.html#job={sweep}", viewport=DESK)
    loaded(page, 0)
    # A click on the chart opens a cell: here the last point of the upper line, with 4 cores.
    canvas = page.locator(".sweep canvas")
    box = canvas.bounding_box()
    assert box
    canvas.click(position={"x": 44 + (box["width"] - 160) / 1.04, "y": 30})
    expect(page.get_by_role("combobox", name="cell")).to_have_value(re.compile("2|3"))
    page.get_by_role("combobox", name="cell").select_option("1")
    page.get_by_label("compare with").select_option("fifo")
    expect(page.locator(".lanes")).to_have_count(2, timeout=60_000)
    assert "job2" not in hash_of(page)
    assert wrapped(page, ".tools") == []  # with all optional tools visible


def test_a_view_has_an_address(open_page: Open, job: str) -> None:
    view = f"/index.html#job={job}&replica=5&from=200&to=900&a=300&b=500&pick=T0&color=wait&critical=1&tab=statistics"
    page = open_page(view, viewport=DESK)
    loaded(page, 5)
    expect(page.locator(".details")).to_contain_text("Thread-0")
    expect(page.locator("#window-statistics")).to_contain_text("Marked")
    expect(page.get_by_role("button", name="Critical path")).to_have_attribute("aria-pressed", "true")
    assert hash_of(page)["from"] == "200"


# -- files ------------------------------------------------------------------------------------------------------------


def saved(page: Page, button: str, folder: Path) -> Path:
    page.get_by_role("button", name="Save", exact=True).click()
    with page.expect_download() as waiting:
        page.get_by_role("dialog").get_by_role("button", name=re.compile(button)).click()
    path = folder / waiting.value.suggested_filename
    waiting.value.save_as(path)
    return path


def rounded(found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return the slices in order, with times in whole ns."""
    return sorted(
        (each["tid"], round(each["ts"] * 1000), round(each["dur"] * 1000), each["name"], each["cat"]) for each in found
    )


def test_files_hold_what_is_on_screen(desk: Page, pages: Live, job: str, tmp_path: Path) -> None:
    found = trace(pages, job, 0)
    file = json.loads(saved(desk, "Perfetto", tmp_path).read_text())
    ours, theirs = slices(file, kind=""), slices(found, kind="")
    assert rounded(ours) == rounded(theirs)
    assert {"s", "f", "C", "M"} <= {each["ph"] for each in file["traceEvents"]}
    assert file["otherData"]["parameters"] == found["otherData"]["parameters"]
    assert file["otherData"]["job"] == job
    with saved(desk, "CSV", tmp_path).open(newline="") as text:
        rows = list(csv.DictReader(text))
    assert len(rows) == len(theirs)
    assert sum(row["stolen"] == "1" and row["kind"] == "run" for row in rows) == sum(
        each["args"]["ok"] for each in slices(found, kind="steal")
    )
    desk.get_by_role("button", name="Save", exact=True).click()
    desk.get_by_role("dialog").get_by_role("button", name="Picture").click()
    with desk.expect_download() as waiting:
        desk.get_by_role("dialog", name="Save picture").get_by_role("button", name="PNG").click()
    expect(desk.get_by_role("dialog")).to_have_count(0)
    assert Path(waiting.value.path()).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    drag(desk, 0.3, 0.4, shift=True)
    state = hash_of(desk, "a", "b")
    part = slices(json.loads(saved(desk, "Perfetto", tmp_path).read_text()), kind="")
    a, b = float(state["a"]), float(state["b"])
    assert len(part) == sum(each["ts"] <= b and each["ts"] + each["dur"] >= a for each in theirs)
    parameters = json.loads(saved(desk, "Parameters", tmp_path).read_text())
    assert parameters["seed"] == PROGRAM["seed"]


def test_a_saved_trace_can_be_opened_and_another_file_is_refused(desk: Page, tmp_path: Path) -> None:
    created = counter(desk, "created")
    path = saved(desk, "Perfetto", tmp_path)
    desk.keyboard.press("e")
    desk.get_by_label("Open a saved trace").set_input_files(path)
    expect(desk.locator(".log, .tree")).to_be_visible()
    desk.evaluate(RESTED)
    shows(desk, "created", created)
    wrong = tmp_path / "wrong.json"
    wrong.write_text('{"jobs": []}')
    desk.keyboard.press("e")
    desk.get_by_label("Open a saved trace").set_input_files(wrong)
    expect(desk.get_by_role("alert")).to_contain_text("not a Chrome trace")


# -- keys, phones, readers --------------------------------------------------------------------------------------------


def test_all_by_keys(open_page: Open) -> None:
    page, form = opened_form(open_page)
    form.get_by_role("button", name="Few big tasks").focus()
    page.keyboard.press("Enter")
    form.get_by_label("max depth").fill("4")
    form.get_by_label("seed").focus()
    page.keyboard.type("11")
    with page.expect_response(re.compile(r"/trace\.json\?")):  # before, the example's replica 0 is shown
        page.keyboard.press("Enter")  # Enter submits the form
    expect(page).to_have_url(re.compile("job="))
    expect(page.locator("[aria-busy=true]")).to_have_count(0)
    loaded(page, 0)
    page.evaluate("document.activeElement.blur()")
    before = hash_of(page)
    for _ in range(3):
        page.keyboard.press("w")
    page.keyboard.press("d")
    assert hash_of(page, "from") and "from" not in before
    page.keyboard.press("m")
    assert hash_of(page, "b")
    page.keyboard.press("f")
    page.keyboard.press("c")
    assert hash_of(page, "critical")["critical"] == "1"
    page.keyboard.press("/")
    page.keyboard.type("T0")
    page.keyboard.press("Enter")
    expect(page.locator(".details")).to_contain_text("Thread-0")
    lanes = page.locator(".lanes").first
    lanes.focus()
    page.keyboard.press("ArrowRight")
    first = hash_of(page, "pick")["pick"]
    page.keyboard.press("ArrowDown")
    until(lambda: hash_of(page)["pick"] != first)
    page.keyboard.press("t")
    expect(page.locator(".twin").filter(has_text="Thread-").first).to_be_visible()
    page.keyboard.press("t")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_contain_text("critical path")
    page.keyboard.press("Escape")
    # Keys typed into a field are not shortcuts.
    page.locator("#find").focus()
    page.keyboard.type("wasd")
    assert page.locator("#find").input_value().endswith("wasd")


def test_wheel_zooms_where_the_pointer_is(desk: Page) -> None:
    box = desk.locator(".lanes").first.bounding_box()
    assert box
    desk.mouse.move(box["x"] + 60 + 0.25 * (box["width"] - 64), box["y"] + 40)
    desk.mouse.wheel(0, -600)
    state = hash_of(desk, "from", "to")
    share = (0.25 * 1.04 - 0.02) * float(re.sub("[^0-9.]", "", counter(desk, "runtime"))) * 1000
    low, high = float(state["from"]), float(state["to"])
    assert (share - low) / (high - low) == pytest.approx(0.25, abs=0.02)
    drag(desk, 0.6, 0.3)
    until(lambda: float(hash_of(desk, "from")["from"]) > low)


def test_axe_finds_nothing(open_page: Open, job: str) -> None:
    page = open_page(f"/index.html#job={job}&pick=T0&color=stolen", viewport=DESK)
    loaded(page, 0)
    for tab in ("Tree", "Log", "Statistics"):
        page.get_by_role("tab", name=tab).click()
        clean(page, f"threads-{tab.lower()}")
    page.get_by_role("button", name="Change", exact=True).click()
    clean(page, "threads-change")
    page.get_by_role("button", name="Save", exact=True).click()
    clean(page, "threads-save")


def clean(page: Page, part: str) -> None:
    """Check that axe finds no violation in both themes."""
    for theme in in_both_themes(page):
        settled(page)
        shot(page, f"{part}-{theme}")
        assert violations(page) == [], f"{part} in {theme}"


def test_a_phone_shows_the_picture_first(open_page: Open, job: str) -> None:
    page = open_page(f"/index.html#job={job}", viewport=PHONE, has_touch=True, is_mobile=True)
    loaded(page, 0)
    settled(page)
    assert overflow(page) == 0
    lanes, metrics = page.locator(".lanes").first.bounding_box(), page.locator(".metrics").bounding_box()
    assert lanes and metrics and lanes["y"] < 300 < metrics["y"]
    expect(page.locator(".readout").first).to_contain_text("pinch")  # phones have no wheel and no Shift key
    page.locator(".lanes").first.tap(position={"x": 150, "y": 60})
    expect(page.locator(".details")).to_be_visible()
    clean(page, "threads-phone")


# -- a million slices -------------------------------------------------------------------------------------------------

CORES, SLICES = 16, 1_000_000


def lines(count: int, cores: int) -> Iterator[str]:
    """Generate the slices of a synthetic trace, in which each core is busy for three quarters of the time."""
    word = 12345
    for number in range(count):
        core, place = number % cores, number // cores
        word = (word * 1664525 + 1013904223) % 2**32
        facts = f'{{"path":"T{number % 50_000}","depth":0,"work_us":1,"wait_us":{word % 50}}}'
        times = f'"ts":{place * 10},"dur":{1 + word % 1000 / 125:.3f}'
        yield f'{{"ph":"X","tid":{core},{times},"name":"","cat":"d0","args":{facts}}}'


#: Records the computing time of each frame, and long tasks that blocked the page.
WATCH = """() => {
  window.tasks = []; window.work = [];
  const seen = list => window.tasks.push(...list.getEntries().map(each => each.duration));
  new PerformanceObserver(seen).observe({type: "longtask"});
  const plain = window.requestAnimationFrame;
  window.requestAnimationFrame = run => plain(now => {
    const since = performance.now(); run(now); window.work.push(performance.now() - since);
  });
}"""


def million(path: Path) -> Path:
    with path.open("w") as file:
        file.write('{"traceEvents":[')
        for number, line in enumerate(lines(SLICES, CORES)):
            file.write((",\n" if number else "") + line)
        file.write(f'],"otherData":{{"cores":{CORES},"scheduler":"fifo","until_us":{SLICES // CORES * 10}}}}}')
    return path


def travel(page: Page) -> None:
    for _ in range(10):
        page.keyboard.press("w")
        page.keyboard.press("d")
    drag(page, 0.7, 0.3)
    for _ in range(10):
        page.keyboard.press("s")
        page.keyboard.press("a")
    page.wait_for_timeout(300)


@pytest.mark.alone
def test_a_million_slices_move_without_a_long_task(
    playwright: Playwright, browser: Browser, pages: Live, tmp_path: Path
) -> None:
    # This browser has no OpenGL, because software OpenGL delays every frame by more than 100 ms.
    with playwright.chromium.launch(
        executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"]
    ) as plain_browser:
        page = plain_browser.new_page(viewport=DESK)  # type: ignore[arg-type]
        page.goto(f"{pages.url()}/index.html")
        expect(page.get_by_role("button", name="Pause")).to_be_visible()
        page.keyboard.press("e")
        page.get_by_label("Open a saved trace").set_input_files(million(tmp_path / "million.json"))
        expect(page.locator(".lanes")).to_be_visible(timeout=120_000)
        page.wait_for_timeout(2000)
        page.evaluate(WATCH)
        runs = []
        for _ in range(8):  # other processes can slow down some of these runs
            travel(page)
            runs.append(page.evaluate("[tasks.splice(0), work.splice(0)]"))
            if len(runs) >= 2 and not runs[-1][0]:
                break
        shot(page, "threads-million-light")
        page.context.new_cdp_session(page).send("HeapProfiler.collectGarbage")
        heap = page.evaluate("performance.memory.usedJSHeapSize") / 1e6
        print(f"JavaScript heap with {SLICES} slices: {heap:.0f} MB")
        for tasks, work in runs:
            work.sort()
            print(
                f"{len(work)} frames: median {work[len(work) // 2]:.1f} ms, worst {work[-1]:.1f} ms; long tasks {tasks}"
            )
        assert any(not tasks for tasks, _ in runs), [tasks for tasks, _ in runs]
        assert min(work[len(work) // 2] for _, work in runs) < 8
        assert heap <= 150
