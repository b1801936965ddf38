"""Tests the API of the pages: history, the stream of work, alerts, packed numbers, and the pages themselves."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from coordinator import schemas
from jobs import queues
from jobs.encoding import packed
from tests import fetch
from tests.integration import held
from tests.integration.live import Live, running, until
from threads_protocol.answers import events, fleet, telemetry
from threads_protocol.answers import jobs as job_answers


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Start two coordinators that serve a page, and two workers with one lane each."""
    site = tmp_path_factory.mktemp("site")
    (site / "assets").mkdir()
    (site / "cluster.html").write_text("<!doctype html><title>Cluster</title>")
    (site / "assets" / "a-1.js").write_text("export {};")
    folder = tmp_path_factory.mktemp("cluster")
    with running(folder, workers=2, lanes=1, coordinators=2, PAGES_DIR=str(site)) as live:
        yield live


def data(cluster: Live, path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return facts and columns of a binary response, which can be 202 at first."""
    answer = until(lambda: (found := fetch.get(cluster.url() + path, timeout=60)).status_code != 202 and found)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/octet-stream"
    return packed.unpack(answer.content)


# -- pages and description ------------------------------------------------------------------------------------------


def test_the_pages_are_served_beside_the_api(cluster: Live) -> None:
    page = fetch.get(cluster.url())
    assert page.status_code == 200 and "Cluster" in page.text
    assert page.headers["content-security-policy"].startswith("default-src 'self'")
    assert "immutable" in fetch.get(cluster.url() + "/assets/a-1.js").headers["cache-control"]
    until(lambda: cluster.get("/api/status")["workers"]["live"] == 2)


def test_answers_are_what_the_description_says(cluster: Live) -> None:
    done = cluster.submit("faulty", {"units": 3})
    cluster.result(done)
    failed = cluster.submit("faulty", {"units": 3, "fault": "result"})
    cluster.wait_for(failed, "failed")
    asked: list[tuple[str, Any]] = [
        ("/api/snapshot", events.Snapshot),
        ("/api/status", fleet.Status),
        ("/api/workers", fleet.WorkerList),
        ("/api/jobs", job_answers.Jobs),
        (f"/api/jobs/{done}", job_answers.Job),
        (f"/api/jobs/{failed}", job_answers.Job),
        (f"/api/jobs/{done}/result", job_answers.Result),
        ("/api/job-types", job_answers.Kinds),
        ("/api/history", telemetry.History),
        ("/api/stream", telemetry.Spans),
        ("/api/kinds/collatz/marks/verified", job_answers.Mark),
        ("/health", schemas.Health),
        ("/ready", schemas.Ready),
    ]
    for path, model in asked:
        TypeAdapter(model).validate_python(cluster.get(path))
    bodies: list[tuple[str, Any, Any]] = [
        ("/api/submit", {"type": "faulty", "parameters": {"units": 1}}, job_answers.Submitted),
        ("/api/submit-batch", {"jobs": [{"type": "faulty"}, {"type": "nosuch"}]}, job_answers.SubmittedBatch),
        ("/api/results", {"job_ids": [done, failed, "nosuch"]}, job_answers.ManyResults),
        (f"/api/jobs/{failed}/retry", None, job_answers.Job),
        ("/api/workers/worker-0/drain", {"on": False}, fleet.Drained),
    ]
    for path, body, answer in bodies:
        TypeAdapter(answer).validate_python(cluster.post(path, body).json())


# -- history --------------------------------------------------------------------------------------------------------


def mean(cluster: Live, name: str, replica: int = 0) -> list[float]:
    """Return a measurement's known means in the last minute."""
    found = cluster.get(f"/api/history?names={name}&seconds=60&points=60", replica)["series"]
    return [value for value in found.get(name, {"mean": []})["mean"] if value is not None]


def passed(cluster: Live, name: str) -> float:
    """What passed within ten minutes, by a figure that is a speed: each is that of the time since the sample before."""
    found = cluster.get(f"/api/history?names={name}&seconds=600&points=600")
    means = found["series"].get(name, {"mean": [None] * len(found["times"])})["mean"]
    known = [(at, value) for at, value in zip(found["times"], means, strict=True) if value is not None]
    return sum(value * (at - before) for (before, _), (at, value) in pairwise(known))


def test_a_job_is_seen_in_the_history_of_every_replica(cluster: Live, tmp_path: Path) -> None:
    job = held.submit(cluster, tmp_path / "go_on", 400)
    until(lambda: max(mean(cluster, "lanes.busy"), default=0) >= 1)
    (tmp_path / "go_on").touch()
    cluster.result(job)
    until(lambda: passed(cluster, "units.faulty") > 0.8 * 400)
    assert passed(cluster, "units.faulty") < 1.3 * 450
    until(lambda: max(mean(cluster, "workers.live"), default=0) == 2)
    host = cluster.get("/api/workers")["workers"][0]["host"]
    for name in (f"host.{host}.cpu", f"host.{host}.memory", f"host.{host}.receive", "redis.memory", "jobs.done"):
        until(partial(mean, cluster, name))

    def alike() -> bool:
        one, other = (cluster.get("/api/history?names=jobs.*,queue.*&seconds=60", replica) for replica in (0, 1))
        for found in (one, other):
            assert {"jobs.done", "queue.any.normal"} <= found["series"].keys()
            assert not {name for name in found["series"] if not name.startswith(("jobs.", "queue."))}
            assert found["step_seconds"] == 1 and "lanes.busy" in found["names"]
        shared = min(one["times"][-1], other["times"][-1]) - 2
        cut = [
            {
                moment: value
                for moment, value in zip(found["times"], found["series"]["jobs.done"]["max"], strict=True)
                if max(one["from"], other["from"]) <= moment <= shared
            }
            for found in (one, other)
        ]
        return cut[0] == cut[1] and len(cut[0]) > 50

    until(alike, every=0.5)  # the last seconds are being written


def test_bins_hold_what_was_asked_for(cluster: Live) -> None:
    found = cluster.get("/api/history?names=jobs.done&seconds=3600&points=100")
    assert found["step_seconds"] == 36 and len(found["times"]) in (100, 101)
    assert all(moment % 36 == 0 for moment in found["times"])
    assert found["series"]["jobs.done"].keys() == {"min", "mean", "max"}
    for low, middle, high in zip(*found["series"]["jobs.done"].values(), strict=True):
        assert (low is None) == (high is None) and (low is None or low <= middle <= high)
    assert fetch.get(cluster.url() + "/api/history?seconds=3601").status_code == 422
    assert fetch.get(cluster.url() + "/api/history?points=1001").status_code == 422
    assert fetch.get(cluster.url() + "/api/history?names=**************X").json()["field"] == "names"
    assert cluster.get("/api/history?names=no.such")["series"] == {}


# -- the stream of work ---------------------------------------------------------------------------------------------


def test_a_job_over_two_workers_is_in_the_stream(cluster: Live, tmp_path: Path) -> None:
    job = held.submit(cluster, tmp_path / "go_on", 600)
    until(lambda: held.at_work(cluster, job) == {"worker-0", "worker-1"})
    (tmp_path / "go_on").touch()
    cluster.result(job)
    for replica in (0, 1):
        found = cluster.get("/api/stream?seconds=600", replica)
        mine = [span for span in found["spans"] if span["job_id"] == job]
        workers = {found["lanes"][span["lane"]]["worker"] for span in mine}
        assert workers == {"worker-0", "worker-1"}
        assert sum(span["units"] for span in mine) == 600
        assert not [span for span in mine if span["open"]]
        for span in mine:
            assert found["from"] - 30 <= span["start"] < span["end"] <= found["to"]
            assert 0 < span["busy_seconds"] <= span["end"] - span["start"] + 0.1
        usage = cluster.job(job)["usage"]
        assert sum(span["leases"] for span in mine) == usage["leases"]
        assert found["complete_since"] <= found["from"] and found["resolution_seconds"] == 0


def test_small_jobs_are_counted_not_listed(cluster: Live) -> None:
    jobs = [{"type": "collatz", "parameters": {"start_number": 1, "number_count": n}} for n in range(1, 201)]
    ids = [one["job_id"] for one in cluster.post("/api/submit-batch", {"jobs": jobs}).json()["answers"]]
    asked = {"job_ids": ids, "wait_seconds": 20}
    until(lambda: all(one["state"] == "done" for one in cluster.post("/api/results", asked).json()["answers"]))
    spans = [span for span in cluster.get("/api/stream?seconds=600")["spans"] if span["type"] == "collatz"]
    assert sum(span["jobs"] for span in spans if not span["open"]) >= 200
    assert len(spans) < 100
    assert sum(span["units"] for span in spans) >= sum(range(1, 201))


# -- rows and alerts ------------------------------------------------------------------------------------------------


#: (id, event, data) of what comes in a stream.
Heard = list[tuple[str, str, Any]]


def listen(cluster: Live, topics: str, enough: Callable[[Heard], Any], replica: int = 0, **headers: str) -> Heard:
    """Return received events until they suffice."""
    found: Heard = []
    url = f"{cluster.url(replica)}/api/events?topics={topics}"
    deadline = time.monotonic() + 60
    with fetch.stream("GET", url, headers=headers, timeout=30) as answer:
        fields = {"id": "", "event": "", "data": ""}
        for line in answer.iter_lines():
            name, _, value = line.partition(": ")
            if line and name in fields:
                fields[name] = value
            elif not line and fields["event"]:
                found.append((fields["id"], fields["event"], json.loads(fields["data"])))
                fields = {"id": "", "event": "", "data": ""}
                if enough(found):
                    return found
            assert time.monotonic() < deadline, found
    raise AssertionError(f"the stream has ended: {found}")


def test_rows_come_whole_then_as_they_change_on_any_replica(cluster: Live) -> None:
    def of_a_worker(found: Heard) -> list[Any]:
        return [row["seen_seconds_ago"] for _, kind, row in found if kind == "fleet" and row["id"] == "worker-0"]

    for replica in (0, 1):
        began = time.monotonic()
        found = listen(cluster, "fleet,queues", lambda found: len(of_a_worker(found)) >= 4, replica)
        seconds = time.monotonic() - began
        first = [(kind, row.get("id") or row["queue"]) for _, kind, row in found]
        assert first[:2] == [("fleet", "worker-0"), ("fleet", "worker-1")]
        assert sum(kind == "queue" for kind, _ in first[: 2 + len(queues.ALL)]) == len(queues.ALL)
        assert len(of_a_worker(found)) <= 4 * (seconds + 1)
        for place, kind, row in found:
            assert place == ""
            TypeAdapter(fleet.Worker if kind == "fleet" else fleet.Queue).validate_python(row)


def test_events_with_a_place_resume_among_rows(cluster: Live) -> None:
    before = cluster.get("/api/snapshot")["stream"]
    job = cluster.submit("faulty", {"units": 1})
    cluster.result(job)

    def states(found: Heard) -> list[str]:
        return [row["state"] for place, _, row in found if place and row.get("job") == job]

    def enough(found: Heard) -> bool:
        return states(found)[-1:] == ["done"] and not all(place for place, _, _ in found)

    found = listen(cluster, "jobs,fleet", enough, replica=1, **{"Last-Event-ID": before})
    assert states(found)[0] == "queued"
    assert {kind for place, kind, _ in found if not place} == {"fleet"}


def firing(cluster: Live, name: str) -> Any:
    alerts = {alert["id"]: alert for alert in cluster.get("/api/snapshot")["alerts"]}
    return name in alerts and alerts[name]["state"] == "firing" and alerts[name]


def resolved(cluster: Live, name: str) -> Any:
    alerts = {alert["id"]: alert for alert in cluster.get("/api/snapshot")["alerts"]}
    return name in alerts and alerts[name]["state"] == "resolved" and alerts[name]


def test_a_failed_job_is_an_alert(cluster: Live) -> None:
    job = cluster.submit("faulty", {"units": 3, "fault": "result"})
    cluster.wait_for(job, "failed")
    alert = until(lambda: firing(cluster, "jobs-failed/faulty"), 60)
    assert alert["value"] >= 1 > alert["threshold"] and alert["unit"] == "jobs" and alert["until"] is None
    TypeAdapter(telemetry.Alert).validate_python(alert)
    for row in cluster.get("/api/jobs?state=failed")["jobs"]:
        fetch.delete(f"{cluster.url()}/api/jobs/{row['job_id']}")
    over = until(lambda: resolved(cluster, "jobs-failed/faulty"), 120)
    assert over["until"] > over["since"] == alert["since"]


def test_alerts_and_history_outlive_their_leader(tmp_path: Path) -> None:
    """There is no worker, then one that dies. The coordinator that recorded this dies, too."""
    with running(tmp_path, workers=0, lanes=1) as live:
        job = live.submit("faulty", {"units": 20})  # so that a late tick of the leader still counts units/s
        waiting = until(lambda: firing(live, "no-worker/cpu.normal"), 120)
        assert waiting["value"] == 1 and waiting["severity"] == "critical"
        live.start_worker(0)
        live.result(job, 120)
        until(lambda: resolved(live, "no-worker/cpu.normal"), 120)
        live.kill("worker-0")
        lost = until(lambda: firing(live, "worker-lost/worker-0"), 120)
        assert "worker-0" in lost["text"]
        until(lambda: passed(live, "units.faulty") > 0.5)
        before = live.get("/api/history?names=jobs.done&seconds=600&points=600")
        live.kill("coordinator-0")
        time.sleep(1)
        live.start_coordinator(0)
        assert until(lambda: firing(live, "worker-lost/worker-0"))["since"] == lost["since"]
        after = live.get("/api/history?names=jobs.done&seconds=600&points=600")
        kept = dict(zip(before["times"], before["series"]["jobs.done"]["max"], strict=True))
        shown = dict(zip(after["times"], after["series"]["jobs.done"]["max"], strict=True))
        whole = [moment for moment in kept if moment in shown and kept[moment] is not None]
        assert len(whole) > 5 and [shown[moment] for moment in whole] == [kept[moment] for moment in whole]
        last = after["to"]

        def goes_on() -> bool:
            now = live.get("/api/history?names=jobs.done&seconds=60")
            return now["to"] > last + 8 and any(value is not None for value in now["series"]["jobs.done"]["max"][-4:-1])

        until(goes_on, 60)
        live.start_worker(0)
        until(lambda: resolved(live, "worker-lost/worker-0"), 120)


# -- packed numbers -------------------------------------------------------------------------------------------------


def test_columns_and_density_hold_what_the_result_says(cluster: Live) -> None:
    start = 2**70 + 12345
    job = cluster.submit(
        "collatz",
        {"mode": "statistics", "start_number": str(start), "number_count": 5000, "columns": 37, "density": True},
    )
    told = cluster.result(job)["columns"]
    facts, columns = data(cluster, f"/api/jobs/{job}/columns.bin")
    assert facts == {"start": str(start), "columns": len(told["start"])}
    assert [start + int(offset) for offset in columns["offset"]] == [int(n) for n in told["start"]]
    assert [start + int(offset) for offset in columns["argmax"]] == [int(n) for n in told["argmax"]]
    for name in ("count", "min", "mean", "max"):
        assert list(columns[name]) == told[name], name
    facts, columns = data(cluster, f"/api/jobs/{job}/density.bin")
    first = columns["first"]
    pairs = [[int(delay), int(count)] for delay, count in zip(columns["delay"], columns["count"], strict=True)]
    assert [pairs[low:high] for low, high in pairwise(first)] == told["density"]
    body = fetch.get(cluster.url() + f"/api/jobs/{job}/columns.bin")
    assert body.content[:4] == b"TCB1" and "max-age" in body.headers["cache-control"]


def test_what_has_no_such_numbers_says_so(cluster: Live) -> None:
    plain = cluster.submit("collatz", {"start_number": 1, "number_count": 10})
    cluster.result(plain)
    other = cluster.submit("faulty", {"units": 100, "seconds_per_unit": 0.05})
    for path, status, word in (
        (f"/api/jobs/{plain}/columns.bin", 404, "columns"),
        (f"/api/jobs/{plain}/nosuch.bin", 404, "density"),
        (f"/api/jobs/{other}/columns.bin", 404, "none"),
        ("/api/jobs/nosuch/columns.bin", 404, "no job"),
        (f"/api/jobs/{plain}/columns.bin?px=3", 422, "px"),
    ):
        answer = fetch.get(cluster.url() + path)
        assert answer.status_code == status and word in answer.json()["detail"], answer.text
    slow = cluster.submit("collatz", {"start_number": 1, "number_count": 10**11, "columns": 10})
    assert fetch.get(cluster.url() + f"/api/jobs/{slow}/columns.bin").status_code == 409
    for job in (other, slow):
        cluster.post(f"/api/jobs/{job}/cancel")


def test_windows_of_a_trace_are_those_of_the_trace(cluster: Live) -> None:
    job = cluster.submit(
        "thread", {"seed": 7, "replicas": 4, "cores": 3, "scheduler": "work_stealing", "thread_count": 40}
    )
    cluster.result(job)
    trace = until(
        lambda: (
            (found := fetch.get(cluster.url() + f"/api/jobs/{job}/trace.json?replica=1")).status_code == 200 and found
        )
    ).json()
    slices = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    facts, columns = data(cluster, f"/api/jobs/{job}/trace.bin?replica=1")
    assert facts["level"] == "slices" and facts["slices"] == len(slices) == len(columns["start"])
    assert facts["until_us"] == trace["otherData"]["until_us"]
    key = sorted(zip(columns["core"], columns["start"], columns["duration"], strict=True))
    told = sorted((event["tid"], event["ts"], event["dur"]) for event in slices)
    assert [row[:2] for row in key] == [row[:2] for row in told]
    assert [row[2] for row in key] == pytest.approx([row[2] for row in told])
    names = dict(zip(columns["path_of"], bytes(columns["paths"]).decode().split("\n"), strict=True))
    runs = {(event["tid"], event["ts"]): event["args"] for event in slices if event["cat"].startswith("d")}
    for at, kind in enumerate(columns["kind"]):
        if kind == 0:
            args = runs[(columns["core"][at], columns["start"][at])]
            assert names[columns["thread"][at]] == args["path"] and columns["depth"][at] == args["depth"]
            assert names.get(columns["parent"][at]) == args["parent"]
    won = [event for event in slices if event["cat"] == "steal" and event["args"]["ok"]]
    assert sorted(columns["steal_from"]) == sorted(event["args"]["victim"] for event in won)

    middle = facts["until_us"] / 2
    part, inner = data(cluster, f"/api/jobs/{job}/trace.bin?replica=1&t0={middle}&t1={middle + 5}")
    assert part["slices"] == sum(event["ts"] <= middle + 5 and event["ts"] + event["dur"] >= middle for event in slices)
    assert len(inner["start"]) == part["slices"] < len(slices)


def test_a_dense_window_comes_as_shares_of_time(cluster: Live) -> None:
    job = cluster.submit(
        "thread", {"seed": 7, "replicas": 1, "cores": 3, "scheduler": "work_stealing", "thread_count": 400}
    )
    cluster.result(job)
    facts, bins = data(cluster, f"/api/jobs/{job}/trace.bin?px=20")
    assert facts["level"] == "bins" and {len(column) for column in bins.values()} == {3 * 20}
    _, columns = data(cluster, f"/api/jobs/{job}/trace.bin?px=16384")
    width = facts["until_us"] / 20
    for core in range(3):
        busy = [0.0] * 20
        for at, duration in enumerate(columns["duration"]):
            if columns["core"][at] == core and columns["kind"][at] in (0, 2):
                start, end = columns["start"][at], columns["start"][at] + duration
                for place in range(int(start / width), min(20, int(end / width) + 1)):
                    busy[place] += max(0.0, min(end, (place + 1) * width) - max(start, place * width))
        told = list(bins["busy"][core * 20 : core * 20 + 20])
        assert told == pytest.approx([255 * share / width for share in busy], abs=0.6)
    for query, word in (
        ("t0=5&t1=5", "t1"),
        ("px=0", "px"),
        ("t0=nan", "t0"),
        ("t0=x", "t0"),
        ("replica=9", "replica"),
    ):
        answer = fetch.get(cluster.url() + f"/api/jobs/{job}/trace.bin?{query}", timeout=60)
        assert answer.status_code == 422 and word in answer.json()["detail"], answer.text


def test_every_line_that_coordinators_and_workers_log_has_the_common_fields(cluster: Live) -> None:
    job = cluster.submit("faulty", {"units": 1})
    cluster.result(job)
    assert cluster.get(f"/api/jobs/{job}")["state"] == "done"

    def logged() -> list[Any]:
        lines = [line for path in cluster.folder.glob("*.log") for line in path.read_text().splitlines(keepends=True)]
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n")]

    until(lambda: [line for line in logged() if line["message"] == "request" and line.get("task_id") == job])
    for line in logged():
        assert {"timestamp", "level", "component", "message", "host"} <= line.keys(), line
    assert {line["component"] for line in logged()} == {"coordinator", "cpu-worker"}
    requests = [line for line in logged() if line["message"] == "request"]
    assert all(isinstance(line["duration_seconds"], float) and line["status"] >= 200 for line in requests)
