"""Tests the Collatz page. All displayed numbers are computed again in Python."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import PHONE, RESTED, Open, in_both_themes, overflow, settled, shot, violations
from tests.integration.live import Live, until

ADDRESS = "/collatz.html"
TABS = ("graph", "histogram", "residues", "tree", "coral", "log", "frontier")
MILLION = 10**6
#: Thin space between groups of digits.
THIN = "\u202f"
#: End of a range whose job runs for minutes unless it is cancelled.
LONG = "10^11"


def spaced(number: int) -> str:
    return f"{number:,}".replace(",", THIN)


def trajectory(n: int) -> list[int]:
    terms = [n]
    while n != 1:
        n = 3 * n + 1 if n % 2 else n // 2
        terms.append(n)
    return terms


@cache
def delays(count: int) -> np.ndarray[Any, Any]:
    """Return the number of steps to 1 for 1..count."""
    found = np.zeros(count, np.int64)
    values, places = np.arange(1, count + 1), np.arange(count)
    while len(values):
        values, places = values[values != 1], places[values != 1]
        found[places] += 1
        values = np.where(values % 2, 3 * values + 1, values // 2)
    return found


def picture(page: Page) -> Any:
    return page.locator(".picture canvas.data")


def drawn(page: Page, source: str) -> Any:
    """Return the picture after it was drawn from a source."""
    found = picture(page)
    expect(found).to_have_attribute("data-source", source)
    return found


def whole(page: Page, numbers: int) -> Any:
    found = picture(page)
    expect(found).to_have_attribute("data-numbers", str(numbers))
    return found


def saved(page: Page, act: Any) -> tuple[str, bytes]:
    """Return the name and the content of the file that an action saves."""
    with page.expect_download() as waiting:
        act()
    download = waiting.value
    return download.suggested_filename, Path(download.path()).read_bytes()


#: Stores the points of each canvas's last dashed line, which shows the expected means.
NOTE_LINES = """() => {
  const to = CanvasRenderingContext2D.prototype, {beginPath, lineTo, stroke, clearRect} = to;
  to.beginPath = function () { this.points = []; return beginPath.call(this); };
  to.lineTo = function (x, y) { this.points?.push([x, y]); return lineTo.call(this, x, y); };
  to.clearRect = function (...box) { delete this.canvas.dashed; return clearRect.apply(this, box); };
  to.stroke = function (...path) {
    if (this.getLineDash().length) this.canvas.dashed = this.points;
    return stroke.apply(this, path);
  };
}"""
#: Returns the steps at the left end, the middle and the right end of the dashed line, or null without a line.
MEANS = """() => {
  const [data, over] = ["canvas.data", "canvas[role=img]"].map(each => document.querySelector(`.picture ${each}`));
  const [low, high] = [data.dataset.low, data.dataset.high].map(Number);
  const steps = ([, y]) => low + (1 - (y - data.offsetTop) / data.offsetHeight) * (high - low) - 0.5;
  const at = over.dashed;
  return at ? [at[0], at[(at.length - 1) / 2], at.at(-1)].map(steps) : null;
}"""


def means(page: Page, *expected: float) -> None:
    """Wait until the line of expected means passes through these steps."""
    close = pytest.approx(expected, abs=1.5)
    until(lambda: (seen := page.evaluate(MEANS)) is not None and seen == close)


@pytest.fixture
def browser(gl_browser: Browser) -> Browser:
    return gl_browser


@pytest.fixture
def quiet(pages: Live) -> Iterator[None]:
    """Cancel the jobs that a test left running."""
    yield
    for job in pages.get("/api/jobs?limit=200")["jobs"]:
        if job["state"] in ("queued", "running", "paused"):
            pages.post(f"/api/jobs/{job['job_id']}/cancel")


# -- runs ---------------------------------------------------------------------------------------------------------


def test_a_run_from_start_to_its_records(open_page: Open, pages: Live) -> None:
    page = open_page(ADDRESS)
    page.get_by_role("button", name="Start").click()
    line = page.get_by_role("region", name="Job")
    expect(line.get_by_text("done", exact=True)).to_be_visible()
    records = page.get_by_role("region", name="Records")
    row = records.locator("tr").filter(has_text=spaced(837_799))
    expect(row).to_contain_text("524")
    expect(row).to_contain_text("in the published list")
    expect(records.locator("tr").filter(has_text=spaced(704_511))).to_contain_text(spaced(56_991_483_520))
    expect(records).not_to_contain_text("contradicts")
    expect(records).not_to_contain_text("not found")
    figures = page.get_by_role("region", name="Figures")
    expect(figures).to_contain_text(re.compile(rf"Most steps\s*524 at {spaced(837_799)}"))
    expect(page).to_have_url(re.compile(r"job=\w+"))
    job = re.search(r"job=(\w+)", page.url)
    assert job and pages.job(job[1])["parameters"]["columns"] == 1024
    expect(page.locator("#range-note")).to_contain_text("on this cluster")
    shot(page, "collatz-run-light")


def test_progress_pause_and_cancel(open_page: Open, pages: Live, quiet: None) -> None:
    page = open_page(f"{ADDRESS}#to={LONG}")
    drawn(page, "sample")
    page.get_by_role("button", name="Start").click()
    bar = page.get_by_role("progressbar")
    drawn(page, "columns")
    records = page.get_by_role("region", name="Records")
    records.get_by_role("button", name=re.compile("^All ")).first.click()
    expect(records).to_contain_text(spaced(63_728_127))
    page.evaluate("document.activeElement.blur()")
    expect(page).to_have_title(re.compile("%"))
    shot(page, "collatz-live-light")
    # While the page is offline, the running time of the job is unknown and must not grow.
    page.context.set_offline(True)
    expect(page.locator(".connection")).to_have_attribute("data-state", "offline")
    runtime = page.get_by_text(re.compile("^runtime "))
    known = runtime.inner_text()
    page.wait_for_timeout(2500)
    expect(runtime).to_have_text(known)
    page.context.set_offline(False)
    expect(page.locator(".connection")).to_have_attribute("data-state", "live", timeout=60_000)
    page.keyboard.press("Space")
    page.get_by_role("button", name="Resume").wait_for()
    job = re.search(r"job=(\w+)", page.url)
    assert job
    assert pages.wait_for(job[1], "paused")
    page.get_by_role("button", name="Resume").click()
    share = "each => parseFloat(each.style.width)"  # a full percent can take a minute
    before = bar.locator("i").evaluate(share)
    until(lambda: bar.locator("i").evaluate(share) > before)
    page.get_by_role("button", name="Cancel").click()
    assert pages.wait_for(job[1], "cancelled")
    expect(page.get_by_role("button", name="Start")).to_be_visible()


def test_a_job_of_somebody_else_is_opened_by_its_address(open_page: Open, pages: Live) -> None:
    job = pages.submit(
        "collatz",
        {"start_number": str(2**60), "number_count": 3_000_000, "columns": 300, "density": True},
    )
    pages.result(job)
    page = open_page(f"{ADDRESS}#job={job}")
    drawn(page, "columns")
    expect(page.get_by_label("n from")).to_have_value(str(2**60))
    expect(page.get_by_role("region", name="Records")).to_contain_text("of this range only")
    runtime = re.compile(r"runtime ([\d.]+)\s(ms|s)")
    expect(page.get_by_role("region", name="Job")).to_contain_text(runtime)
    took = runtime.search(page.get_by_role("region", name="Job").inner_text())
    assert took
    shown = float(took[1]) / (1000 if took[2] == "ms" else 1)
    assert shown == pytest.approx(pages.job(job)["seconds"], rel=0.06)
    page.keyboard.press("2")
    expect(page.locator("#panel-histogram")).to_contain_text(f"Steps of {spaced(3_000_000)} numbers")
    shot(page, "collatz-somebody-light")


def test_a_job_without_a_density_shows_its_records(open_page: Open, pages: Live) -> None:
    job = pages.submit("collatz", {"start_number": 1, "number_count": 1_000_000, "columns": 300})
    pages.result(job)
    page = open_page(f"{ADDRESS}#job={job}")
    records = page.get_by_role("region", name="Records")
    expect(records.locator("tr").filter(has_text=spaced(837_799))).to_contain_text("524")
    expect(page.get_by_text("this job has no density")).to_have_count(0)


def test_strategies_look_at_as_many_windows_as_they_are_told(open_page: Open, pages: Live) -> None:
    before = {job["job_id"] for job in pages.get("/api/jobs?limit=200")["jobs"]}
    address = f"{ADDRESS}#to=10^9&strategy=adaptive&windows=4&size=65536&parallel=2&seed=3"
    page = open_page(address)
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("region", name="Job")).to_contain_text("4 of 4 windows done", timeout=60_000)
    jobs = [job for job in pages.get("/api/jobs?limit=200")["jobs"] if job["job_id"] not in before]
    assert len({job["parameters"]["start_number"] for job in jobs}) == 4
    assert {job["parameters"]["number_count"] for job in jobs} == {65_536}
    page.keyboard.press("6")
    expect(page.get_by_role("log")).to_contain_text("strategy adaptive")
    shot(page, "collatz-log-light")


def test_a_range_that_cannot_be_is_told(open_page: Open) -> None:
    page = open_page(ADDRESS)
    page.get_by_label("n from").fill("2^96")
    page.get_by_label("n from").press("Enter")
    expect(page.locator("#range-note")).to_contain_text("below 2^96")
    expect(page.get_by_role("button", name="Start")).to_be_disabled()
    page.get_by_label("n from").fill("1")
    page.get_by_label("to", exact=True).fill("0")
    page.get_by_label("to", exact=True).press("Enter")
    expect(page.locator("#range-note")).to_contain_text("no end")


# -- the picture --------------------------------------------------------------------------------------------------


def pixels(page: Page, found: Any) -> np.ndarray[Any, Any]:
    """Return which pixels of the data canvas differ from the background, lowest row first."""
    page.evaluate("document.querySelectorAll('.picture canvas.fill').forEach((each) => each.style.opacity = 0)")
    shown = base64.b64encode(found.screenshot(animations="disabled")).decode()
    page.evaluate("document.querySelectorAll('.picture canvas.fill').forEach((each) => each.style.opacity = 1)")
    flat = page.evaluate(
        """async (data) => {
          const image = new Image();
          image.src = `data:image/png;base64,${data}`;
          await image.decode();
          const canvas = Object.assign(document.createElement('canvas'), {width: image.width, height: image.height});
          const context = canvas.getContext('2d');
          context.drawImage(image, 0, 0);
          const { data: bytes } = context.getImageData(0, 0, image.width, image.height);
          const lit = [];
          for (let place = 0; place < bytes.length; place += 4) {
            const far = [0, 1, 2].some((channel) => Math.abs(bytes[place + channel] - bytes[channel]) > 12);
            if (far) lit.push(place / 4);
          }
          return [image.width, image.height, lit];
        }""",
        shown,
    )
    width, height, lit = flat
    mask = np.zeros(width * height, bool)
    mask[lit] = True
    return mask.reshape(height, width)[::-1]


def expected(found: Any, count: int) -> np.ndarray[Any, Any]:
    """Return the pixels that the numbers 1..count should light, given the axes of the picture."""
    size = found.evaluate("canvas => [canvas.width, canvas.height]")
    width, height = size
    low, high = (float(found.get_attribute(f"data-{name}") or 0) for name in ("low", "high"))
    columns = np.floor(np.arange(count) * (width / count)).astype(int)
    rows = np.floor((delays(count) - low) * (height / (high - low))).astype(int)
    mask = np.zeros((height, width), bool)
    mask[rows, columns] = True
    return mask


@pytest.mark.parametrize("kind", ["webgl2", "canvas"])
def test_a_million_numbers_light_the_pixels_that_numpy_says(open_page: Open, kind: str) -> None:
    page = open_page("/collatz.html#to=2")
    if kind == "canvas":
        page.add_init_script(
            "const real = HTMLCanvasElement.prototype.getContext; HTMLCanvasElement.prototype.getContext = "
            "function (name, ...rest) { return name === 'webgl2' ? null : real.call(this, name, ...rest); };"
        )
    page.goto(page.url.replace("to=2", "to=10^6"))
    page.reload()
    found = whole(page, MILLION)
    expect(found).to_have_attribute("data-kind", kind)
    settled(page)
    exact = expected(found, MILLION)
    expect(found).to_have_attribute("data-lit", str(int(exact.sum())))
    thick = exact.copy()
    thick[1:, :] |= exact[:-1, :]
    thick[:, 1:] |= exact[:, :-1]
    thick[1:, 1:] |= exact[:-1, :-1]
    shown = pixels(page, found)
    assert shown.shape == thick.shape
    # Ignore a few pixels whose color is close to the background.
    different = int((shown != thick).sum())
    print(f"{kind}: {int(exact.sum())} cells, {int(thick.sum())} pixels, {different} differ")
    assert different <= thick.sum() // 1000


def test_zoom_down_to_single_numbers_far_out(open_page: Open) -> None:
    start = 2**70 + 12_345
    page = open_page(f"{ADDRESS}#from=2^70&to=2^70%2B10^6&x={start}&span=20")
    drawn(page, "points")
    page.keyboard.press("t")
    rows = page.locator(".graph tbody tr")
    expect(rows).to_have_count(20)
    for place, text in enumerate(rows.all_inner_texts()[:20]):
        n, steps, bits = text.split("\t")
        terms = trajectory(start + place)
        assert n == spaced(start + place)
        assert int(steps) == len(terms) - 1
        assert int(bits) == max(terms).bit_length()
    page.keyboard.press("t")
    drawn(page, "points")
    shot(page, "collatz-points-light")


def test_the_wheel_zooms_at_the_pointer_and_the_address_keeps_it(open_page: Open) -> None:
    page = open_page(ADDRESS)
    whole(page, MILLION)
    box = picture(page).bounding_box()
    assert box
    at = (box["x"] + 0.8 * box["width"], box["y"] + 100)
    page.mouse.move(*at)
    for _ in range(40):
        page.mouse.wheel(0, -300)
    drawn(page, "points")

    def right() -> bool:
        page.mouse.move(at[0] + 1, at[1])
        page.mouse.move(*at)
        told = page.locator(".pointed").inner_text()
        named = re.search(r"n ([\d\u202f]+)", told)
        n = int(named[1].replace(THIN, "")) if named else 0
        terms = trajectory(n) if abs(n - 800_000) < 2_000 else [0]
        return n > 0 and f"{len(terms) - 1} steps" in told and spaced(max(terms)) in told

    until(right)
    page.evaluate(RESTED)
    page.reload()
    drawn(page, "points")
    assert "span=" in page.url


def test_a_window_is_counted_by_a_job_when_it_is_told_to(open_page: Open, pages: Live) -> None:
    before = len(pages.get("/api/jobs?limit=200")["jobs"])
    page = open_page(f"{ADDRESS}#from=2^45&to=2^45%2B10^12&x={2**45 + 10**9}&span=3000000")
    drawn(page, "sample")
    page.wait_for_timeout(1500)
    assert len(pages.get("/api/jobs?limit=200")["jobs"]) == before
    page.get_by_role("button", name="Count all").click()
    drawn(page, "columns")
    assert len(pages.get("/api/jobs?limit=200")["jobs"]) == before + 1


def test_a_wider_range_is_seen_at_once(open_page: Open, pages: Live) -> None:
    pages.result(pages.submit("collatz", {"start_number": 1, "number_count": MILLION, "mode": "verify"}))
    page = open_page(ADDRESS)
    page.evaluate(NOTE_LINES)
    whole(page, MILLION)
    expect(page.locator(".coverage")).to_contain_text("Verified here: 1 to ")
    page.get_by_label("color").select_option("peak")  # draws the picture again
    slope = 3 / math.log(4 / 3)
    means(page, 0, slope * math.log(MILLION / 2), slope * math.log(MILLION))
    page.get_by_label("color").select_option("count")
    field = page.get_by_label("to", exact=True)
    field.fill("10^11")
    # Messages from the cluster do not clear the field.
    pages.result(pages.submit("collatz", {"start_number": 1, "number_count": 1000, "columns": 10}))
    page.wait_for_timeout(1500)
    expect(field).to_have_value("10^11")
    field.press("Enter")
    found = drawn(page, "sample")
    until(lambda: int(found.get_attribute("data-numbers") or 0) >= 20_000)
    means(page, 0, slope * math.log(10**11 / 2), slope * math.log(10**11))
    expect(page.locator(".missing.note")).to_contain_text("of 100\u202fG numbers, spread evenly")
    # The page reports missing numbers as uncounted, not as unknown, because the cluster has verified some of them.
    expect(page.locator(".missing")).to_have_count(1)
    expect(page.locator(".coverage")).to_contain_text("Verified here: 1 to ")
    expect(page.locator("main")).not_to_contain_text(re.compile("nothing is known|no number", re.IGNORECASE))
    page.get_by_label("color").select_option("residue")
    expect(page.locator(".under-picture .legend")).to_contain_text("several")
    page.get_by_role("tab", name="Histogram").click()
    expect(page.locator("#panel-histogram")).to_contain_text(f"Steps of {spaced(10**11)} numbers")
    expect(page.locator("#panel-histogram")).to_contain_text("estimated from")
    expect(page.locator("#panel-histogram")).to_contain_text(f"a mean of {slope * (math.log(10**11) - 1):.1f}")


def test_a_job_that_is_not_there_is_told_and_asked_for_once(open_page: Open, pages: Live) -> None:
    page = open_page(ADDRESS)
    asked: list[str] = []
    page.goto("about:blank")
    page.on("request", lambda request: asked.append(request.url) if "/api/jobs/" in request.url else None)
    page.goto(f"{pages.url()}{ADDRESS}#job=c0ffee00c0ffee00")
    line = page.get_by_role("region", name="Job")
    expect(line).to_contain_text("There is no job c0ffee00c0ffee00")
    expect(page.get_by_role("button", name="Start")).to_be_enabled()
    for verb in ("Pause", "Cancel"):
        expect(page.get_by_role("button", name=verb)).to_have_count(0)
    page.wait_for_timeout(1500)
    assert len(asked) == 1


def test_a_cancelled_job_shows_what_it_had(open_page: Open, pages: Live) -> None:
    job = pages.submit("collatz", {"start_number": "1", "number_count": 10**12, "columns": 1024, "density": True})
    until(lambda: int(pages.job(job)["done"]) > 0)
    pages.post(f"/api/jobs/{job}/cancel")
    assert pages.wait_for(job, "cancelled")
    page = open_page(f"{ADDRESS}#job={job}")
    expect(page.get_by_role("region", name="Job").get_by_text("cancelled", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Start")).to_be_enabled()
    expect(page.get_by_role("button", name="Pause")).to_have_count(0)
    until(lambda: picture(page).get_attribute("data-source") in ("columns", "sample"))


def test_colours_by_peak_and_residue(open_page: Open) -> None:
    page = open_page(f"{ADDRESS}#to=5000&colour=peak&mod=3")
    drawn(page, "exact")
    legend = page.locator(".under-picture .legend")
    expect(legend).to_contain_text("bits of the peak")
    page.get_by_label("color").select_option("residue")
    expect(legend).to_contain_text("2 mod 3")
    shot(page, "collatz-residue-colours-light")
    page.get_by_label("log n").check()
    expect(page).to_have_url(re.compile("log=1"))
    shot(page, "collatz-log-axis-light")


@pytest.mark.alone
def test_frame_times(open_page: Open) -> None:
    page = open_page(ADDRESS)
    found = whole(page, MILLION)
    times = []
    for key in ["ArrowRight", "ArrowLeft", "+", "ArrowRight", "+", "+", "-", "-", "ArrowLeft", "-"]:
        page.keyboard.press(key)
        page.wait_for_timeout(120)
        times.append(float(found.get_attribute("data-ms") or 0))
    print("ms a frame of up to 1e6 exact numbers, software renderer:", times)
    page.goto(page.url.split("#")[0] + "#to=2^20&x=1000&span=400")
    page.reload()
    drawn(page, "points")
    points = []
    for _ in range(6):
        page.keyboard.press("ArrowRight")
        page.wait_for_timeout(120)
        points.append(float(found.get_attribute("data-ms") or 0))
    print("ms a frame of points:", points)
    assert np.median(times) < 200 and np.median(points) < 100


def test_a_click_tells_all_of_a_number(open_page: Open) -> None:
    page = open_page(f"{ADDRESS}#from=27&to=47&terms=1")
    found = drawn(page, "points")
    box = found.bounding_box()
    assert box
    for n in (27, 41):
        page.mouse.click(box["x"] + (n - 27 + 0.5) / 21 * box["width"], box["y"] + box["height"] / 2)
        expect(page.get_by_label("of n =")).to_have_value(str(n))
        terms = trajectory(n)
        for name, value in (("n", n), ("Steps", len(terms) - 1), ("Peak at", f"step {terms.index(max(terms))}")):
            expect(page.locator(f"dd[data-fact='{name}']")).to_have_text(str(value))
        expect(page.locator("dd[data-fact='Peak']")).to_have_text(spaced(max(terms)))

        def listed() -> list[int]:
            texts = page.locator("ol.terms li").all_inner_texts()
            return [int(text.split(" ", 1)[1].replace(THIN, "")) for text in texts[:15]]

        first = terms[:15]
        until(lambda: listed() == first)  # noqa: B023


def test_reset_clears_the_picture_and_can_be_undone(open_page: Open) -> None:
    page = open_page(f"{ADDRESS}#to=200000")
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("region", name="Job").get_by_text("done", exact=True)).to_be_visible()
    records = page.get_by_role("region", name="Records")
    expect(records).to_contain_text(spaced(156_159))
    page.get_by_role("button", name="Reset").click()
    expect(page.get_by_role("region", name="Statistics")).to_contain_text(re.compile(r"Numbers tested\s*0"))
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("region", name="Statistics")).to_contain_text(
        re.compile(rf"Numbers tested\s*{spaced(200_000)}|200")
    )
    page.get_by_role("group").filter(has_text="The rules").locator("summary").click()
    expect(page.get_by_text("an even number goes to n / 2 and an odd one to 3n + 1")).to_be_visible()


# -- selections and files -----------------------------------------------------------------------------------------


def test_a_brushed_range_becomes_a_histogram_and_a_csv(open_page: Open) -> None:
    page = open_page(f"{ADDRESS}#to=10000")
    whole(page, 10_000)
    box = picture(page).bounding_box()
    assert box
    page.keyboard.down("Shift")
    page.mouse.move(box["x"] + 0.25 * box["width"], box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 90, steps=5)
    page.mouse.up()
    page.keyboard.up("Shift")
    page.evaluate(RESTED)
    page.wait_for_url(re.compile("sel="))
    first, last = map(int, re.search(r"sel=(\d+)-(\d+)", page.url).groups())  # type: ignore[union-attr]
    assert abs(first - 2500) < 40 and abs(last - 5000) < 40
    name, content = saved(page, lambda: page.keyboard.press("e"))
    assert name == f"collatz-{first}-{last}.csv"
    lines = content.decode().split("\r\n")
    assert lines[0] == "Number,Steps,MaxValue"
    assert lines[1:-1] == [
        f"{n},{len(terms) - 1},{max(terms)}" for n in range(first, last + 1) for terms in [trajectory(n)]
    ]
    page.keyboard.press("h")
    _, content = saved(page, lambda: page.get_by_role("button", name="CSV of the histogram").click())
    counts = np.bincount(delays(10_000)[first - 1 : last])
    rows = [line.split(",") for line in content.decode().split("\r\n")[1:-1]]
    assert {int(steps): int(times) for steps, times in rows} == {
        int(steps): int(counts[steps]) for steps in counts.nonzero()[0]
    }
    shot(page, "collatz-histogram-light")


def test_pictures_and_the_log_are_saved(open_page: Open) -> None:
    page = open_page(f"{ADDRESS}#to=1000")
    whole(page, 1000)
    name, content = saved(page, lambda: page.keyboard.press("s"))
    assert name == "collatz-graph.png" and content.startswith(b"\x89PNG")
    size = page.evaluate(
        "[document.querySelector('.picture canvas').width, document.querySelector('.picture canvas').height]"
    )
    # The file has twice the size of the picture and its margins, with the title and a description above.
    wide, high = (int.from_bytes(content[at : at + 4], "big") for at in (16, 20))
    assert wide == 2 * (size[0] + 32) and high > 2 * (size[1] + 32 + 24)
    assert len(content) > 5000  # an empty picture is smaller
    page.keyboard.press("5")
    name, content = saved(page, lambda: page.get_by_role("button", name="SVG").click())
    numbers = {n for start in range(2, 8001) for n in trajectory(start)[:-1]}
    assert name == "collatz-coral.svg" and content.decode().count("M") == len(numbers)
    page.keyboard.press("6")
    name, content = saved(page, lambda: page.get_by_role("button", name="Save as text").click())
    assert name == "collatz-log.txt" and "27: 111 steps, 41 odd, peak 9\u202f232" in content.decode()
    page.get_by_role("button", name="Clear").click()
    expect(page.get_by_role("log")).to_contain_text("Nothing has happened yet")
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("log")).to_contain_text("27: 111 steps")


# -- trajectories -------------------------------------------------------------------------------------------------


def fact(page: Page, name: str) -> str:
    return page.locator(f"dd[data-fact='{name}']").inner_text()


def short(value: int) -> str:
    text = str(value)
    return spaced(value) if len(text) <= 40 else f"{text[:12]}…{text[-8:]} ({spaced(len(text))} digits)"


def test_the_trajectory_of_a_thousand_digits(open_page: Open) -> None:
    n = 10**999 + 7
    terms = trajectory(n)
    page = open_page(f"{ADDRESS}#n=10^999%2B7", permissions=["clipboard-read", "clipboard-write"])
    expect(page.locator("dd[data-fact='Steps']")).to_have_text(spaced(len(terms) - 1))
    assert fact(page, "Odd steps").startswith(spaced(sum(term % 2 for term in terms[:-1])))
    assert fact(page, "Peak").startswith(short(max(terms)))
    assert fact(page, "Peak at") == f"step {spaced(terms.index(max(terms)))}"
    page.get_by_role("button", name="Copy Peak").click()
    expect(page.get_by_text("Copied all digits of Peak")).to_be_visible()
    assert int(page.evaluate("navigator.clipboard.readText()")) == max(terms)
    slider = page.get_by_label("Step of the trajectory")
    for step in (0, 1, 777, len(terms) - 2):
        slider.fill(str(step))
        rule = "odd, 3n + 1" if terms[step] % 2 else "even, n / 2"
        expect(page.locator(".rule")).to_have_text(
            f"step {spaced(step)}: {short(terms[step])} is {rule} = {short(terms[step + 1])}"
        )
    shot(page, "collatz-thousand-digits-light")


def test_twenty_thousand_digits_and_no_more(open_page: Open) -> None:
    page = open_page(f"{ADDRESS}#n=10^19999%2B1")
    expect(page.locator("dd[data-fact='Steps']")).not_to_be_empty(timeout=60_000)
    field = page.get_by_label("of n =")
    field.fill("10^20000")
    field.press("Enter")
    expect(page.locator("#number-note")).to_contain_text("digits")
    expect(field).to_have_attribute("aria-invalid", "true")


def test_trajectories_are_compared_where_they_meet(open_page: Open) -> None:
    page = open_page(f"{ADDRESS}#n=27&with=31,2^40-1,6")
    first = trajectory(27)
    lines = page.locator(".paths li")
    expect(lines).to_have_count(4)
    for place, n in enumerate((31, 2**40 - 1, 6), 1):
        other = set(trajectory(n))
        common = next(term for term in first if term in other)
        met = lines.nth(place).locator("[data-meets]")
        expect(met).to_have_attribute("data-meets", str(common))
        expect(met).to_contain_text(f"{len(trajectory(common)) - 1} steps before 1")
    page.get_by_label("compare with").fill("97")
    page.get_by_label("compare with").press("Enter")
    expect(lines).to_have_count(5)
    page.get_by_label("ends together").check()
    shot(page, "collatz-compare-light")
    lines.nth(1).get_by_role("button", name="take out").click()
    expect(lines).to_have_count(4)


# -- tree, residues -----------------------------------------------------------------------------------------------


def test_the_inverse_tree_unfolds_and_moves_its_root(open_page: Open) -> None:
    page = open_page(f"{ADDRESS}#view=tree&depth=6")
    nodes = page.locator(".twig")
    reached = {1}
    levels = [reached]
    for _ in range(6):
        levels.append({2 * n for n in levels[-1]} | {(n - 1) // 3 for n in levels[-1] if n > 4 and n % 6 == 4})
    every = set().union(*levels)
    expect(nodes).to_have_count(len(every))
    values = {int(value) for value in nodes.evaluate_all("all => all.map((each) => each.dataset.value)")}
    assert values == every
    leaf = page.locator(".twig[data-value='64']")
    leaf.click()
    expect(page.locator(".twig[data-value='21']")).to_be_visible()
    page.locator(".twig[data-value='5']").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".node-facts")).to_contain_text("5 → 16 → 8 → 4 → 2 → 1")
    values_of = "all => all.map((each) => Number(each.dataset.value))"
    until(lambda: sorted(page.locator(".twig.lit").evaluate_all(values_of)) == sorted(trajectory(5)))
    settled(page)
    box = page.locator(".tree-around").bounding_box()
    assert box
    for twig in nodes.all():
        place = twig.locator(".hit").bounding_box()
        assert place and box["x"] <= place["x"] and place["x"] + place["width"] <= box["x"] + box["width"]
        assert box["y"] <= place["y"] and place["y"] + place["height"] <= box["y"] + box["height"]
    shot(page, "collatz-tree-light")
    page.get_by_role("button", name="Make it the root").click()
    expect(page.locator(".twig").first).to_have_attribute("data-value", "5")
    expect(page).to_have_url(re.compile("root=5"))


def test_residues_are_means(open_page: Open) -> None:
    page = open_page(f"{ADDRESS}#to=30000&view=residues&mod=7")
    expect(page.locator("#panel-residues canvas")).to_be_visible()
    page.keyboard.press("t")
    steps = delays(30_000)
    rows = page.locator("#panel-residues tbody tr")
    expect(rows).to_have_count(7)
    for row in rows.all_inner_texts():
        residue, count, mean, least, most, _ = row.split("\t")
        own = steps[(np.arange(1, 30_001) % 7) == int(residue)]
        assert int(count.replace(THIN, "")) == len(own) and (int(least), int(most)) == (own.min(), own.max())
        assert math.isclose(float(mean), own.mean(), abs_tol=0.001)


# -- frontier -----------------------------------------------------------------------------------------------------


def test_a_search_from_its_form_to_its_certificate(open_page: Open, pages: Live) -> None:
    page = open_page(f"{ADDRESS}#view=frontier")
    form = page.get_by_role("form", name="Search")
    form.get_by_label("N", exact=True).fill("19")
    expect(form).to_contain_text("N must be an integer from 20 to")
    expect(form.get_by_role("button")).to_be_disabled()
    form.get_by_label("N", exact=True).fill("20")
    form.get_by_label("name").fill("a small search")
    form.get_by_role("button", name="Verify all n").click()
    panel = page.locator("#panel-frontier")
    expect(panel).to_contain_text("Every number from 1 to 2^20 - 1 reaches 1.", timeout=60_000)
    expect(panel).to_contain_text("46 of 46 classes")
    job = re.search(r"frontier=(\w+)", page.url)
    assert job
    result = pages.get(f"/api/jobs/{job[1]}/result")["result"]
    expect(panel.get_by_role("region", name="Totals")).to_contain_text(spaced(result["survivors"]))
    expect(panel).to_contain_text(f"cluster verify-certificate {job[1]}")
    expect(panel.get_by_role("region", name="Expected times on this cluster")).to_contain_text("2⁶⁰")
    name, content = saved(page, lambda: panel.get_by_role("link", name="Download").click())
    assert name == f"{job[1]}.json" and json.loads(content)["result"] == result
    page.keyboard.press("t")
    expect(panel.locator("tbody tr")).to_have_count(len(result["certificate"]))


def test_a_link_to_a_search_opens_its_view(open_page: Open, pages: Live) -> None:
    job = pages.submit("collatz", {"mode": "frontier", "bits": 21})
    page = open_page(f"{ADDRESS}#job={job}")
    expect(page.locator("#panel-frontier")).to_contain_text(job[:8])


# -- for everybody ------------------------------------------------------------------------------------------------


def test_keys_alone(open_page: Open) -> None:
    page = open_page(f"{ADDRESS}#to=3000")
    whole(page, 3000)
    for number, tab in enumerate(TABS, 1):
        page.keyboard.press(str(number))
        expect(page.get_by_role("tab", name=re.compile(tab, re.IGNORECASE))).to_have_attribute("aria-selected", "true")
    page.keyboard.press("v")
    expect(page.get_by_role("tab", name="Graph")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("n")
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("703")
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    expect(page.locator("dd[data-fact='Steps']")).to_have_text("170")
    page.get_by_role("tab", name="Graph").focus()
    page.keyboard.press("PageUp")
    expect(page.locator("dd[data-fact='n']")).to_have_text("704")
    page.keyboard.press("PageDown")
    expect(page.locator("dd[data-fact='n']")).to_have_text("703")
    for _ in range(3):
        page.keyboard.press(".")
    expect(page.locator(".rule")).to_contain_text(f"step 3: {spaced(trajectory(703)[3])}")
    page.keyboard.press("Shift+ArrowRight")
    expect(page.locator(".pointed")).to_contain_text("steps")
    page.keyboard.press("+")
    page.keyboard.press("m")
    expect(page).to_have_url(re.compile("sel="))
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_contain_text("zoom in")


def test_axe_finds_nothing(open_page: Open) -> None:
    page = open_page(f"{ADDRESS}#to=20000&n=27&with=31&terms=1")
    for number, tab in enumerate(TABS, 1):
        page.keyboard.press(str(number))
        for theme in in_both_themes(page):
            settled(page)
            assert violations(page) == [], f"{tab} in {theme}"
            shot(page, f"collatz-{tab}-{theme}")


def test_on_a_phone_the_picture_comes_first(open_page: Open) -> None:
    page = open_page(f"{ADDRESS}#to=10^5&n=2^200-1&with=27,97", viewport=PHONE, has_touch=True)
    found = whole(page, 100_000)
    box = found.bounding_box()
    assert box and box["y"] < 200 and box["height"] > 220
    for theme in in_both_themes(page):
        settled(page)
        assert violations(page) == [], theme
        page.screenshot(path=shot(page, f"collatz-phone-{theme}"), full_page=True)
    page.get_by_role("region", name="Records").get_by_role("button", name=spaced(77_031), exact=True).tap()
    expect(page.locator("dd[data-fact='Steps']")).to_have_text("350")
    expect(page.locator(".trajectory h2")).to_be_in_viewport()
    for number, tab in enumerate(TABS, 1):
        page.keyboard.press(str(number))
        for theme in in_both_themes(page):
            settled(page)
            assert overflow(page) == 0, f"{tab} in {theme}"
            shot(page, f"collatz-phone-{tab}-{theme}")


def test_figures_of_theory(open_page: Open) -> None:
    """The means in the histogram, and the number with the fewest steps."""
    page = open_page(f"{ADDRESS}#to=10^5&view=histogram")
    panel = page.locator("#panel-histogram")
    steps = delays(100_000)
    expect(panel).to_contain_text(f"mean {steps.mean():.2f}, deviation {steps.std():.2f}")
    expect(page.get_by_role("region", name="Records")).to_contain_text("5, 5 steps")
    classes = [int((steps <= 10).sum()), int(((steps > 10) & (steps <= 50)).sum())]
    for count in classes:
        expect(panel.locator(".classes")).to_contain_text(spaced(count))
    assert json.loads(page.evaluate("JSON.stringify(document.title)")).startswith("Collatz")
