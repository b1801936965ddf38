"""Tests jobs with programs against a fake coordinator: the grid and table of units, logs, the form, and runners."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from playwright.sync_api import Page, expect

from jobs.kinds.command.parameters import Parameters
from tests.browser.conftest import DIST, PHONE, Open, in_both_themes, overflow, settled, shot, violations
from tests.browser.programs import JOB, Programs, served

ADDRESS = f"/job.html#job={JOB}&tab=units"
ARTIFACT = {
    "artifact_id": "4f0c7be1a1a3" + "0" * 52,
    "tenant": "default",
    "names": ["simulate"],
    "files": 3000,
    "bytes": 13_489_500,
    "manifest_bytes": 268_000,
    "created": "2026-11-22T09:00:00.000Z",
    "held_by": [],
}

Serve = Callable[[int], tuple[Programs, str]]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Return a function that starts a fake coordinator with one mostly finished job, and returns it with its URL."""
    with ExitStack() as stack:

        def started(total: int) -> tuple[Programs, str]:
            programs = Programs(total, Parameters.model_json_schema())
            programs.set("done", *range(total // 2))
            programs.set("dead", *range(3, min(4, total)))
            programs.outputs = {"outputs/3/out/result.csv": b"a,b\n1,2\n"}
            programs.artifacts = [ARTIFACT]
            return programs, stack.enter_context(served(programs, DIST))

        yield started


def log_of(page: Page) -> str:
    return page.get_by_role("log").inner_text()


def test_ten_thousand_units_are_seen_by_pointer_and_keys_and_one_log_has_nine_megabytes(
    open_address: Open, serve: Serve
) -> None:
    programs, url = serve(10_000)
    programs.logs[3] = b"".join(b"step %07d \x1b[31mlost\x1b[0m\n" % number for number in range(330_000))
    page = open_address(url + ADDRESS)
    grid = page.get_by_role("slider", name=f"Units of job {JOB}")
    shown = page.get_by_role("group", name="Units shown")
    expect(shown.get_by_role("button", name="failed")).to_contain_text("1")
    # The grid follows the events of the job.
    programs.set("running", *range(5000, 5008))
    programs.set("done", 6000)
    expect(shown.get_by_role("button", name="running")).to_contain_text("8")
    shot(page, "programs-grid-light-desktop")
    # The keyboard works as well, with texts for screen readers.
    grid.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    expect(grid).to_have_attribute("aria-valuetext", re.compile("unit 3: failed, timeout, exit 137, .* on runner-1"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="Unit 3")).to_contain_text("SIGKILL after 10 s of grace")
    # The log has more than nine million bytes. The page contains only the visible lines, without escape sequences.
    expect(page.get_by_role("log").locator("p").last).to_have_text(re.compile("330000step 0329999 lost"))
    assert page.get_by_role("log").locator("p").count() < 60
    page.get_by_label("Search the log").fill("0123456 L")
    expect(page.get_by_role("log").locator("[data-at]")).to_contain_text("step 0123456 lost")
    with page.expect_download() as saved:
        page.get_by_role("button", name="result.csv").click()
    assert saved.value.path().read_bytes() == b"a,b\n1,2\n"
    # The table shows a thousand units per page, or only the units in one state.
    page.get_by_text("All units").click()
    table = page.get_by_role("region", name="Table of units")
    expect(table.get_by_role("table")).to_have_attribute("aria-rowcount", "1001")
    page.get_by_role("button", name=re.compile("^Next 1.000$")).click()
    expect(table).to_contain_text(re.compile("1.000"))
    shown.get_by_role("button", name="failed").click()
    expect(table.get_by_role("table")).to_have_attribute("aria-rowcount", "2")
    expect(page).to_have_url(re.compile("unit=3&units=dead"))


def test_the_form_of_a_program_and_its_log_while_it_runs(open_address: Open, serve: Serve) -> None:
    programs, url = serve(2)
    page = open_address(f"{url}/cluster.html")
    page.keyboard.press("n")
    form = page.get_by_role("dialog", name="New job")
    form.get_by_label("count", exact=True).fill("0")
    form.get_by_label("command", exact=True).fill("./simulate --seed {unit}")
    expect(form.get_by_text("write $CLUSTER_UNIT")).to_be_visible()
    form.get_by_role("button", name="Submit").click()
    expect(form.get_by_label("count", exact=True)).to_have_attribute("aria-invalid", "true")
    form.get_by_label("Arguments").check()
    form.get_by_label("command", exact=True).fill("./simulate\n--seed\n{item}")
    form.get_by_label("One run per item").check()
    form.get_by_label("items", exact=True).fill('1\nb c\n{"x": 2}')
    form.get_by_label("files").select_option(label="simulate (4f0c7be1): 3\u202f000 files, 12.9\u202fMiB")
    form.get_by_text("GPUs, CPUs and memory").click()
    form.get_by_label("gpus", exact=True).fill("2")
    form.get_by_text("Environment, secrets").click()
    form.get_by_label("environment").fill("A=1\nB=x=y")
    programs.set("running", 0)
    programs.live[0] = [("stdout", b"epoch 1\n"), ("stderr", b"slow disk\n")]
    form.get_by_role("button", name="Submit").click()
    expect(page.get_by_role("region", name=f"Job {JOB}")).to_be_visible()
    sent = programs.submitted[-1]
    assert sent["type"] == "command" and "device" not in sent
    assert json.loads(json.dumps(sent["parameters"])) == {
        "command": ["./simulate", "--seed", "{item}"],
        "items": [1, "b c", {"x": 2}],
        "env": {"A": "1", "B": "x=y"},
        "files": ARTIFACT["artifact_id"],
        "requirements": {"gpus": 2},
    }
    page.get_by_role("tab", name="Units").click()
    page.get_by_role("button", name="Log of unit 0").click()
    expect(page.get_by_role("log")).to_contain_text("slow disk")
    programs.live[0].append(("stdout", b"epoch 2\n"))
    expect(page.get_by_role("log")).to_contain_text("epoch 2")
    page.get_by_label("Search the log").fill("disk")
    programs.logs[0] = b"epoch 1\nslow disk\nepoch 2\nall\n"
    programs.set("done", 0)
    expect(page.get_by_role("log")).to_contain_text("all")
    expect(page.get_by_label("Follow the end")).to_have_count(0)
    # The search remains when the program exits.
    expect(page.get_by_text("1 of 1 line")).to_be_visible()
    assert [line for line in log_of(page).splitlines() if "epoch" in line] == ["1epoch 1", "3epoch 2"]


def test_pages_of_programs_are_whole_and_accessible(open_address: Open, serve: Serve) -> None:
    programs, url = serve(64)
    programs.logs[3] = (
        b"\x1b[31mred\x1b[32mgreen\x1b[33myellow\x1b[34mblue\x1b[35mmagenta\x1b[36mcyan\x1b[2mdim\x1b[0m\n" * 9
    )
    for width, options in (("desktop", {}), ("phone", {"viewport": PHONE, "has_touch": True})):
        page = open_address(f"{url}{ADDRESS}&unit=3", **options)
        expect(page.get_by_role("log")).to_contain_text("green")
        page.get_by_label("Search the log").fill("low")
        expect(page.get_by_text("1 of 9 lines")).to_be_visible()
        whole(page, f"programs-{width}")
        page.goto(f"{url}/cluster.html#tab=workers")
        runner = page.get_by_role("region", name="Runner runner-1")
        expect(runner).to_contain_text("look at its disk")
        expect(runner).to_contain_text(re.compile("2...NVIDIA H200"))
        whole(page, f"runners-{width}")
    # The header is complete even before the cluster has answered.
    page.route("**/api/snapshot", lambda _: None)
    page.reload()
    expect(page.locator(".connection")).to_have_attribute("data-state", "connecting")
    shot(page, "connecting-phone")
    expect(page.get_by_role("button", name="Menu")).to_contain_text("Machines")
    assert overflow(page) == 0


def whole(page: Page, part: str) -> None:
    """Check that the page does not overflow and that axe finds no violation in both themes."""
    for theme in in_both_themes(page):
        settled(page)
        shot(page, f"{part}-{theme}")
        assert violations(page) == [] and overflow(page) == 0, f"{part} in {theme}"


def test_what_could_not_be_read_is_read_again_once_the_cluster_is_back(open_address: Open, serve: Serve) -> None:
    programs, url = serve(10)
    programs.away = True
    page = open_address(url + "/kinds.html")
    expect(page.get_by_role("alert")).to_contain_text("List of kinds could not be read")
    programs.away = False
    page.get_by_role("button", name="Try now").click()
    expect(page.get_by_role("link", name="command")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)
