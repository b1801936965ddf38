"""Tests the Python client with a fake in-memory cluster."""

from __future__ import annotations

import base64
import queue
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from tests.unit.cluster_fake import KIND, Fake, complete, job, problem
from threads_cluster import errors
from threads_cluster.client import api, connection, sse
from threads_cluster.client.api import Cluster
from threads_protocol.answers import fleet, jobs

STATUS = complete(fleet.Status, version="1")
ACCEPTED = {"job_id": "j1", "status": "queued", "estimated_wait_seconds": 0.0, "notes": []}


class Clock:
    """A clock that advances only during sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(connection, "time", clock)
    monkeypatch.setattr(connection, "sleep", clock.sleep)
    return clock


@pytest.fixture
def fake() -> Fake:
    return Fake()


@pytest.fixture
def cluster(fake: Fake, clock: Clock) -> Iterator[Cluster]:
    with Cluster("http://cluster.test", "", transport=httpx.MockTransport(fake)) as cluster:
        yield cluster


def known(fake: Fake, cluster: Cluster) -> None:
    """Return a cluster that has answered once."""
    fake.on("GET", "/api/status", STATUS)
    cluster.status()
    fake.asked.clear()


# -- submitting -----------------------------------------------------------------------------------------------------


def test_submit_and_wait_cost_two_requests(fake: Fake, cluster: Cluster) -> None:
    fake.on("POST", "/api/submit", httpx.Response(202, json=ACCEPTED))
    fake.on("GET", "/api/jobs/j1", job("done"))
    assert cluster.wait(cluster.submit("sums")["job_id"])["state"] == "done"
    assert [one.method for one in fake.asked] == ["POST", "GET"]
    assert fake.asked[1].url.params["wait_seconds"] == "30"


def test_a_short_job_runs_in_one_request(fake: Fake, cluster: Cluster) -> None:
    fake.on("POST", "/api/submit", httpx.Response(202, json=ACCEPTED | {"status": "done", "result": {"sum": 3}}))
    assert cluster.run("sums", {"n": 2**60}, priority="high") == {"sum": 3}
    [asked] = fake.asked
    assert asked.url.params["wait_seconds"] == "30"
    [body] = fake.bodies("/api/submit")
    assert body["parameters"] == {"n": str(2**60)} and body["priority"] == "high" and body["idempotency_key"]


def test_a_longer_job_is_waited_for(fake: Fake, cluster: Cluster) -> None:
    fake.on("POST", "/api/submit", httpx.Response(202, json=ACCEPTED | {"status": "running"}))
    fake.on("GET", "/api/jobs/j1", job("running"), job("done"))
    fake.on("GET", "/api/jobs/j1/result", complete(jobs.Result, result={"sum": 3}))
    assert cluster.run("sums") == {"sum": 3}


def test_a_job_that_failed_has_no_result(fake: Fake, cluster: Cluster) -> None:
    fake.on("POST", "/api/submit", httpx.Response(202, json=ACCEPTED | {"status": "failed"}))
    fake.on("GET", "/api/jobs/j1", job("failed") | {"error": "it burns"})
    with pytest.raises(errors.JobEnded, match="job j1 failed: it burns"):
        cluster.run("sums")


def test_big_integers_travel_as_decimal_strings_at_any_depth(fake: Fake, cluster: Cluster) -> None:
    fake.on("POST", "/api/submit", httpx.Response(202, json=ACCEPTED))
    huge = 10**5000
    cluster.submit("sums", {"a": 2**53, "b": [2**53 - 1, -(2**70)], "c": {"d": (huge, True, 0.5, None)}})
    [body] = fake.bodies("/api/submit")
    assert body["parameters"] == {
        "a": "9007199254740992",
        "b": [9007199254740991, "-1180591620717411303424"],
        "c": {"d": [str(huge), True, 0.5, None]},
    }


def test_only_what_was_chosen_is_sent(fake: Fake, cluster: Cluster) -> None:
    fake.on("POST", "/api/submit", httpx.Response(202, json=ACCEPTED))
    cluster.submit("sums", priority="high", gpu_preferred=True, idempotency_key="mine")
    assert fake.bodies("/api/submit") == [
        {"type": "sums", "parameters": {}, "idempotency_key": "mine", "priority": "high", "gpu_preferred": True}
    ]


def test_a_submission_sent_again_carries_the_same_key(fake: Fake, cluster: Cluster) -> None:
    known(fake, cluster)
    fake.on("POST", "/api/submit", httpx.ReadError("cut"), httpx.Response(202, json=ACCEPTED))
    assert cluster.submit("sums")["job_id"] == "j1"
    first, second = fake.bodies("/api/submit")
    assert first == second
    assert len(first["idempotency_key"]) == 32


def test_every_job_of_a_batch_has_a_key_of_its_own(fake: Fake, cluster: Cluster) -> None:
    first, last = (ACCEPTED | {"job_id": job_id} for job_id in ("a", "c"))
    fake.on("POST", "/api/submit-batch", {"answers": [first, complete(jobs.Refused), last]})
    answers = cluster.submit_batch([{"type": "sums"}, {"type": "nope"}, {"type": "sums", "idempotency_key": "mine"}])
    keys = [one["idempotency_key"] for one in fake.bodies("/api/submit-batch")[0]["jobs"]]
    assert [one.get("job_id") for one in answers] == ["a", None, "c"]
    assert len(set(keys)) == 3
    assert keys[2] == "mine"


# -- when things break ----------------------------------------------------------------------------------------------


def test_a_cluster_that_never_answered_is_reported_at_once(fake: Fake, cluster: Cluster, clock: Clock) -> None:
    fake.on("GET", "/api/status", httpx.ConnectError("[Errno 111] Connection refused"))
    with pytest.raises(
        errors.Unreachable, match=r"no cluster answers at http://cluster.test \(connection refused\)"
    ) as seen:
        cluster.status()
    assert "./deploy-cluster.sh local" in seen.value.next
    assert seen.value.exit_code == 3
    assert (len(fake.asked), clock.slept) == (1, [])


def test_waiting_survives_a_restart_of_the_coordinator(fake: Fake, cluster: Cluster, clock: Clock) -> None:
    page = httpx.Response(502, text="<html>Bad Gateway</html>")
    away = problem(503, "A part of the cluster cannot be reached", "redis")
    cut = [httpx.RemoteProtocolError("gone"), httpx.ConnectError("refused")]
    broken: list[Any] = [*cut, page, away, httpx.ReadTimeout("slow")]
    fake.on("GET", "/api/jobs/j1", job("running"), *broken, job("running"), job("done"))
    assert [one["state"] for one in cluster.follow("j1")] == ["running", "running", "done"]
    assert len(clock.slept) == len(broken)
    assert clock.slept[-1] > clock.slept[0]


def test_a_cluster_whose_redis_is_away_is_waited_for_from_the_first_answer_on(
    fake: Fake, cluster: Cluster, clock: Clock
) -> None:
    heard: list[str] = []
    cluster.notify(lambda error: heard.append(str(error)))
    away = problem(503, "A part of the cluster cannot be reached", "redis cannot be reached")
    fake.on("GET", "/api/jobs/j1", *[away] * 9, job("done"))
    assert cluster.wait("j1")["state"] == "done"
    assert len(clock.slept) == 9 and heard == ["redis cannot be reached"]


def test_a_cluster_that_breaks_off_is_not_said_to_be_gone(fake: Fake, cluster: Cluster, clock: Clock) -> None:
    heard: list[str] = []
    cluster.notify(lambda error: heard.append(str(error)))
    ended = httpx.RemoteProtocolError("the stream ended before the job finished")
    fake.on("GET", "/api/jobs/j1", job("running"), *[ended] * 9, job("done"))
    assert [one["state"] for one in cluster.follow("j1")][-1] == "done"
    reason = "it is restarting, or its Redis does not answer"
    assert heard == [f"the cluster at http://cluster.test closed the connection early: {reason}"]


def test_a_proxy_before_no_cluster_is_reported_at_once(fake: Fake, cluster: Cluster, clock: Clock) -> None:
    fake.on("GET", "/api/jobs/j1", httpx.Response(503, json={"detail": "no backend"}))
    with pytest.raises(errors.ApiError):
        cluster.wait("j1")
    assert (len(fake.asked), clock.slept) == (1, [])


def test_waiting_gives_up_when_patience_is_over(fake: Fake, cluster: Cluster, clock: Clock) -> None:
    fake.on("GET", "/api/jobs/j1", job("running"), httpx.ConnectError("refused"))
    with pytest.raises(errors.Unreachable):
        cluster.wait("j1")
    assert 290 < clock.now <= 300
    assert max(clock.slept) <= connection.LONGEST_PAUSE


def test_who_waits_hears_once_an_outage_that_calls_are_tried_again(fake: Fake, cluster: Cluster, clock: Clock) -> None:
    heard: list[str] = []
    cluster.notify(lambda error: heard.append(str(error)))
    blip, outage = [httpx.ConnectError("refused")] * 2, [httpx.ConnectError("refused")] * 9
    fake.on("GET", "/api/jobs/j1", job("running"), *blip, job("running"), *outage, job("done"))
    states = cluster.follow("j1")
    assert [next(states)["state"], next(states)["state"], heard] == ["running", "running", []]
    assert [one["state"] for one in states] == ["done"]
    assert len(heard) == 1 and "no cluster answers at http://cluster.test" in heard[0]


def test_a_call_without_an_answer_says_how_long_it_goes_on(
    fake: Fake, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "NOTICE_SECONDS", 0.01)
    known(fake, cluster)
    heard: queue.Queue[float] = queue.Queue()

    def late(request: httpx.Request) -> dict[str, Any]:
        monkeypatch.setattr(connection, "NOTICE_SECONDS", 60)  # the second request is answered in time
        return job("done", seconds=heard.get(timeout=30))

    cluster.notify(lambda error: None, heard.put)
    fake.on("GET", "/api/jobs/j1", late, job("done"))
    assert cluster.job("j1")["seconds"] == pytest.approx(20, abs=0.1), "a timeout, and the patience after it"
    assert cluster.job("j1")["state"] == "done" and heard.empty()


def test_waiting_with_a_timeout_ends_in_timed_out(
    fake: Fake, cluster: Cluster, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(request: httpx.Request) -> dict[str, Any]:
        clock.now += float(request.url.params.get("wait_seconds", 0))
        return job("running")

    monkeypatch.setattr(api, "time", clock)
    monkeypatch.setattr(api, "sleep", clock.sleep)
    fake.on("GET", "/api/jobs/j1", slow)
    with pytest.raises(errors.TimedOut, match="is running after 40 seconds") as caught:
        cluster.wait("j1", timeout=40)
    assert isinstance(caught.value, TimeoutError)
    assert [one.url.params.get("wait_seconds") for one in fake.asked] == ["30", "10", None]


def test_a_proxy_is_told_that_it_may_send_a_post_again(fake: Fake, cluster: Cluster) -> None:
    fake.on("POST", "/api/jobs/a/cancel", job("cancelled"))
    fake.on("GET", "/api/status", STATUS)
    cluster.cancel("a")
    cluster.status()
    post, get = fake.asked
    assert post.headers["Idempotency-Key"] and "Idempotency-Key" not in get.headers


def test_a_busy_gateway_is_asked_again_when_it_says(fake: Fake, cluster: Cluster, clock: Clock) -> None:
    fake.on("GET", "/api/status", httpx.Response(429, headers={"Retry-After": "3"}), STATUS)
    assert cluster.status() == STATUS
    assert clock.slept == [3.0]


def test_problem_details_become_an_error(fake: Fake, cluster: Cluster, clock: Clock) -> None:
    fake.on("POST", "/api/submit", problem(422, "The request is not valid", "too big", field="parameters.start"))
    with pytest.raises(errors.ApiError, match="too big") as seen:
        cluster.submit("sums", {"start": 1})
    error = seen.value
    assert (error.status, error.title, error.detail) == (422, "The request is not valid", "too big")
    assert (error.field, error.exit_code, clock.slept) == ("parameters.start", 2, [])


def test_a_fault_of_the_server_is_no_refusal(fake: Fake, cluster: Cluster) -> None:
    fake.on("GET", "/api/status", httpx.Response(500, text="oops"))
    with pytest.raises(errors.ApiError, match="500 Internal Server Error") as seen:
        cluster.status()
    assert seen.value.exit_code == 3


def test_something_else_at_the_address_is_said(fake: Fake, cluster: Cluster) -> None:
    fake.on("GET", "/api/status", httpx.Response(200, text="<html>hello</html>"))
    with pytest.raises(errors.Unreachable, match="not a cluster"):
        cluster.status()


def test_a_missing_token_says_which_variable(fake: Fake, cluster: Cluster) -> None:
    fake.on("GET", "/api/status", problem(401, "A token is needed"))
    with pytest.raises(errors.ApiError) as seen:
        cluster.status()
    assert "CLUSTER_TOKEN" in seen.value.next


# -- the rest of the API --------------------------------------------------------------------------------------------


def test_the_token_is_sent(fake: Fake) -> None:
    fake.on("GET", "/api/status", STATUS)
    with Cluster("cluster.test:3000/", "secret", transport=httpx.MockTransport(fake)) as cluster:
        cluster.status()
    assert fake.asked[0].headers["Authorization"] == "Bearer secret"
    assert str(fake.asked[0].url) == "http://cluster.test:3000/api/status"


def _header_of_a_user(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def test_a_user_and_password_of_the_address_are_sent(fake: Fake) -> None:
    fake.on("GET", "/api/status", STATUS)
    with Cluster("http://ann:se%40cret@cluster.test", "", transport=httpx.MockTransport(fake)) as cluster:
        cluster.status()
    assert fake.asked[0].headers["Authorization"] == _header_of_a_user("ann", "se@cret")


def test_a_user_in_the_address_is_refused_if_it_would_replace_a_token() -> None:
    with pytest.raises(
        errors.Misconfigured, match="user name or password, which would replace the token arg"
    ) as refused:
        Cluster("http://ann:hush@cluster.test", "secret")
    assert "hush" not in str(refused.value) and "remove the user name" in refused.value.next


def test_a_cookie_of_a_proxy_comes_back_to_it(clock: Clock) -> None:
    sent: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request.headers.get("Cookie", ""))
        return httpx.Response(200, json=STATUS, headers={"Set-Cookie": "place=2; Path=/"})

    with Cluster("http://cluster.test", "", transport=httpx.MockTransport(answer)) as cluster:
        cluster.status()
        cluster.status()
    assert sent == ["", "place=2"]


def test_what_httpx_would_send_is_sent(clock: Clock) -> None:
    """The request is the same whether httpx or the connection builds it."""
    sent: list[Any] = []

    def answer(request: httpx.Request) -> httpx.Response:
        headers = {name: value for name, value in request.headers.multi_items() if name != "idempotency-key"}
        sent.append((request.method, request.url, headers, request.read(), request.extensions["timeout"]))
        return httpx.Response(200, json={})

    calls: list[tuple[str, str, dict[str, Any]]] = [
        ("GET", "/api/jobs/a%2Fb", {}),
        ("GET", "/api/jobs", {"limit": 5, "state": "done", "names": ["a", "b c"], "text": "\u00e9&=+ "}),
        ("POST", "/api/submit", {"body": {"type": "collatz"}, "wait_seconds": "30", "extra_seconds": 30}),
        ("POST", "/api/files", {"octets": b"x" * 1000, "headers": {"X-Place": "3", "accept": "text/plain"}}),
        ("DELETE", "/api/jobs/one", {}),
    ]
    for url in ("http://cluster.test/below", "https://[::1]:3000"):
        with Cluster(url, "secret", transport=httpx.MockTransport(answer)) as cluster:
            for by_httpx in (False, True):
                cluster.connection.has_user = by_httpx
                for method, path, more in calls:
                    cluster.connection.ask(method, path, patience=0, **more)
    each = len(calls)
    assert len(sent) == 4 * each
    for first in (0, 2 * each):
        assert sent[first : first + each] == sent[first + each : first + 2 * each]


def test_a_client_that_was_closed_says_so(fake: Fake) -> None:
    fake.on("GET", "/api/status", STATUS)
    with Cluster("http://cluster.test", "", transport=httpx.MockTransport(fake)) as cluster:
        cluster.status()
    with pytest.raises(RuntimeError, match="closed"):
        cluster.status()


def test_names_cannot_leave_their_place_in_the_path(fake: Fake, cluster: Cluster) -> None:
    fake.on("GET", "/api/jobs/..%2Fstatus", job("done"))
    assert cluster.job("../status")["state"] == "done"


def test_jobs_are_read_page_by_page(fake: Fake, cluster: Cluster) -> None:
    pages = [{"jobs": [job("done", job_id=f"{page}-{n}") for n in range(100)], "cursor": str(page)} for page in (2, 1)]
    fake.on("GET", "/api/jobs", *pages, {"jobs": [job("done", job_id="last")], "cursor": None})
    found = list(cluster.jobs(state="done", kind="sums", limit=250))
    assert len(found) == 201
    assert dict(fake.asked[1].url.params) == {"state": "done", "type": "sums", "cursor": "2", "limit": "100"}
    assert fake.asked[2].url.params["limit"] == "50"


def test_conditions_on_jobs_become_query_parameters(fake: Fake, cluster: Cluster) -> None:
    fake.on("GET", "/api/jobs", {"jobs": [job("done")], "cursor": None, "matching": 1, "total": 9})
    pages: list[dict[str, Any]] = []
    since = datetime(2026, 1, 31, tzinfo=UTC)
    conditions: dict[str, Any] = {"state": ["done", "failed"], "search": "a b", "tags": ["x", "y"], "tenant": "t"}
    assert len(list(cluster.jobs(**conditions, since=since, on_page=pages.append))) == 1
    query = fake.asked[0].url.params
    assert (query.get_list("state"), query.get_list("tag")) == (["done", "failed"], ["x", "y"])
    assert (query["search"], query["tenant"], query["since"]) == ("a b", "t", "2026-01-31T00:00:00+00:00")
    assert (pages[0]["matching"], pages[0]["total"]) == (1, 9)


def test_the_simple_calls_reach_their_routes(fake: Fake, cluster: Cluster) -> None:
    for verb in ("cancel", "pause", "resume", "retry"):
        fake.on("POST", f"/api/jobs/j1/{verb}", job("queued"))
        assert getattr(cluster, verb)("j1")["job_id"] == "j1"
    fake.on("DELETE", "/api/jobs/j1", httpx.Response(204))
    cluster.delete("j1")
    worker = complete(fleet.Worker, id="n")
    fake.on("GET", "/api/workers", {"workers": [worker]})
    assert cluster.workers() == [worker]
    fake.on("POST", "/api/workers/n/drain", {"id": "n", "draining": False})
    cluster.drain("n", on=False)
    assert fake.bodies("/api/workers/n/drain") == [{"on": False}]
    fake.on("GET", "/api/job-types", {"kinds": [KIND]})
    assert cluster.kinds() == [KIND]
    fake.on("POST", "/api/results", {"answers": [{"job_id": "j1", "state": "done"}]})
    assert cluster.results(["j1"], wait_seconds=5)[0]["state"] == "done"
    fake.on("GET", "/api/jobs/j1/result", complete(jobs.Result))
    cluster.result("j1", partial=True)
    assert fake.asked[-1].url.params["partial"] == "true"


def test_results_too_large_for_one_answer_are_asked_for_alone(fake: Fake, cluster: Cluster) -> None:
    apart = {"job_id": "j2", "state": "done", "result_at": "/api/jobs/j2/result", "result_bytes": 10**8}
    fake.on("POST", "/api/results", {"answers": [{"job_id": "j1", "state": "done", "result": 1}, apart]})
    fake.on("GET", "/api/jobs/j2/result", complete(jobs.Result, job_id="j2", result=2))
    assert cluster.results(["j1", "j2"]) == [
        {"job_id": "j1", "state": "done", "result": 1},
        {"job_id": "j2", "state": "done", "result": 2},
    ]


# -- server-sent events ---------------------------------------------------------------------------------------------


def stream(*chunks: bytes) -> httpx.Response:
    return httpx.Response(200, content=iter(chunks), headers={"Content-Type": "text/event-stream"})


def test_events_are_resumed_after_the_last_one_seen(fake: Fake, cluster: Cluster, clock: Clock) -> None:
    first = stream(
        b'retry: 2000\n\nid: 1-0\ndata: {"state":"queued"}\n\n', b'id: 2-0\ndata: {"state":"run', b'ning"}\n\n'
    )
    cut = stream(b'id: 3-0\ndata: {"state":"run')
    last = stream(b': ping\n\nid: 4-0\ndata: {"state":"done","done":9}\n\nid: 5-0\ndata: {"never":"read"}\n\n')
    fake.on("GET", "/api/jobs/j1/events", first, httpx.ConnectError("refused"), cut, last)
    assert [event["state"] for event in cluster.events("j1")] == ["queued", "running", "done"]
    assert [one.headers.get("Last-Event-ID") for one in fake.asked] == [None, "2-0", "2-0", "2-0"]
    assert len(clock.slept) == 3


def test_events_of_a_cluster_whose_redis_is_away_are_waited_for(fake: Fake, cluster: Cluster, clock: Clock) -> None:
    away = problem(503, "A part of the cluster cannot be reached", "redis cannot be reached")
    fake.on("GET", "/api/jobs/j1/events", away, away, stream(b'id: 1-0\ndata: {"state":"done"}\n\n'))
    assert [event["state"] for event in cluster.events("j1")] == ["done"]
    assert len(clock.slept) == 2


def test_events_of_a_job_that_is_not_there_are_an_error(fake: Fake, cluster: Cluster, clock: Clock) -> None:
    fake.on("GET", "/api/jobs/j1/events", problem(404, "There is no such thing", "no job j1"))
    with pytest.raises(errors.ApiError, match="no job j1"):
        next(cluster.events("j1"))
    assert clock.slept == []


def test_messages_are_read_whatever_the_chunks() -> None:
    text = 'event: x\r\nid: 7\r\ndata: {"a":"one\u2028two"}\r\n\r\n: comment\r\n\r\ndata: b\r\ndata:c\r\n\r\ndata: cut'
    raw = text.encode()
    for size in (1, 2, 5, 1000):
        reader = sse.Reader()
        chunks = (raw[at : at + size] for at in range(0, len(raw), size))
        assert list(reader.messages(chunks)) == ['{"a":"one\u2028two"}', "b\nc"]
        assert reader.last_id == "7"


def test_bytes_that_are_no_text_end_no_stream() -> None:
    assert list(sse.Reader().messages([b"data: a\xff\n\n", b"data: b\n\n"])) == ["a\ufffd", "b"]


def test_another_server_at_the_address_is_named(fake: Fake, cluster: Cluster) -> None:
    fake.on("GET", "/api/status", httpx.Response(404, text="<h1>File not found</h1>"))
    with pytest.raises(errors.UnexpectedAnswer, match=r"the server at http://.* is not a cluster.*404 Not Found"):
        cluster.status()
