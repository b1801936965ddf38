"""Tests workflows on the Cluster page against a fake coordinator: graph, list, details and actions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import DIST, PHONE, RESTED, Open, in_both_themes, overflow, settled, shot, violations
from tests.browser.programs import served
from tests.browser.workflows import WORKFLOW, Workflows, release, schedule, sweep
from tests.integration.live import until

TAB = "/cluster.html#tab=workflows"
OPEN = f"{TAB}&workflow={WORKFLOW}"

Serve = Callable[[list[dict[str, Any]]], tuple[Workflows, str]]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Return a function that starts a fake coordinator with one workflow, and returns it with its URL."""
    with ExitStack() as stack:

        def started(actions: list[dict[str, Any]]) -> tuple[Workflows, str]:
            workflows = Workflows(actions)
            return workflows, stack.enter_context(served(workflows, DIST))

        yield started


def graph_of(page: Page) -> Locator:
    return page.get_by_role("slider", name="Actions of nightly release")


def test_a_workflow_from_the_list_to_its_approval_its_failure_and_its_retry(open_address: Open, serve: Serve) -> None:
    workflows, url = serve(release())
    workflows.move("done", "fetch-data", "verify-range", "simulate", "train-small", "train-large")
    workflows.move("running", "compare", progress=0.4)
    page = open_address(url + TAB)
    page.get_by_role("button", name="nightly release").click()
    expect(page).to_have_url(re.compile(f"workflow={WORKFLOW}"))
    # Arrow keys follow the edges, with texts for screen readers.
    graph = graph_of(page)
    graph.focus()
    page.keyboard.press("Home")
    expect(graph).to_have_attribute("aria-valuetext", re.compile("^(fetch-data|verify-range), .*: done, 1.min 30.s"))
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(graph).to_have_attribute("aria-valuetext", re.compile("^compare, command: running, 40.%.*after train-small"))
    page.keyboard.press("Enter")
    panel = page.get_by_role("complementary", name="Action compare")
    expect(panel.get_by_role("link", name=f"w-{WORKFLOW}-compare-1")).to_be_visible()
    expect(panel).to_contain_text("./step compare")
    panel.get_by_role("button", name="simulate").click()
    expect(page.get_by_role("complementary", name="Action simulate")).to_contain_text("thread")
    page.keyboard.press("Escape")
    expect(page.get_by_role("complementary")).to_have_count(0)
    # The page shows an approval when it is needed, and asks for a confirmation.
    workflows.move("done", "compare")
    workflows.move("approval", "sign-off")
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_role("dialog", name="Approve: Publish the report?")).to_contain_text("publish")
    page.get_by_role("dialog").get_by_role("button", name="Approve").click()
    expect(page.get_by_role("button", name="Approve")).to_have_count(0)
    assert workflows.posted == [f"/api/workflows/{WORKFLOW}/actions/sign-off/approve"]
    # The failed action is above the graph, with its reason and the skipped actions.
    workflows.move("failed", "publish", error="no space left <b>on</b> device")
    workflows.move("skipped", "clean-up")
    expect(page.get_by_role("alert")).to_have_text("publish failed: no space left <b>on</b> device. Skipped: clean-up")
    expect(page.get_by_role("button", name="Path to the failure")).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_text(re.compile("^5 actions on it"))).to_be_visible()
    page.get_by_role("button", name="Timeline").click()
    bars = page.get_by_role("region", name="Timeline of actions")
    expect(bars.get_by_role("button", name="publish")).to_be_visible()
    expect(bars.locator(".bar.failed")).to_have_count(1)
    page.get_by_role("button", name="Graph").click()
    page.keyboard.press("c")
    page.get_by_role("dialog").get_by_role("button", name="Cancel workflow").click()
    expect(page.get_by_role("region", name=f"Workflow {WORKFLOW}")).to_contain_text("cancelling")
    workflows.state, workflows.services = "failed", ["tiny"]
    workflows.move("skipped", "clean-up")
    expect(page.get_by_text("Service tiny stays. To end it: cluster service delete tiny")).to_be_visible()
    page.get_by_role("button", name="Retry").click()
    expect(page.get_by_role("button", name="Cancel")).to_be_visible()
    assert [path.rsplit("/", 1)[1] for path in workflows.posted] == ["approve", "cancel", "retry"]


def test_twelve_hundred_actions_are_three_boxes_or_all_of_them_or_a_list(open_address: Open, serve: Serve) -> None:
    workflows, url = serve(sweep(400))
    workflows.move("done", "fetch-data", *(f"prepare-{number:04}" for number in range(400)))
    workflows.move("failed", "run-0123", error="exit code 1")
    page = open_address(url + OPEN)
    expect(page.get_by_text("900 actions", exact=False)).to_have_count(0)
    share = "1\u202f200 similar actions share 3 boxes."
    expect(page.get_by_text(share)).to_be_visible()
    graph = graph_of(page)
    graph.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(graph).to_have_attribute("aria-valuetext", "400 similar, run-…, command: 1 failed, 399 waiting")
    page.keyboard.press("Enter")
    panel = page.get_by_role("complementary", name="Action run-0123")
    panel.get_by_role("button", name="Unfold").click()
    expect(page.get_by_text("800 similar actions share 2 boxes.")).to_be_visible()
    shot(page, "workflow-unfolded")
    page.get_by_label("Group similar actions").uncheck()
    expect(page.get_by_text("similar actions share")).to_have_count(0)
    # The open action is visible in the list, and the page contains only visible rows.
    page.keyboard.press("l")
    table = page.get_by_role("region", name="Actions").get_by_role("table")
    expect(table).to_have_attribute("aria-rowcount", "1203")
    expect(table.locator("[data-open]")).to_contain_text("run-0123")
    assert table.get_by_role("row").count() < 40
    page.get_by_role("group", name="States").get_by_role("button", name="failed").click()
    expect(table).to_have_attribute("aria-rowcount", "2")
    expect(page).to_have_url(re.compile("action=run-0123&look=list&states=failed&fold=0"))
    page.reload()
    expect(table).to_have_attribute("aria-rowcount", "2")


def picture(page: Page) -> str:
    """Return the graph as drawn when its view is at rest."""
    page.evaluate(RESTED)
    settled(page)
    drawn: str = page.locator(".graph canvas").evaluate("canvas => canvas.toDataURL()")
    return drawn


def test_a_graph_is_moved_by_mouse_and_a_click_is_no_drag(open_address: Open, serve: Serve) -> None:
    workflows, url = serve(release())
    workflows.move("running", "fetch-data")
    page = open_address(url + OPEN, viewport={"width": 700, "height": 800})
    graph = graph_of(page)
    before = picture(page)
    box = graph.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 300, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 200, box["y"] + 60, steps=4)
    page.mouse.up()
    until(lambda: picture(page) != before)
    expect(page.get_by_role("complementary")).to_have_count(0)
    page.get_by_role("button", name="All", exact=True).click()
    whole = picture(page)
    graph.focus()
    page.keyboard.press("+")
    until(lambda: picture(page) != whole)
    page.keyboard.press("f")
    until(lambda: picture(page) == whole)


def test_there_is_no_such_workflow_or_none_at_all(open_address: Open, serve: Serve) -> None:
    workflows, url = serve(release())
    page = open_address(f"{url}{TAB}&workflow=ffffffffffff")
    expect(page.get_by_role("alert")).to_have_text(
        "There is no workflow ffffffffffff, or it belongs to another tenant."
    )
    workflows.actions.clear()
    workflows.listed = False
    page.get_by_role("button", name="All workflows").click()
    expect(page.locator("#panel-workflows")).to_contain_text("cluster workflow submit")


def test_a_text_is_validated_with_places_and_submitted_once_it_is_right(open_address: Open, serve: Serve) -> None:
    workflows, url = serve(release())
    page = open_address(url + TAB)
    page.get_by_role("button", name="New workflow").click()
    form = page.get_by_role("dialog", name="New workflow")
    text = form.get_by_label("YAML or JSON")
    text.fill("name: two\nactions:\n  - action_id: train\n    dependencies: [fetch]\n")
    form.get_by_role("button", name="Submit").click()
    expect(form.get_by_label("Errors")).to_contain_text("4:5 train: dependencies no action fetch")
    form.get_by_role("button", name="4:5").click()
    expect(text).to_be_focused()
    selected = "field => field.value.slice(field.selectionStart)"
    until(lambda: text.evaluate(selected) == "dependencies: [fetch]\n")
    assert violations(page) == []
    form.get_by_role("button", name="Fill in an example").click()
    form.get_by_role("button", name="Validate").click()
    expect(form.get_by_role("status")).to_contain_text("2 actions, 1 dependency, 2 layers")
    form.get_by_role("button", name="Submit").click()
    expect(page).to_have_url(re.compile(f"workflow={WORKFLOW}"))
    assert [each for each in workflows.posted if each == "/api/workflows"] == ["/api/workflows"]


def test_a_workflow_of_a_real_cluster_goes_from_its_text_to_its_end(open_page: Open) -> None:
    page = open_page("/cluster.html#tab=workflows")
    page.get_by_role("button", name="New workflow").click()
    form = page.get_by_role("dialog", name="New workflow")
    form.get_by_label("YAML or JSON").fill("name: wrong\nactions: []\n")
    form.get_by_role("button", name="Validate").click()
    expect(form.get_by_label("Errors")).to_contain_text("2:")
    form.get_by_role("button", name="Fill in an example").click()
    form.get_by_role("button", name="Submit").click()
    shown = page.get_by_role("region", name=re.compile("^Workflow [0-9a-f]{12,16}$"))
    expect(shown.get_by_role("group", name="States").get_by_role("button", name="done")).to_contain_text("2")
    expect(page.get_by_role("slider", name="Actions of a job after another")).to_be_visible()
    page.keyboard.press("l")
    page.get_by_role("button", name="second", exact=True).click()
    panel = page.get_by_role("complementary", name="Action second")
    expect(panel).to_contain_text("start_number")
    panel.get_by_role("link", name=re.compile("^w-[0-9a-f]{12,16}-second-1$")).click()
    expect(page.get_by_role("link", name="Workflow", exact=True)).to_be_visible()


def test_a_schedule_says_when_it_runs_and_is_paused(open_address: Open, serve: Serve) -> None:
    workflows, url = serve(release())
    workflows.schedules = [schedule("nightly"), schedule("hourly", cron=None, every_seconds=3600, failed=2)]
    page = open_address(url + TAB)
    table = page.get_by_role("region", name="Schedules").last
    expect(table.get_by_role("row", name="nightly")).to_contain_text("0 3 * * *, Europe/Berlin")
    expect(table.get_by_role("row", name="nightly")).to_contain_text("1 missed")
    expect(table.get_by_role("row", name="hourly")).to_contain_text("2 refused, 1 missed")
    table.get_by_role("button", name="Pause: nightly").click()
    expect(table.get_by_role("button", name="Resume: nightly")).to_be_visible()
    page.get_by_role("button", name="nightly", exact=True).click()
    shown = page.get_by_role("region", name="Schedule nightly")
    expect(shown).to_contain_text(re.compile(r"24 Nov 2036 \d\d:\d\d"))
    shown.get_by_role("button", name="Run now").click()
    expect(page.get_by_text("Submitted a job from schedule nightly")).to_be_visible()
    assert workflows.posted == ["/api/schedules/nightly/pause", "/api/schedules/nightly/run"]


def test_workflows_are_whole_and_accessible(open_address: Open, serve: Serve) -> None:
    workflows, url = serve(release())
    workflows.move("done", "fetch-data", "verify-range", "train-small")
    workflows.move("failed", "train-large", error="exit code 1")
    workflows.move("approval", "sign-off")
    workflows.schedules = [schedule("nightly")]
    for width, options in (("desktop", {}), ("phone", {"viewport": PHONE, "has_touch": True})):
        page = open_address(url + TAB, **options)
        expect(page.get_by_role("button", name="nightly release")).to_be_visible()
        whole(page, f"workflows-{width}")
        for look, rest in (("graph", ""), ("action", "&action=train-large"), ("list", "&look=list")):
            page.goto(url + OPEN + rest)
            expect(page.get_by_role("button", name="Retry")).to_have_count(0)
            expect(page.get_by_role("heading", name="nightly release")).to_be_visible()
            whole(page, f"workflow-{look}-{width}")
        page.goto(url + OPEN + "&look=graph")
        page.keyboard.press("t")
        expect(page.get_by_role("region", name="Graph of nightly release")).to_contain_text("sign-off")


def whole(page: Page, part: str) -> None:
    """Check that the page does not overflow and that axe finds no violation in both themes."""
    for theme in in_both_themes(page):
        settled(page)
        shot(page, f"{part}-{theme}")
        assert violations(page) == [] and overflow(page) == 0, f"{part} in {theme}"
