"""Tests the overview of the Cluster page against a fake coordinator, mainly its messages about problems."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import (
    DESKTOP,
    DIST,
    PATIENCE_MS,
    PHONE,
    RESTED,
    Open,
    go,
    in_both_themes,
    overflow,
    settled,
    shot,
    violations,
    wrapped,
)
from tests.browser.fleets import SPEEDS, Fleet, busy, host, job, moment, span, worker
from tests.browser.programs import served
from tests.integration.live import until

PAST = 500
WIDE = {"width": 1440, "height": 900}
#: Returns the texts of elements whose content is wider than the element.
CUT = """selector => [...document.querySelectorAll(selector)].filter(each => each.scrollWidth > each.clientWidth)
  .map(each => each.innerText)"""
#: Returns the unused pixels of each line whose name is shortened.
SPARE = """lines => lines.map(line => {
  const [link, words] = [line.querySelector(".link"), document.createRange()];
  words.selectNodeContents(line.querySelector(".state-text"));
  const [text, whole] = [words.getBoundingClientRect(), line.getBoundingClientRect()];
  const name = line.querySelector(".subject").getBoundingClientRect();
  return link.scrollWidth > link.clientWidth ? whole.right - text.right + text.left - name.right - 12 : 0;
})"""
#: Returns all visible texts, tooltips and labels for screen readers.
WORDS = """() => [document.querySelector("main").innerText,
  ...[...document.querySelectorAll("main [title], main [aria-label]")].flatMap(each =>
    [each.getAttribute("title"), each.getAttribute("aria-label")])].join("\\n")"""
THINGS = "jobs?|workers?|lanes?|units?|leases?|hosts?|programs?|runners?|slots?|GPUs?|queues?|alerts?|files?|attempts?"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def test_what_is_not_known_is_not_drawn_busy(open_address: Open, stack: ExitStack) -> None:
    """The cluster has a killed worker, a drained worker and a job that waits for its turn. Then the cluster becomes
    unreachable.
    """
    fleet = busy()
    fleet.silent = {"cpu-1": time.time() - 6}
    page = open_address(stack.enter_context(served(fleet, DIST)) + "/cluster.html")
    figures = page.get_by_role("region", name="The cluster now")
    expect(figures).to_contain_text("81.2 M/s")
    expect(page.locator(".others")).to_contain_text("2 of 4, 1 drained, 1 lost")
    picture = page.locator("figure", has_text="Worker stream").get_by_role("img")
    expect(picture).to_have_attribute("aria-label", re.compile("; 4 compute now"))  # without the lanes of cpu-1
    stands = page.locator(".now li", has_text="0aa1b2c3")
    expect(stands).to_contain_text("waits for its turn")
    expect(stands).to_contain_text("3 jobs are ahead")
    expect(stands).not_to_contain_text("left")
    lines = page.locator(".events.lines li")
    expect(lines).to_have_count(6)  # one line per job, not per event
    shot(page, "overview-busy")
    page.set_viewport_size(PHONE)
    settled(page)
    assert overflow(page) == 0
    page.set_viewport_size(DESKTOP)
    fleet.away = True
    expect(page.locator(".connection")).to_have_attribute("data-state", "reconnecting")
    expect(picture).to_have_attribute("aria-label", re.compile("; 0 compute now"))
    expect(page.locator(".headlines")).to_have_css("filter", "grayscale(1)")
    shot(page, "overview-away")
    fleet.away = False


def test_an_empty_cluster_shows_a_first_command_to_copy(open_address: Open, stack: ExitStack) -> None:
    fleet = Fleet([], [worker("cpu-1", "idle")])
    url = stack.enter_context(served(fleet, DIST))
    page = open_address(
        f"{url}/cluster.html", viewport=PHONE, has_touch=True, permissions=["clipboard-read", "clipboard-write"]
    )
    welcome = page.get_by_role("region", name="Run your first job")
    welcome.get_by_role("button", name="Copy the command").tap()
    expect(page.get_by_text("Copied the command")).to_be_visible()
    # Anonymous users cannot run programs, so the page offers jobs of compiled kinds.
    expect(page.get_by_role("link", name="Run a program")).to_have_count(0)
    expect(page.get_by_text("a token that has the scope run")).to_be_visible()
    settled(page)
    assert violations(page) == [] and overflow(page) == 0
    shot(page, "home-empty-phone")
    welcome.get_by_role("button", name="add a machine").tap()
    expect(page.locator("#panel-hosts")).to_be_visible()


def test_a_job_that_somebody_else_deleted_is_gone_once_it_is_looked_at(open_address: Open, stack: ExitStack) -> None:
    fleet = Fleet(
        [job("5c7b3fb0a1d24e6f", "done", age=PAST), job("81d2c3b4a5968778", "done")], [worker("cpu-1", "idle")]
    )
    page = open_address(stack.enter_context(served(fleet, DIST)) + "/cluster.html#tab=jobs")
    rows = page.locator(".job-table tbody tr")
    expect(rows).to_have_count(2)
    del fleet.jobs["5c7b3fb0a1d24e6f"]
    rows.last.locator(".opens").click()
    expect(page.get_by_role("alert")).to_contain_text("Job 5c7b3fb0a1d24e6f does not exist")
    shot(page, "deleted-job")


def test_a_job_that_somebody_else_deletes_goes_at_once_and_is_told(open_address: Open, stack: ExitStack) -> None:
    fleet = Fleet(
        [job("5c7b3fb0a1d24e6f", "done", age=PAST), job("81d2c3b4a5968778", "done")], [worker("cpu-1", "idle")]
    )
    page = open_address(stack.enter_context(served(fleet, DIST)) + "/job.html#job=5c7b3fb0a1d24e6f")
    # Wait for the request, because an earlier deletion would look like an unknown job.
    until(lambda: "/api/jobs/5c7b3fb0a1d24e6f" in fleet.asked)
    expect(page.get_by_role("link", name="Edit and rerun")).to_be_visible()
    page.evaluate(RESTED)
    gone = fleet.jobs.pop("5c7b3fb0a1d24e6f")
    fleet.move({"type": "deleted", "job": gone["job_id"], "kind": "collatz", "state": "deleted", "done": 1, "total": 1})
    expect(page.get_by_role("alert")).to_contain_text("Job 5c7b3fb0a1d24e6f was deleted.")


def test_events_of_a_job_have_the_times_at_which_they_happened(open_address: Open, stack: ExitStack) -> None:
    """For a job without stored events, the API reports the current state, which is not an event of the current time."""
    fleet = Fleet([job("5c7b3fb0a1d24e6f", "queued", age=PAST)], [worker("cpu-1")])
    fleet.present = "5c7b3fb0a1d24e6f"
    page = open_address(stack.enter_context(served(fleet, DIST)) + "/cluster.html#tab=jobs&job=5c7b3fb0a1d24e6f")
    events = page.get_by_role("list", name="Events of this job")
    expect(events.get_by_role("listitem")).to_have_count(1)
    page.wait_for_timeout(1000)  # the response arrives and changes nothing
    expect(events.get_by_role("listitem")).to_have_count(1)
    created = fleet.jobs["5c7b3fb0a1d24e6f"]["created"]
    expect(events.locator("time")).to_have_text(page.evaluate(CLOCK, created))


CLOCK = "at => new Date(at).toTimeString().slice(0, 8)"


def test_the_oldest_wait_goes_on_between_the_cluster_s_words(open_address: Open, stack: ExitStack) -> None:
    drained = "the only worker that serves the queue any.normal is drained"
    fleet = Fleet([job("5c7b3fb0a1d24e6f", "queued", waiting_because=drained)], [worker("cpu-1", "drained")])
    fleet.queues = [{"queue": "any.normal", "jobs": 1, "bells": 0, "oldest_wait_seconds": 25.0}]
    page = open_address(stack.enter_context(served(fleet, DIST)) + "/cluster.html")
    waiting = page.get_by_role("region", name="The cluster now").locator("div", has_text="Waiting")
    expect(waiting).to_contain_text(re.compile(r"oldest (2[5-9]|[3-9]\d).s"))
    before = waiting.inner_text()
    expect(waiting).not_to_have_text(before)
    # When a worker is free again, the reason changes although no event about the job arrives.
    fleet.jobs["5c7b3fb0a1d24e6f"]["waiting_because"] = "the job is next in the queue any.normal"
    fleet.set_worker(worker("cpu-1", "idle"))
    expect(page.locator(".now li")).to_contain_text("the job is next")


def test_hosts_say_what_differs_and_what_nobody_knows(open_address: Open, stack: ExitStack) -> None:
    """The hosts are a healthy one, one with a different clock and version and HTML in its name, and an old lost one."""
    bold = "<b>attic</b>"
    nothing: dict[str, Any] = {"cpu_ratio": None, "memory_used_bytes": None, "load1": None, "disks": []}
    fleet = busy()
    fleet.hosts = [
        host("desk", ["cpu-1", "cpu-2"]),
        host(bold, ["cpu-3"], clock_offset_seconds=3600.0, versions={"threads_cluster": ["0.16.0"]}, labels=[]),
        host(
            "cellar",
            ["cpu-4"],
            live=False,
            clock_offset_seconds=None,
            versions={},
            network_receive_bytes_per_second=None,
            **nothing,
        ),
    ]
    page = open_address(stack.enter_context(served(fleet, DIST)) + "/cluster.html#tab=hosts")
    rows = page.get_by_role("region", name="Hosts").locator("tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.nth(0)).to_contain_text("ssd, trusted")
    expect(rows.nth(0).locator(".bad")).to_have_count(0)
    expect(rows.nth(1)).to_contain_text(bold)
    expect(rows.nth(1).locator("dd.bad")).to_have_text(["0.16.0, coordinators 0.17.0", re.compile("1.h ahead")])
    expect(rows.nth(2).locator(".col-state")).to_contain_text("lost")
    expect(rows.nth(2).get_by_text("not known")).to_have_count(6)
    expect(page.get_by_text("./deploy-cluster.sh invite")).to_be_visible()
    for size, name in ((DESKTOP, "desktop"), (PHONE, "phone"), ({"width": 1440, "height": 900}, "wide")):
        page.set_viewport_size(size)  # type: ignore[arg-type]
        settled(page)
        shot(page, f"hosts-{name}")
        assert violations(page) == [] and overflow(page) == 0, name


def test_rows_hold_their_line_where_there_is_room(open_address: Open, stack: ExitStack) -> None:
    fleet = busy()
    fleet.hosts = [host("desk", ["cpu-1", "cpu-2"])]
    page = open_address(stack.enter_context(served(fleet, DIST)) + "/cluster.html", viewport=WIDE)
    expect(page.locator(".events.lines li")).to_have_count(6)
    settled(page)
    assert wrapped(page, ".headlines > div, .others, .events li, .tiles .row, .header") == []
    cut = page.evaluate(CUT, ".events.lines .link, .events.lines .state")
    assert not [text for text in cut if not text.startswith(("Threads: 8 cores, work", "failed: parameters"))], cut
    assert max(page.locator(".events.lines li:has(.link)").evaluate_all(SPARE)) < 20
    for tab, rows, first in (("jobs", "tbody tr, .segments", "5c7b3fb0"), ("workers", "tbody tr", "cpu-1")):
        go(page, tab)
        expect(page.locator("tbody")).to_contain_text(first)
        settled(page)
        assert (wrapped(page, rows), page.evaluate(CUT, ".scroll")) == ([], []), tab
    shot(page, "workers-wide")
    go(page, "jobs")
    page.set_viewport_size(PHONE)
    settled(page)
    boxes = [page.locator(".job-table tbody tr").first.locator(each).bounding_box() for each in ("input", ".opens")]
    assert boxes[0] and boxes[1]
    # The checkbox of a job is next to its name.
    assert boxes[1]["y"] < boxes[0]["y"] + boxes[0]["height"] and boxes[0]["y"] < boxes[1]["y"] + boxes[1]["height"]
    assert page.evaluate(CUT, ".job-table .opens") == []
    shot(page, "jobs-phone")


#: Measurements of a service that has just started.
LAST_MINUTE = {
    "seconds": 60.0,
    "requests": 0,
    "failed": 0,
    "prompt_tokens": 0,
    "answer_tokens": 0,
    "requests_per_second": 0.0,
    "answer_tokens_per_second": 0.0,
    "median_seconds": None,
    "median_first_token_seconds": None,
    "median_stream_tokens_per_second": None,
}


class Crashing(Fleet):
    """A service whose only replica has crashed and starts again in ten minutes."""

    def answer(self, path: str, query: dict[str, str]) -> tuple[Any, dict[str, str]]:
        row = {
            "name": "chat",
            "state": "crashing",
            "engine": "http",
            "model": "",
            "replicas": 1,
            "ready": 0,
            "requests": 0,
            "failures": 1,
            "last_failure": "exit code 1",
            "next_start": self.next_start,
            "running": [],
            "last_dead_job_id": None,
            "last_minute": LAST_MINUTE,
        }
        answers = {"/api/services": {"services": [row]}, "/api/services/chat": row}
        return (answers[path], {}) if path in answers else super().answer(path, query)

    next_start = moment(0)


def test_the_time_to_a_replica_s_next_start_stands_still_while_the_cluster_is_away(
    open_address: Open, stack: ExitStack
) -> None:
    fleet = Crashing([job("5c7b3fb0a1d24e6f", "done")], [worker("cpu-1", "idle")])
    fleet.next_start = moment(time.time() + 600)
    url = stack.enter_context(served(fleet, DIST))
    pages = [open_address(f"{url}/cluster.html#tab=services{more}") for more in ("", "&service=chat")]
    said = [page.get_by_text(re.compile(r"The next one starts in (10|9).min")) for page in pages]
    for text in said:
        expect(text).to_be_visible()
    fleet.away = True
    for page in pages:
        expect(page.locator("[data-age]")).to_have_attribute("data-age", "lost")
    before = [text.inner_text() for text in said]
    pages[0].wait_for_timeout(1500)
    assert [text.inner_text() for text in said] == before
    fleet.away = False


def test_long_names_leave_room_for_what_is_said_of_them(open_address: Open, stack: ExitStack) -> None:
    names = [f"rack-{number:03}.a-long-name-of-a-room.eu-central-1.internal.example.test" for number in range(40)]
    states = ("busy", "lost", "draining", "drained")
    rows = [worker(name, states[place % 4], host=name, cpu_level="avx512") for place, name in enumerate(names)]
    fleet = Fleet([job("5c7b3fb0a1d24e6f")], rows)
    fleet.hosts = [host(name, [name]) for name in names]
    page = open_address(stack.enter_context(served(fleet, DIST)) + "/cluster.html", viewport=PHONE)
    expect(page.locator(".others")).to_contain_text("10 draining")
    assert overflow(page) == 0
    page.set_viewport_size(DESKTOP)
    for tab, column in (("Hosts", ".col-cpu"), ("Workers", ".col-lanes")):
        go(page, tab.lower())
        row = page.locator("tbody tr", has_text=names[0]).first
        expect(row).to_be_visible()
        settled(page)
        name, place = row.locator(".long-name").first.bounding_box(), row.locator(column).bounding_box()
        assert name and place and name["height"] < 100 < name["width"], tab
        assert place["x"] + place["width"] < DESKTOP["width"], tab
        shot(page, f"long-names-{tab.lower()}")


def test_seven_tabs_of_a_browser_all_follow_the_cluster(browser: Browser, stack: ExitStack) -> None:
    """A browser has six connections per host, and each stream uses one."""
    fleet = Fleet([job("5c7b3fb0a1d24e6f")], [worker("cpu-1")])
    address = stack.enter_context(served(fleet, DIST)) + "/cluster.html#tab=jobs"
    context = stack.enter_context(browser.new_context())
    tabs = [context.new_page() for _ in range(7)]
    for tab in tabs:
        tab.set_default_timeout(PATIENCE_MS)
        tab.goto(address)
        expect(tab.locator(".connection")).to_have_attribute("data-state", "live")
    first, rest = tabs[:4], tabs[4:]
    done = job("5c7b3fb0a1d24e6f", "done")
    fleet.jobs[done["job_id"]] = done
    fleet.move({"type": "done", "job": done["job_id"], "kind": "collatz", "state": "done", "done": 1, "total": 1})
    for tab in tabs:
        expect(tab.locator(".job-table tbody .col-state")).to_have_text("done", timeout=60_000)
    for tab in rest:
        expect(tab.locator(".connection")).to_have_attribute("title", re.compile("every few seconds"), timeout=60_000)
    for tab in first:
        tab.close()
    # Each remaining tab soon gets a slot. The event `online` makes it try immediately.
    look = "dispatchEvent(new Event('online')), navigator.locks.query().then(all => all.held.length)"
    until(lambda: [tab.evaluate(look) for tab in rest] == [len(rest)] * len(rest), 60)


def test_a_phone_says_how_long_a_job_waits_or_ran(open_address: Open, stack: ExitStack) -> None:
    fleet = Fleet(
        [job("5c7b3fb0a1d24e6f", "queued", age=30), job("81d2c3b4a5968778", age=61)], [worker("cpu-1", "busy")]
    )
    page = open_address(stack.enter_context(served(fleet, DIST)) + "/cluster.html#tab=jobs", viewport=PHONE)
    for name, text, before in (("5c7b", " waiting", "none"), ("81d2", "", '"ran"')):
        time_of = page.locator(f'.job-table tr[data-row^="{name}"] .col-time')
        expect(time_of).to_have_text(re.compile(rf"^[\d.]+\s(s|min).*{text}$"))
        assert time_of.evaluate("each => getComputedStyle(each, '::before').content") == before
    shot(page, "phone-waiting")


def test_a_phone_has_a_menu_that_names_the_open_page(open_address: Open, stack: ExitStack) -> None:
    base = stack.enter_context(served(busy(), DIST)) + "/cluster.html"
    page = open_address(f"{base}#tab=services", viewport=PHONE)
    menu, links = page.get_by_role("button", name="Menu"), page.get_by_role("navigation", name="Pages")
    expect(menu).to_contain_text("Services")
    expect(links).to_be_hidden()
    menu.click()
    expect(links.get_by_role("link", name="Services")).to_have_attribute("aria-current", "page")
    assert violations(page) == [] and overflow(page) == 0
    shot(page, "menu-phone")
    page.keyboard.press("Escape")
    expect(links).to_be_hidden()
    go(page, "workers")
    expect(links).to_be_hidden()
    expect(menu).to_contain_text("Machines")
    page.go_back()
    page.go_back()
    expect(menu).to_contain_text("Services")


def test_home_lists_what_needs_attention_with_one_action_each(open_address: Open, stack: ExitStack) -> None:
    fleet = busy()
    failed = job("f0f0f0f0f0f0f0f0", "failed", "command", age=20, error="item 4: exit code 1")
    reason = "no runner has 2 GPUs; runner-1 comes closest, with 1 GPU"
    stuck = job("abababababababab", "queued", "command", waiting_because=reason)
    old = job("0123012301230123", "failed", ended=moment(time.time() - 3 * 86400))
    fleet.jobs |= {each["job_id"]: each for each in (failed, stuck, old)}
    url = stack.enter_context(served(fleet, DIST))
    page = open_address(f"{url}/cluster.html")
    items = page.get_by_role("region", name="Needs attention").get_by_role("listitem")
    expect(items.filter(has_text="item 4: exit code 1")).to_have_count(1)
    expect(items.filter(has_text="2 GPUs").get_by_role("link")).to_have_text("Add a machine")
    expect(items.filter(has_text="0123")).to_have_count(0)
    expect(items.filter(has_text="item 4").get_by_role("link")).to_have_attribute(
        "href", re.compile("f0f0f0f0f0f0f0f0")
    )
    for size, name in ((PHONE, "phone"), (WIDE, "wide")):
        page.set_viewport_size(size)  # type: ignore[arg-type]
        for theme in in_both_themes(page):
            settled(page)
            shot(page, f"home-{theme}-{name}")
            assert violations(page) == [] and overflow(page) == 0, (name, theme)
    # One key opens the log of the failed unit: the job's page shows it first.
    first = items.first.get_by_role("link").get_attribute("href") or ""
    page.keyboard.press("a")
    expect(page).to_have_url(re.compile(f"{re.escape(first)}$"))


def test_one_of_each_is_written_in_the_singular(open_address: Open, stack: ExitStack) -> None:
    one: dict[str, Any] = {"lanes": 1, "busy_lanes": 1, "job": "5c7b3fb0a1d24e6f", "rates": {"collatz": 1.0}}
    went_back = job("0aa1b2c3d4e5f607", rate=None, eta_seconds=None, waiting_because="1 job is before it", **UNIT)
    fleet = Fleet([job("5c7b3fb0a1d24e6f", "done", age=PAST, **UNIT), went_back], [worker("cpu-1", **one)])
    fleet.queues = [{"queue": "any.normal", "jobs": 1, "bells": 0, "oldest_wait_seconds": 1.0}]
    fleet.hosts = [host("desk", ["cpu-1"], lanes=1, busy_lanes=1, cpus=1)]
    fleet.spans = [span(0, None, 500, 400, jobs=1, leases=1, units=1), span(0, "5c7b3fb0a1d24e6f", 300, 200, leases=1)]
    fleet.series = {"lanes.busy": [1.0] * 60, "jobs.running": [1.0] * 60}
    page = open_address(stack.enter_context(served(fleet, DIST)) + "/cluster.html", viewport=WIDE)
    expect(page.get_by_role("region", name="The cluster now")).to_contain_text("1 of 1 lane busy")
    expect(page.locator("figure", has_text="Worker stream").get_by_role("img")).to_be_visible()
    fleet.move(ALERT)
    seen: set[str] = set()
    for tab in ("Overview", "Hosts", "Workers", "Jobs", "Monitoring"):
        go(page, tab.lower())
        settled(page)
        if tab == "Monitoring":
            expect(page.get_by_role("region", name="Alerts").first).to_contain_text("1 job, 0 jobs")
        words = re.sub(r"[\u202f\u00a0]", " ", page.evaluate(WORDS))
        ones = re.findall(rf"(?<![\d.,/])(?<!\d )1 (?:more |live |small )?(?:{THINGS})\b", words)
        seen |= {*ones}
        assert not [found for found in ones if found.endswith("s")], tab
        assert not re.findall(r"\b1 of them have|\b1 \w+ (?:are|were|have|wait|stand)\b", words), tab
    assert {"1 lane", "1 job", "1 unit"} <= seen


ALERT = {
    "type": "alert",
    "id": "no-worker gpu.normal",
    "rule": "no-worker",
    "subject": "gpu.normal",
    "severity": "critical",
    "state": "firing",
    "since": moment(0),
    "until": None,
    "value": 1,
    "threshold": 0,
    "unit": "jobs",
    "text": "1 job waits",
}
UNIT: dict[str, Any] = {"done": 1, "total": 1, "progress": 1.0}


def test_kinds_of_very_different_speeds_have_axes_of_their_own(open_address: Open, stack: ExitStack) -> None:
    fleet = busy()
    page = open_address(stack.enter_context(served(fleet, DIST)) + "/cluster.html#tab=monitoring", viewport=WIDE)
    charts = page.locator("figure", has_text="Units/s").get_by_role("img")
    expect(charts).to_have_count(len(SPEEDS))
    told = sorted(charts.evaluate_all("all => all.map(each => each.getAttribute('aria-label'))"))
    # Next to a line of millions, a line of thousands would be on the axis.
    for text, kind, most in zip(told, sorted(SPEEDS), ("81.2\u202fM/s", "5.2\u202fk/s"), strict=True):
        assert re.fullmatch(rf"Units/s, {kind} since [\d:]+: {kind} [^,;]+, at most {most}\.", text), text
    go(page, "overview")
    figures = page.get_by_role("region", name="The cluster now")
    expect(figures.locator("div", has_text="Speed, collatz").first).to_contain_text(re.compile(r"81.2.M/s"))
    expect(figures.locator("div", has_text="Speed, thread").first).to_contain_text(re.compile(r"5.2.k/s"))
