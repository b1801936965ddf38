"""Tests the HTML with which notebooks display responses of the API."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

import httpx
import pytest

from tests.unit.cluster_fake import Fake, complete, job, problem
from threads_cluster import Cluster, Ended
from threads_cluster.client import display, records
from threads_protocol.answers import fleet, jobs, services, telemetry, workflows

EVIL = "<script>alert(1)</script>\"'&"


#: Method that notebooks call.
METHOD = "_repr_html_"


def notebook_html(value: Any) -> str:
    """Return the HTML that a notebook displays for a value."""
    html: str = getattr(value, METHOD)()
    return html


class Texts(HTMLParser):
    """Parser that collects the tags and the texts of a page, and checks that all tags are closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.texts: list[str] = []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.tags.add(tag)
        assert not any(name.startswith("on") for name, _ in attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def evil(value: Any) -> Any:
    """Replace every text in a response, except for states and times."""
    if isinstance(value, dict):
        kept = ("created", "started", "ended", "since", "next_start")
        return {name: inner if name in kept else evil(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [evil(inner) for inner in value]
    return EVIL if isinstance(value, str) else value


def worker_share() -> dict[str, Any]:
    return {"desk": complete(jobs.Share, device="cpu", units=7, seconds=1.5)}


RESPONSES: list[tuple[Any, dict[str, Any]]] = [
    (jobs.Job, job("running", usage={**job("done")["usage"], "workers": worker_share()})),
    (jobs.Job, job("failed")),
    (
        jobs.Result,
        complete(jobs.Result, result={"mean": 1.5, "nested": {"name": "-"}, "list": ["-"]}, units=3, total=3),
    ),
    (services.Service, complete(services.Service, running=[complete(services.ServiceReplica)], replicas=2, ready=1)),
    (workflows.Course, complete(workflows.Course, actions=[complete(workflows.Action)], total=2, counts={"done": 1})),
]


@pytest.mark.parametrize(("shape", "answer"), RESPONSES, ids=lambda value: getattr(value, "__name__", ""))
def test_texts_of_responses_are_escaped(shape: Any, answer: dict[str, Any]) -> None:
    numbers = {name: answer[name] for name in ("done", "total", "units") if name in answer}
    page = notebook_html(records.displayed(shape, evil(answer) | numbers))
    parsed = Texts(page)
    assert "script" not in parsed.tags
    assert any(EVIL in each for each in parsed.texts)


def test_a_job_shows_its_progress_and_its_workers() -> None:
    shown = job("running", usage={**job("done")["usage"], "workers": worker_share()})
    parsed = Texts(records.Job(shown).to_html())
    assert {"250 of 1,000 units", "running", "desk", "cpu", "7"} <= {
        word for each in parsed.texts for word in (each, *each.removeprefix("● ").split(" · "))
    }
    assert "svg" in parsed.tags


def test_a_failed_job_shows_its_error() -> None:
    assert "units 3..4: no luck" in Texts(records.Job(job("failed")).to_html()).texts


def test_lists_are_tables_with_the_columns_of_their_items() -> None:
    page = records.displayed(jobs.Jobs, {"jobs": [job("done"), job("running")], "cursor": None})
    parsed = Texts(notebook_html(page["jobs"]))
    assert parsed.texts[:6] == list(records.Job.columns)
    assert {"● done", "● running", "25.0 %"} <= set(parsed.texts)


def test_a_long_list_and_a_long_text_are_cut() -> None:
    rows = records.Records(records.Record(text="x" * 10_000) for _ in range(display.MAX_ROWS + 3))
    texts = Texts(rows.to_html()).texts
    assert texts[-1] == "3 more"
    assert max(map(len, texts)) < 2100


def test_colors_of_texts_are_inherited_so_that_dark_themes_work() -> None:
    for shape, answer in RESPONSES:
        page = notebook_html(records.displayed(shape, answer))
        assert "background:#" not in page and "color:black" not in page and "color:#000" not in page


def test_responses_stay_dicts() -> None:
    answer = records.displayed(jobs.Job, job("done"))
    assert answer == job("done")
    assert json.loads(json.dumps(answer)) == job("done")


def test_a_sparkline_has_a_point_for_each_value() -> None:
    assert display.sparkline([1.0]) == ""
    [points] = [part for part in display.sparkline([0, 1, 4, 2]).split('"') if part.count(",") == 4 and " " in part]
    assert points.split()[2].endswith(",1.0")


@pytest.fixture
def fake() -> Fake:
    fake = Fake()
    counts = complete(fleet.WorkerCounts, live=1)
    fake.on("GET", "/api/status", complete(fleet.Status, version="1.2", workers=counts, jobs={"running": 3}, lanes=8))
    fake.on("GET", "/api/workers", {"workers": [complete(fleet.Worker, id=EVIL, state="busy")]})
    bins = {"min": [0.0, 2.0], "mean": [None, 2.0], "max": [0.0, 2.0]}
    fake.on("GET", "/api/history", complete(telemetry.History, series={"lanes.busy": bins}))
    return fake


def test_a_cluster_shows_its_status_its_load_and_its_workers(fake: Fake) -> None:
    with Cluster("http://cluster.test", "", transport=httpx.MockTransport(fake)) as cluster:
        parsed = Texts(notebook_html(cluster))
    assert {"version 1.2 · 8 lanes · 3 running", EVIL, " up to 2 busy lanes in ten minutes"} <= set(parsed.texts)
    assert {"polyline", "table"} <= parsed.tags


def test_a_cluster_that_does_not_respond_shows_the_error() -> None:
    fake = Fake()
    fake.on("GET", "/api/status", problem(503, "no Redis", EVIL))
    with Cluster("http://cluster.test", "", patience=0, transport=httpx.MockTransport(fake)) as cluster:
        assert EVIL in Texts(notebook_html(cluster)).texts


def test_a_finished_program_shows_its_exit_code_and_output() -> None:
    ended = Ended(job_id="j1", exit=3, reason="", stdout=f"{EVIL}\n".encode(), stderr=b"\xff", seconds=2.0, worker=EVIL)
    parsed = Texts(notebook_html(ended))
    assert {"● failed", f"{EVIL}\n", "\ufffd", f"exit code 3 · 2.0 s · {EVIL}"} <= set(parsed.texts)
