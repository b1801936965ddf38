"""Tests the HTTP API of a real cluster: errors, batches, idempotency, events and metrics."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from jobs import metrics
from tests import fetch
from tests.integration.live import Live, running, until

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Start two coordinators and one worker, so that a change at one coordinator must reach the other."""
    with running(tmp_path_factory.mktemp("cluster"), coordinators=2) as live:
        yield live


def problem(answer: httpx.Response, status: int, field: str, *words: str) -> None:
    """Check that the response is problem+json with this status and field, and that its detail contains the words."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    told = answer.json()
    assert told["status"] == status
    assert told["field"] == field, told
    for word in words:
        assert word in told["detail"], told


BAD_COUNTS: list[tuple[Any, str]] = [
    (0, "1.."),
    (-1, "1.."),
    (1.5, "integer"),
    ("abc", "integer"),
    (True, "integer"),
    (None, "is required"),
    (10**400, "1.."),
    ("1e9", "integer"),
    ([], "integer"),
    ({}, "integer"),
    ("", "integer"),
    (2**53 + 1, "1.."),
]


@pytest.mark.parametrize(("value", "words"), BAD_COUNTS)
def test_a_bad_count_is_refused_with_field_and_bound(cluster: Live, value: Any, words: str) -> None:
    body = {"type": "collatz", "parameters": {"start_number": 1, "number_count": value}}
    problem(cluster.post("/api/submit", body), 422, "parameters.number_count", words)


@pytest.mark.parametrize("name", ["NaN", "Infinity", "-Infinity"])
def test_what_is_not_json_is_a_400(cluster: Live, name: str) -> None:
    text = f'{{"type":"collatz","parameters":{{"start_number":1,"number_count":{name}}}}}'
    problem(fetch.post(cluster.url() + "/api/submit", content=text, headers=JSON), 400, "body", name)


def test_a_submission_that_waits_brings_the_result(cluster: Live) -> None:
    body = {"type": "collatz", "parameters": {"start_number": 27, "number_count": 1}}
    found = fetch.post(cluster.url() + "/api/submit", params={"wait_seconds": 20}, json=body, timeout=30)
    assert found.status_code == 202
    answer = found.json()
    assert answer["status"] == "done" and answer["result"] == cluster.result(answer["job_id"])
    assert answer["result"]["delay"]["max"] == {"n": 27, "value": 111}
    again = {"type": "collatz", "parameters": {"start_number": "1", "number_count": 10**13}}
    found = fetch.post(cluster.url() + "/api/submit", params={"wait_seconds": 0.3}, json=again, timeout=30)
    left = found.json()
    assert left["status"] in ("queued", "running") and "result" not in left
    cluster.post(f"/api/jobs/{left['job_id']}/cancel")
    cluster.wait_for(left["job_id"], "cancelled")
    for wrong in ("-1", "31", "x"):
        answered = fetch.post(cluster.url() + "/api/submit", params={"wait_seconds": wrong}, json=body)
        problem(answered, 422, "wait_seconds")


BROKEN = [b"", b"{", b'{"type":', b"[1,2", b"\xff\xfe", b"nonsense", b"[" * 200_000, b'{"type":"collatz"}}']


@pytest.mark.parametrize("text", BROKEN)
def test_broken_json_is_a_400(cluster: Live, text: bytes) -> None:
    problem(fetch.post(cluster.url() + "/api/submit", content=text, headers=JSON), 400, "body")


@pytest.mark.parametrize("text", [b"1", b"null", b'"x"', b"[]", b"true"])
def test_a_body_that_is_no_object_is_refused(cluster: Live, text: bytes) -> None:
    problem(fetch.post(cluster.url() + "/api/submit", content=text, headers=JSON), 422, "body", "object")


ODD: list[tuple[dict[str, Any], str, str]] = [
    ({"type": "collatz", "colour": 1}, "colour", "not a known field"),
    ({"type": "collatz", "parameters": {"start": 1}}, "parameters.start", "not a known field"),
    ({"type": "nosuch"}, "type", "collatz"),
    ({"type": 7}, "type", "string"),
    ({}, "type", "required"),
    ({"type": "collatz", "priority": "interactive"}, "priority", "high, normal, low"),
    ({"type": "collatz", "priority": "urgent"}, "priority", "high, normal, low"),
    ({"type": "collatz", "device": "tpu"}, "device", "gpu, any, cpu"),
    ({"type": "faulty", "device": "gpu"}, "device", "cannot run on"),
    ({"type": "faulty", "device": "cpu", "gpu_preferred": True}, "gpu_preferred", "cannot be combined with device"),
    ({"type": "faulty", "gpu_preferred": "yes"}, "gpu_preferred", "boolean"),
    ({"type": "faulty", "parameters": []}, "parameters", "dictionary"),
    ({"type": "faulty", "idempotency_key": ""}, "idempotency_key", "at least 1"),
    ({"type": "thread", "parameters": {"thread_count": 0}}, "parameters.thread_count", "1.."),
    ({"type": "faulty", "max_running": 0}, "max_running", "greater than or equal to 1"),
    ({"type": "faulty", "max_running": 1.5}, "max_running", "integer"),
    ({"type": "faulty", "timeout_seconds": 0}, "timeout_seconds", "greater than or equal to 0.001"),
    ({"type": "faulty", "timeout_seconds": 1e9}, "timeout_seconds", "less than or equal to"),
]


@pytest.mark.parametrize(("body", "field", "words"), ODD)
def test_odd_submissions_are_refused_by_name(cluster: Live, body: dict[str, Any], field: str, words: str) -> None:
    problem(cluster.post("/api/submit", body), 422, field, words)


def test_a_body_of_100_megabytes_is_refused_and_the_cluster_goes_on(cluster: Live) -> None:
    text = b'{"type":"collatz","parameters":{"number_count":"' + b"1" * 100_000_000 + b'"}}'
    answer = fetch.post(cluster.url() + "/api/submit", content=text, headers=JSON, timeout=60)
    problem(answer, 413, "body", "bytes")
    assert cluster.result(cluster.submit("faulty", {"units": 3})) == {"sum": 3, "count": 3}


def test_a_job_that_is_not_there_is_a_404(cluster: Live) -> None:
    for path in ("/api/jobs/nosuch", "/api/jobs/nosuch/result", "/api/jobs/nosuch/events"):
        problem(fetch.get(cluster.url() + path), 404, "job_id", "GET /api/jobs")
    for verb in ("cancel", "pause", "resume", "retry"):
        problem(cluster.post(f"/api/jobs/nosuch/{verb}"), 404, "job_id")


def test_a_state_that_does_not_allow_it_is_a_409_that_names_the_state(cluster: Live) -> None:
    job = cluster.submit("faulty", {"units": 3})
    cluster.result(job)
    for verb in ("cancel", "pause", "resume", "retry"):
        problem(cluster.post(f"/api/jobs/{job}/{verb}"), 409, "state", "done")
    running_job = cluster.submit("faulty", {"units": 100_000, "seconds_per_unit": 0.01})
    problem(fetch.get(cluster.url() + f"/api/jobs/{running_job}/result"), 409, "state")
    assert fetch.delete(cluster.url() + f"/api/jobs/{running_job}").status_code == 409
    cluster.post(f"/api/jobs/{running_job}/cancel")
    cluster.wait_for(running_job, "cancelled")
    assert cluster.post(f"/api/jobs/{running_job}/cancel").json()["state"] == "cancelled", "a call that is repeated"
    problem(cluster.post(f"/api/jobs/{running_job}/pause"), 409, "state", "cancelled")
    assert fetch.delete(cluster.url() + f"/api/jobs/{running_job}").status_code == 204
    assert fetch.get(cluster.url() + f"/api/jobs/{running_job}").status_code == 404


def test_the_same_key_and_body_is_the_same_job_and_another_body_a_409(cluster: Live) -> None:
    body = {"type": "faulty", "parameters": {"units": 3}, "idempotency_key": "once"}
    first = cluster.post("/api/submit", body)
    again = cluster.post("/api/submit", body, replica=1)
    assert first.json()["job_id"] == again.json()["job_id"]
    header = fetch.post(
        cluster.url() + "/api/submit",
        json={"type": "faulty", "parameters": {"units": 3}},
        headers={"Idempotency-Key": "once"},
    )
    assert header.json()["job_id"] == first.json()["job_id"]
    other = cluster.post("/api/submit", {**body, "parameters": {"units": 4}})
    problem(other, 409, "idempotency_key", first.json()["job_id"])


def test_a_batch_answers_each_job_alone(cluster: Live) -> None:
    good = {"type": "faulty", "parameters": {"units": 3}}
    bad = {"type": "faulty", "parameters": {"units": 0}}
    answers = cluster.post("/api/submit-batch", {"jobs": [good, bad, 7, good]}).json()["answers"]
    assert [("job_id" in answer) for answer in answers] == [True, False, False, True]
    assert answers[1]["error"]["field"] == "parameters.units"
    ids = [answers[0]["job_id"], answers[3]["job_id"], "nosuch"]
    found = cluster.post("/api/results", {"job_ids": ids, "wait_seconds": 10}, replica=1).json()["answers"]
    assert [answer.get("result") for answer in found] == [{"sum": 3, "count": 3}] * 2 + [None]
    problem(cluster.post("/api/submit-batch", {"jobs": [good] * 1001}), 422, "jobs", "1000")
    problem(cluster.post("/api/submit-batch", {"jobs": []}), 422, "jobs", "1 item")
    problem(cluster.post("/api/submit-batch"), 400, "body")


@pytest.mark.parametrize("seconds", [True, "1", 31, -1])
def test_a_wait_for_results_is_a_number_of_seconds(cluster: Live, seconds: Any) -> None:
    problem(cluster.post("/api/results", {"job_ids": ["a"], "wait_seconds": seconds}), 422, "wait_seconds")


def test_a_thousand_small_jobs_finish_and_rq_tells_the_truth_meanwhile(tmp_path: Path) -> None:
    with running(tmp_path, workers=0) as cluster:
        body = {"type": "faulty", "parameters": {"units": 10}}
        answers = cluster.post("/api/submit-batch", {"jobs": [body] * 1000}).json()["answers"]
        ids = [answer["job_id"] for answer in answers]
        queue = "rq:queue:cpu.normal"
        assert cluster.redis().llen(queue) == 1000
        assert cluster.get("/api/status")["queues"] == {"cpu.normal": 1000}
        until(lambda: "no live worker" in (cluster.job(ids[0])["waiting_because"] or ""))
        seen: list[tuple[int, int]] = []
        done = threading.Event()

        def watch() -> None:
            while not done.is_set():
                pipe = cluster.redis().pipeline()
                pipe.llen(queue)
                pipe.zcard("ct:in:queued")
                seen.append(tuple(pipe.execute()))
                time.sleep(0.005)

        watcher = threading.Thread(target=watch)
        watcher.start()
        cluster.start_worker(0)
        try:
            found = until(
                lambda: (
                    (a := cluster.post("/api/results", {"job_ids": ids, "wait_seconds": 20}).json()["answers"])
                    and all(answer["state"] == "done" for answer in a)
                    and a
                ),
                90,
            )
        finally:
            done.set()
            watcher.join()
        assert [answer["result"] for answer in found] == [{"sum": 45, "count": 10}] * 1000
        between = [pair for pair in seen if 0 < pair[1] < 1000]
        assert between, "the watcher saw nothing between start and end"
        assert max(abs(bells - waiting) for bells, waiting in between) <= 2
        until(lambda: cluster.redis().llen(queue) == 0)
        assert list(cluster.redis().scan_iter("rq:job:*")) == [b"rq:job:wakeup"], "all wake-ups are one job of RQ"


def events(url: str, since: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return (id, event, data) of each server-sent event of a stream."""
    headers = {"Last-Event-ID": since} if since else {}
    with fetch.stream("GET", url, headers=headers, timeout=30) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        where = ""
        for line in stream.iter_lines():
            if line.startswith("id: "):
                where = line[4:]
            if line.startswith("data: "):
                yield where, json.loads(line[6:])


def test_events_tell_a_job_to_its_end_on_every_replica_and_resume(cluster: Live) -> None:
    job = cluster.submit("faulty", {"units": 500, "seconds_per_unit": 0.01})
    heard = list(events(f"{cluster.url(1)}/api/jobs/{job}/events"))
    states = [data["state"] for _, data in heard]
    assert states[-1] == "done"
    assert [data["done"] for _, data in heard] == sorted(data["done"] for _, data in heard)
    ids = [tuple(map(int, where.split("-"))) for where, _ in heard]
    assert ids == sorted(ids)
    middle = next(where for where, data in heard if data["type"] == "progress")
    rest = list(events(f"{cluster.url(0)}/api/jobs/{job}/events", since=middle))
    assert rest[-1][1]["state"] == "done"
    assert all(data["done"] > 0 for _, data in rest)


def test_the_fleets_events_carry_every_state(cluster: Live) -> None:
    start = cluster.get("/api/snapshot")["stream"]
    job = cluster.submit("faulty", {"units": 30, "cpu_seconds": 1})
    seen = []
    for _, data in events(f"{cluster.url(1)}/api/events?topics=job:{job}", since=start):
        seen.append(data["type"])
        if data["state"] == "done":
            break
    assert [state for state in seen if state != "progress"] == ["queued", "running", "finishing", "done"]


def test_jobs_are_listed_newest_first_and_paged(cluster: Live) -> None:
    ids = [cluster.submit("faulty", {"units": 2}) for _ in range(5)]
    for job in ids:
        cluster.result(job)
    page = cluster.get("/api/jobs?limit=2&type=faulty&state=done")
    rest = cluster.get(f"/api/jobs?limit=3&type=faulty&state=done&cursor={page['cursor']}")
    assert [job["job_id"] for job in page["jobs"] + rest["jobs"]] == ids[::-1]


def test_a_partial_result_covers_what_is_committed(cluster: Live) -> None:
    job = cluster.submit("faulty", {"units": 100_000, "seconds_per_unit": 0.01})
    until(lambda: cluster.job(job)["done"])
    found = cluster.get(f"/api/jobs/{job}/result?partial=true")
    assert found["partial"] is True
    assert found["result"]["count"] == found["units"] > 0
    cluster.post(f"/api/jobs/{job}/cancel")
    cluster.wait_for(job, "cancelled")


def scraped(cluster: Live) -> list[str]:
    """Return the current metrics of each coordinator."""
    return [fetch.get(f"http://127.0.0.1:{port}/metrics").text for port in cluster.metrics_ports]


def agreed_lines(cluster: Live) -> set[str]:
    """Return the lines of job counters that all coordinators export alike, or none if they differ."""
    ours, theirs = (
        {line for line in text.splitlines() if line.startswith(("cluster_jobs_total", "cluster_job_units_total"))}
        for text in scraped(cluster)
    )
    return ours if ours == theirs else set()


def test_every_metric_is_exported_and_replicas_agree(cluster: Live) -> None:
    cluster.result(cluster.submit("faulty", {"units": 10, "cpu_seconds": 1}))
    whole = f"{metrics.REDIS_UP.name} 1.0"  # Redis has answered each question of this one
    text = until(lambda: whole in (text := scraped(cluster)[0]) and text)
    for metric in metrics.ALL:
        shown = f"# TYPE {metric.name} " in text
        assert shown == (metric.shown_by == "coordinator"), metric.name
    # A job of an earlier test may end between the two scrapes.
    agreed = until(lambda: agreed_lines(cluster))
    assert any('kind="faulty",outcome="done"' in line for line in agreed)


def test_with_a_token_nothing_is_answered_without_it(tmp_path: Path) -> None:
    with running_with_token(tmp_path) as cluster:
        problem_free = fetch.get(cluster.url() + "/health")
        assert problem_free.status_code == 200
        for path in ("/api/status", "/api/jobs", "/api/workers"):
            answer = fetch.get(cluster.url() + path)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
        wrong = fetch.get(cluster.url() + "/api/status", headers={"Authorization": "Bearer nope"})
        assert wrong.status_code == 401
        right = fetch.get(cluster.url() + "/api/status", headers={"Authorization": "Bearer secret-token"})
        assert right.status_code == 200


def running_with_token(folder: Path) -> Any:
    import contextlib

    @contextlib.contextmanager
    def started() -> Iterator[Live]:
        live = Live(folder, workers=0, CLUSTER_TOKEN="secret-token")
        try:
            live.start_redis()
            live.start_coordinator()
            yield live
        finally:
            live.stop()

    return started()


def test_without_redis_it_is_a_503_and_health_still_answers(tmp_path: Path) -> None:
    with running(tmp_path, workers=0) as cluster:
        cluster.kill("redis")
        answer = fetch.get(cluster.url() + "/api/status", timeout=30)
        assert answer.status_code == 503
        assert "redis cannot be reached" in answer.json()["detail"]
        assert fetch.get(cluster.url() + "/ready", timeout=30).status_code == 503
        assert fetch.get(cluster.url() + "/health").status_code == 200
        cluster.start_redis()
        until(lambda: fetch.get(cluster.url() + "/ready").status_code == 200)


def asked(url: str) -> httpx.Response:
    """Return the answer to a question, which is repeated while a worker computes it."""
    answer: httpx.Response = until(lambda: (found := fetch.get(url, timeout=30)).status_code != 202 and found)
    return answer


# -- questions ---------------------------------------------------------------------------------------------------------


def test_a_question_about_a_job_is_computed_once_and_answered(cluster: Live) -> None:
    job = cluster.submit("faulty", {"units": 3})
    answers = [asked(f"{cluster.url(n)}/api/jobs/{job}/first.json?units=101") for n in (0, 1, 0)]
    assert [(answer.status_code, answer.json()) for answer in answers] == [(200, {"sum": 5050, "count": 101})] * 3
    questions = [one for one in cluster.get("/api/jobs?limit=100")["jobs"] if one["priority"] == "interactive"]
    assert len([one for one in questions if one["parameters"]["units"] == 101]) == 1


def test_a_replica_of_a_finished_simulation_is_traced_without_running_it_again(cluster: Live) -> None:
    job = cluster.submit("thread", {"thread_count": 5, "max_depth": 2, "replicas": 8, "cores": 2, "seed": 1})
    cluster.result(job)
    trace = asked(f"{cluster.url()}/api/jobs/{job}/trace.json?replica=3").json()
    assert trace["otherData"]["replica"] == 3
    assert {"M", "X"} <= {event["ph"] for event in trace["traceEvents"]}
    refused = fetch.get(f"{cluster.url()}/api/jobs/{job}/trace.json?replica=8")
    problem(refused, 422, "parameters.trace", "below 8")


def test_a_long_question_is_answered_later(cluster: Live) -> None:
    job = cluster.submit("faulty", {"units": 3})
    answer = fetch.get(f"{cluster.url()}/api/jobs/{job}/first.json?units=4&seconds=2", timeout=30)
    assert (answer.status_code, answer.headers["retry-after"]) == (202, "1")
    later = fetch.get(cluster.url() + answer.headers["location"], params={"wait_seconds": 20}, timeout=30)
    assert later.json()["result"] == {"sum": 6, "count": 4}


def test_a_question_that_nobody_answers_names_those_there_are(cluster: Live) -> None:
    job = cluster.submit("faulty", {"units": 3})
    problem(fetch.get(f"{cluster.url()}/api/jobs/{job}/last.json"), 404, "question", "first")
    problem(fetch.get(f"{cluster.url()}/api/jobs/nothing/first.json"), 404, "job_id", "nothing")
    answer = asked(f"{cluster.url()}/api/jobs/{job}/first.json?fault=result")
    assert answer.status_code == 500 and "cannot derive the result" in answer.json()["detail"]


# -- marks -------------------------------------------------------------------------------------------------------------


def test_a_mark_grows_with_finished_jobs_and_stops_at_holes(cluster: Live) -> None:
    assert cluster.get("/api/kinds/faulty/marks/summed")["up_to"] is None
    big = 2**80
    for start, small in ((1, True), (301, False), (101, True), (big, True)):
        cpu_seconds = 0.001 if small else 1
        cluster.result(cluster.submit("faulty", {"units": 100, "mark_from": str(start), "cpu_seconds": cpu_seconds}))
    found = cluster.get("/api/kinds/faulty/marks/summed")
    assert found["up_to"] == 200
    wide = {"first": str(big), "last": str(big + 99)}
    assert found["ranges"] == [{"first": 1, "last": 200}, {"first": 301, "last": 400}, wide]
    cancelled = cluster.submit("faulty", {"units": 100, "mark_from": 201, "seconds_per_unit": 1})
    cluster.post(f"/api/jobs/{cancelled}/cancel")
    assert cluster.get("/api/kinds/faulty/marks/summed")["up_to"] == 200
    cluster.result(cluster.submit("faulty", {"units": 100, "mark_from": 201}))
    assert cluster.get("/api/kinds/faulty/marks/summed")["up_to"] == 400


def test_a_mark_outlives_its_job(cluster: Live) -> None:
    job = cluster.submit("faulty", {"units": 7, "mark_from": 10**6})
    cluster.result(job)
    fetch.delete(f"{cluster.url()}/api/jobs/{job}").raise_for_status()
    assert {"first": 10**6, "last": 10**6 + 6} in cluster.get("/api/kinds/faulty/marks/summed")["ranges"]


def test_an_unknown_mark_is_a_404_that_names_those_there_are(cluster: Live) -> None:
    problem(fetch.get(f"{cluster.url()}/api/kinds/faulty/marks/nonsense"), 404, "mark", "summed")
    problem(fetch.get(f"{cluster.url()}/api/kinds/nonsense/marks/summed"), 404, "kind", "/api/job-types")


# -- the description --------------------------------------------------------------------------------------------------


def test_the_description_tells_of_problems_streams_and_the_token(cluster: Live) -> None:
    described = cluster.get("/api/openapi.json")
    assert "HTTPValidationError" not in json.dumps(described)
    assert described["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"
    for path in ("/api/events", "/api/jobs/{job_id}/events"):
        assert list(described["paths"][path]["get"]["responses"]["200"]["content"]) == ["text/event-stream"]
    for path, verbs in described["paths"].items():
        for verb in verbs.values():
            assert list(verb["responses"]["4XX"]["content"]) == ["application/problem+json"], path


def test_the_page_of_the_description_loads_nothing_from_elsewhere(cluster: Live) -> None:
    page = fetch.get(cluster.url() + "/api/docs")
    assert "<script>" not in page.text and "http" not in page.text and "style=" not in page.text
    linked = re.findall(r'(?:src|href)="(/[^"]+)"', page.text)
    assert len(linked) == 4
    for path in linked:
        answer = fetch.get(cluster.url() + path)
        assert answer.status_code == 200 and len(answer.content) > 100, path
