"""Tests traces of jobs for Perfetto, and the message of `cluster profile kernels` without a trace."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.unit.cluster_fake import Fake, job
from threads_cluster.cli import main as cli
from threads_cluster.client import api
from threads_cluster.profiling import lane_traces

#: Time at which the fake job was submitted: 2026-01-02T03:04:05Z. It starts half a second later and runs for as long.
CREATED = 1767323045.0
Run = Callable[..., tuple[int, str, str]]


def span(lane: int, start: float, end: float, **more: Any) -> dict[str, Any]:
    return {
        "lane": lane,
        "job_id": "j1",
        "type": "sums",
        "jobs": 1,
        "start": CREATED + start,
        "end": CREATED + end,
        "busy_seconds": (end - start) / 2,
        "units": 500,
        "leases": 2,
        "open": False,
        **more,
    }


def stream(*spans: dict[str, Any], resolution: float = 0.0) -> dict[str, Any]:
    lanes = [
        {"lane": f"{worker}/{number}", "worker": worker, "device": "cpu"}
        for worker in ("beta", "alpha")
        for number in (0, 1)
    ]
    return {
        "from": CREATED - 600,
        "to": CREATED + 3,
        "complete_since": CREATED - 3600,
        "resolution_seconds": resolution,
        "lanes": lanes,
        "spans": list(spans),
    }


def events(trace: dict[str, Any], phase: str, category: str | None = None) -> list[dict[str, Any]]:
    found = [event for event in trace["traceEvents"] if event["ph"] == phase]
    return [event for event in found if category is None or event.get("cat") == category]


def test_each_run_of_leases_is_a_slice_on_its_lane_at_its_time() -> None:
    spans = stream(span(0, 0.5, 0.75), span(3, 0.6, 1.0, leases=1), span(1, 0.5, 0.9, job_id="other"))
    trace = lane_traces.trace(job("done"), spans)
    slices = events(trace, "X", "leases")
    assert [(each["name"], each["ts"], each["dur"]) for each in slices] == [
        ("sums: 2 leases", pytest.approx(500_000, abs=1), pytest.approx(250_000, abs=1)),
        ("sums: 1 lease", pytest.approx(600_000, abs=1), pytest.approx(400_000, abs=1)),
    ]
    assert slices[0]["args"]["units"] == "500" and slices[0]["args"]["units_per_second"] == pytest.approx(4000, 1e-3)
    named = {(each["pid"], each["tid"]): each["args"].get("name") for each in events(trace, "M") if each["tid"]}
    assert [named[each["pid"], each["tid"]] for each in slices] == ["beta/0 (cpu)", "alpha/1 (cpu)"]
    assert "beta/1 (cpu)" not in named.values(), "a lane that did not compute the job has no line"


def test_the_job_has_its_wait_its_run_and_the_lanes_at_work() -> None:
    trace = lane_traces.trace(job("done"), stream(span(0, 0.5, 0.75), span(3, 0.6, 1.0)))
    assert [(each["name"], each["ts"], each["dur"]) for each in events(trace, "X", "job")] == [
        ("waits", 0, 500_000),
        ("runs", 500_000, 500_000),
    ]
    assert [each["args"]["lanes"] for each in events(trace, "C")] == [1, 2, 1, 0]
    moments = [each["ts"] for each in events(trace, "C")]
    assert moments == sorted(moments)


def test_no_time_of_a_trace_is_negative_although_clocks_differ() -> None:
    """A span from another clock can start before the job's submission, or end before its own start."""
    trace = lane_traces.trace(job("running"), stream(span(0, -2.0, 0.1), span(1, 0.5, 0.4)))
    timed = [event for event in trace["traceEvents"] if "ts" in event]
    assert all(event["ts"] >= 0 and event.get("dur", 0) >= 0 for event in timed)
    assert events(trace, "X", "job")[0]["ts"] == 2_000_000
    assert [each["args"]["lanes"] for each in events(trace, "C")] == [1, 0, 0], "no moment has less than no lane"


def test_what_is_open_or_lost_says_so_and_units_stay_exact() -> None:
    spans = stream(
        span(0, 0.5, 3.0, open=True, busy_seconds=0.0), span(1, 0.5, 0.9, lost=True, units=str(2**70), busy_seconds=0.0)
    )
    trace = lane_traces.trace(job("running"), spans)
    [open_one], [lost] = events(trace, "X", "leases"), events(trace, "X", "lost")
    assert open_one["args"]["busy_seconds"] is None and open_one["args"]["units_per_second"] is None
    assert lost["args"]["units"] == str(2**70) and lost["args"]["units_per_second"] is None
    assert events(trace, "X", "job")[1]["dur"] == 2_500_000, "a job that runs goes on until now"


def test_totals_count_lanes_workers_and_leases() -> None:
    spans = stream(span(0, 0.5, 0.75), span(0, 0.75, 1.0), span(3, 0.5, 1.0, open=True))
    found = lane_traces.totals(lane_traces.spans_of("j1", spans), spans["lanes"])
    assert found == {"lanes": 2, "workers": 2, "leases": 6, "busy_seconds": 0.5, "open": 1}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    fake = Fake()
    fake.on("GET", "/api/jobs/j1", job("done"))
    fake.on("GET", "/api/stream", stream(span(0, 0.5, 0.75), span(3, 0.6, 1.0)))
    original = api.Cluster
    monkeypatch.setattr(
        api, "Cluster", lambda url: original(url or "http://cluster.test", "", transport=httpx.MockTransport(fake))
    )
    monkeypatch.setattr("threads_cluster.client.connection.time.sleep", lambda seconds: None)
    return fake


@pytest.fixture
def run(fake: Fake, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return the exit code, stdout and stderr of `cluster profile ...`."""

    def ran(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main(["profile", *map(str, arguments)])
        shown = capsys.readouterr()
        return int(ended.value.code or 0), shown.out, shown.err

    return ran


def test_the_command_writes_a_file_and_says_what_is_in_it(run: Run, fake: Fake, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    code, out, err = run("kernels", "j1", "--output", file)
    assert (code, out) == (0, "")
    assert err.startswith("4 leases on 2 lanes of 2 workers, 0.3 s busy: ") and "ui.perfetto.dev" in err
    assert json.loads(file.read_text())["otherData"]["job_id"] == "j1"
    assert dict(fake.asked[-1].url.params) == {"seconds": "3600", "spans": "20000"}


def test_spans_of_other_tenants_are_beside_the_job_and_not_in_its_trace(run: Run, fake: Fake, tmp_path: Path) -> None:
    others = span(1, 0.5, 0.75, job_id=None, type=None, units=None, untold=True)
    fake.on("GET", "/api/stream", stream(span(0, 0.5, 0.75), others))
    code, _, err = run("kernels", "j1", "--output", tmp_path / "trace.json")
    assert code == 0 and err.startswith("2 leases on 1 lane")


def test_joined_spans_are_said(run: Run, fake: Fake, tmp_path: Path) -> None:
    fake.on("GET", "/api/stream", stream(span(0, 0.5, 0.75), resolution=7.2))
    _, _, err = run("kernels", "j1", "-o", tmp_path / "trace.json")
    assert "spans of a lane within 7.2 s are merged" in err


@pytest.mark.parametrize(
    ("state", "started", "says"),
    [
        ("queued", None, "j1 is queued, and no lane has computed it; watch it with: cluster watch j1"),
        ("done", "2026-01-02T03:04:05.500Z", "no spans of job j1 are stored: spans are kept for an hour"),
    ],
)
def test_without_spans_the_command_says_why_and_leaves_a_file_as_it_is(
    run: Run, fake: Fake, state: str, started: str | None, says: str, tmp_path: Path
) -> None:
    (tmp_path / "trace.json").write_text("before")
    fake.on("GET", "/api/jobs/j1", job(state, started=started))
    fake.on("GET", "/api/stream", stream(span(0, 0.5, 0.75, job_id="other"), span(1, 0.5, 0.75, job_id=None)))
    code, out, err = run("kernels", "j1", "-o", tmp_path / "trace.json")
    assert code == 2 and out == "" and says in err
    assert (tmp_path / "trace.json").read_text() == "before"


@pytest.mark.parametrize(
    "lie", [{"lane": 4}, {"lane": -1}, {"start": float("1e400")}, {"units": -1}, {"units": None}, {"leases": "2"}]
)
def test_an_answer_that_makes_no_sense_is_exit_code_3(run: Run, fake: Fake, lie: dict[str, Any]) -> None:
    text = json.dumps(stream({**span(0, 0.5, 0.75), **lie}))
    fake.on("GET", "/api/stream", httpx.Response(200, text=text, headers={"Content-Type": "application/json"}))
    code, _, err = run("kernels", "j1", "-o", "-")
    assert code == 3 and "Traceback" not in err


def test_a_job_that_there_is_not_is_refused(run: Run) -> None:
    code, _, err = run("kernels", "nobody", "-o", "-")
    assert code == 2 and err.startswith("error: ")
