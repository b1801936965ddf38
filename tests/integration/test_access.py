"""Tests tokens, logins and tenants on a real cluster: who has access to what, and until when."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from jobs.store.keys import SPANS
from jobs.store.tenancy.tokens import MAX_LOGINS
from tests import fetch
from tests.integration.live import Live, guarded, until, within

MASTER = "a-long-secret-of-the-cluster"
SMALL = {"type": "paced", "parameters": {"units": 1}}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Start two coordinators that require tokens, without workers."""
    with guarded(tmp_path_factory.mktemp("access"), MASTER, SECRETS_KEY="k" * 32) as live:
        yield live


class Bearer:
    """Sends requests with one token."""

    def __init__(self, cluster: Live, token: str) -> None:
        self.cluster, self.token = cluster, token

    def ask(self, method: str, path: str, body: Any = None, replica: int = 0, **headers: str) -> httpx.Response:
        given = {"Authorization": f"Bearer {self.token}", **headers}
        return fetch.request(method, self.cluster.url(replica) + path, json=body, headers=given, timeout=30)

    def json(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        answer = self.ask(method, path, body, **more)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def submit(self, **more: Any) -> str:
        return str(self.json("POST", "/api/submit", {**SMALL, **more})["job_id"])


@pytest.fixture
def admin(cluster: Live) -> Bearer:
    return Bearer(cluster, MASTER)


def minted(admin: Bearer, *scopes: str, **more: Any) -> tuple[Bearer, str]:
    """Return a client with a new token, and the token's ID. Its tenant is registered."""
    if "tenant" in more:
        admin.json("PUT", f"/api/tenants/{more['tenant']}", {})
    made = admin.json("POST", "/api/tokens", {"name": "test", "scopes": list(scopes), **more})
    return Bearer(admin.cluster, made["token"]), made["id"]


def status(bearer: Bearer, replica: int = 0) -> int:
    return bearer.ask("GET", "/api/status", replica=replica).status_code


def refused_soon(ask: Callable[[], int], ended: float) -> None:
    """Repeat a request until it is rejected, which must happen within a second of the end of its permission."""
    asked = time.monotonic()
    while (answer := ask()) == 200:
        assert asked - ended < 1, "this one was sent more than a second after what opened it had ended"
        asked = time.monotonic()
    assert answer == 401


# -- tokens ------------------------------------------------------------------------------------------------------------


def test_a_token_is_shown_once_and_kept_as_a_digest(cluster: Live, admin: Bearer) -> None:
    bearer, token_id = minted(admin, "read")
    assert bearer.token.startswith(f"tc_{token_id}_") and len(bearer.token.rpartition(f"{token_id}_")[2]) == 43
    listed = next(one for one in admin.json("GET", "/api/tokens")["tokens"] if one["id"] == token_id)
    assert listed["scopes"] == ["read"] and listed["tenant"] == "default" and listed["expires"] is None
    secret = bearer.token[-43:]
    assert secret not in admin.ask("GET", "/api/tokens").text
    everything = b"".join(repr(cluster.redis().dump(key)).encode() for key in cluster.redis().scan_iter("*"))
    assert secret.encode() not in everything
    assert secret not in cluster.log("coordinator-0")


def test_a_token_is_known_to_the_other_replica_at_once(admin: Bearer) -> None:
    for _ in range(5):
        bearer, _ = minted(admin, "read")
        assert status(bearer, replica=1) == 200


def test_a_wrong_secret_of_a_known_id_is_refused(admin: Bearer) -> None:
    bearer, _ = minted(admin, "read")
    for wrong in (f"{bearer.token[:-1]}{'a' if bearer.token[-1] != 'a' else 'b'}", bearer.token[:-1], bearer.token[3:]):
        assert status(Bearer(admin.cluster, wrong)) == 401


def test_a_revoked_token_is_refused_on_every_replica_within_a_second(admin: Bearer) -> None:
    bearer, token_id = minted(admin, "read")
    assert [status(bearer, replica) for replica in (0, 1)] == [200, 200]
    assert admin.ask("DELETE", f"/api/tokens/{token_id}").status_code == 204
    ended = time.monotonic()
    assert status(bearer) == 401
    refused_soon(lambda: status(bearer, replica=1), ended)
    assert admin.ask("DELETE", f"/api/tokens/{token_id}").status_code == 404


def test_a_token_ends_when_its_time_is_over(admin: Bearer) -> None:
    began = time.monotonic()
    bearer, _ = minted(admin, "read", ttl_seconds=3)
    first = status(bearer)
    assert first == 200 or time.monotonic() - began >= 3
    until(lambda: status(bearer) == 401)


def test_the_last_use_is_written_soon_and_not_with_each_request(cluster: Live, admin: Bearer) -> None:
    bearer, token_id = minted(admin, "read")
    used = lambda: int(cluster.redis().hget(f"ct:token:{token_id}", "used") or 0)  # noqa: E731
    assert used() == 0
    assert status(bearer) == 200
    first = until(used)
    for _ in range(5):
        status(bearer)
    time.sleep(0.2)
    assert used() == first


def test_a_flood_of_unknown_tokens_asks_redis_a_bounded_number_of_times(cluster: Live, admin: Bearer) -> None:
    status(admin)
    before, began = int(cluster.redis().info("commandstats")["cmdstat_fcall"]["calls"]), time.monotonic()
    with httpx.Client(limits=httpx.Limits(max_connections=20), timeout=60) as client:

        def flood(number: int) -> None:
            for place in range(15):
                token = f"tc_{number:05}{place:05}_{'x' * 43}"
                headers = {"Authorization": f"Bearer {token}"}
                assert client.get(cluster.url() + "/api/status", headers=headers).status_code == 401

        threads = [threading.Thread(target=flood, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    seconds = time.monotonic() - began
    calls = int(cluster.redis().info("commandstats")["cmdstat_fcall"]["calls"]) - before
    print(f"300 unknown tokens in {seconds:.2f} s: {calls} calls of functions, those of the leader among them")
    assert calls < 40 * seconds + 40


def test_only_admin_makes_tokens_and_a_bad_one_is_named(admin: Bearer) -> None:
    bearer, _ = minted(admin, "read", "submit", "operate")
    for method, path in (("POST", "/api/tokens"), ("GET", "/api/tokens"), ("DELETE", "/api/tokens/x")):
        refused = bearer.ask(method, path)
        assert refused.status_code == 403 and "needs the scope admin" in refused.json()["detail"]
    for wrong, field in (
        ({"name": "a b", "scopes": ["read"]}, "name"),
        ({"name": "a", "scopes": ["root"]}, "scopes.0"),
        ({"name": "a", "scopes": []}, "scopes"),
        ({"name": "a", "scopes": ["read"], "tenant": "A"}, "tenant"),
        ({"name": "a", "scopes": ["read"], "ttl_seconds": 0}, "ttl_seconds"),
    ):
        answer = admin.ask("POST", "/api/tokens", wrong)
        assert (answer.status_code, answer.json()["field"]) == (422, field)


def test_a_tokens_tenant_must_be_registered(admin: Bearer) -> None:
    asked = {"name": "a", "scopes": ["read"], "tenant": "unheard-of"}
    refused = admin.ask("POST", "/api/tokens", asked)
    assert (refused.status_code, refused.json()["field"]) == (422, "tenant")
    assert "PUT /api/tenants/unheard-of" in refused.json()["detail"]
    admin.json("PUT", "/api/tenants/unheard-of", {})
    assert admin.json("POST", "/api/tokens", asked)["tenant"] == "unheard-of"


def test_a_value_of_a_secret_is_in_no_log_of_a_coordinator(cluster: Live, admin: Bearer) -> None:
    value = "hunter2-hunter2"
    assert admin.json("PUT", "/api/secrets/KEY", {"value": value})["readable"] is True
    assert admin.json("GET", "/api/secrets", replica=1)["secrets"][0]["name"] == "KEY"
    for body in ({"value": value, "more": value}, [value], {"value": f"{value}\0"}):
        assert admin.ask("PUT", "/api/secrets/KEY", body).status_code == 422
    assert all(value not in cluster.log(f"coordinator-{number}") for number in range(2))


# -- tenants -----------------------------------------------------------------------------------------------------------


def test_another_tenants_job_is_as_one_that_does_not_exist(admin: Bearer) -> None:
    ours, _ = minted(admin, "read", "submit", tenant="red")
    theirs, _ = minted(admin, "read", "submit", tenant="blue")
    job = ours.submit()
    assert ours.json("GET", f"/api/jobs/{job}")["tenant"] == "red"
    for method, path in (
        ("GET", ""),
        ("GET", "/result"),
        ("GET", "/events"),
        ("GET", "/trace.json"),
        ("GET", "/columns.bin"),
        ("POST", "/cancel"),
        ("POST", "/pause"),
        ("POST", "/resume"),
        ("POST", "/retry"),
        ("DELETE", ""),
    ):
        hidden, missing = (theirs.ask(method, f"/api/jobs/{name}{path}") for name in (job, "0" * len(job)))
        assert hidden.status_code == missing.status_code == 404, (method, path)
        assert hidden.json() == {**missing.json(), "detail": missing.json()["detail"].replace("0" * len(job), job)}
    asked = {"job_ids": [job, "nosuch"], "wait_seconds": 1}
    one, other = theirs.json("POST", "/api/results", asked)["answers"]
    assert one == {"job_id": job, "state": None, "error": f"no job {job}"} and other["state"] is None
    assert ours.json("GET", f"/api/jobs/{job}")["state"] == "queued"


def test_lists_and_snapshots_leave_other_tenants_out_and_operators_see_all(admin: Bearer) -> None:
    ours, _ = minted(admin, "read", "submit", tenant="red")
    theirs, _ = minted(admin, "read", "submit", tenant="blue")
    operator, _ = minted(admin, "read", "operate", tenant="green")
    mine, other = ours.submit(), theirs.submit()

    def listed(bearer: Bearer, path: str) -> set[str]:
        return {row["job_id"] for row in bearer.json("GET", path)["jobs"]}

    for path in ("/api/jobs", "/api/snapshot", "/api/jobs?state=queued"):
        assert mine in listed(ours, path) and other not in listed(ours, path)
        assert {mine, other} <= listed(operator, path) and {mine, other} <= listed(admin, path)
    assert operator.json("POST", f"/api/jobs/{mine}/cancel")["state"] == "cancelled"


def test_spans_of_work_tell_no_other_tenants_jobs(cluster: Live, admin: Bearer) -> None:
    ours, _ = minted(admin, "read", "submit", tenant="red")
    theirs, _ = minted(admin, "read", "submit", tenant="blue")
    operator, _ = minted(admin, "read", "operate", tenant="green")
    mine, other = ours.submit(), theirs.submit()
    now = cluster.redis().time()[0] * 1000
    for job in (mine, other):
        span = f"{job}:paced:cpu:{now - 500}:{now}:400:1:1:1:0"
        cluster.redis().xadd(SPANS, {"lane": f"of-{job}/0", "span": span})

    def told(bearer: Bearer, replica: int) -> set[tuple[Any, ...]]:
        """Return lane, job and kind of the two spans."""
        stream = bearer.json("GET", "/api/stream", replica=replica)
        found = {(stream["lanes"][span["lane"]]["lane"], span["job_id"], span["type"]) for span in stream["spans"]}
        return {row for row in found if row[0] in (f"of-{mine}/0", f"of-{other}/0")}

    every = {(f"of-{job}/0", job, "paced") for job in (mine, other)}
    for replica in (0, 1):
        assert told(ours, replica) == {(f"of-{mine}/0", mine, "paced"), (f"of-{other}/0", None, None)}
        assert told(theirs, replica) == {(f"of-{other}/0", other, "paced"), (f"of-{mine}/0", None, None)}
        assert told(operator, replica) == told(admin, replica) == every


def test_thousands_of_another_tenants_jobs_do_not_hide_ones_own(admin: Bearer) -> None:
    ours, _ = minted(admin, "read", "submit", tenant="violet")
    theirs, _ = minted(admin, "read", "submit", tenant="orange")
    mine = [ours.submit() for _ in range(3)]
    for _ in range(3):
        theirs.json("POST", "/api/submit-batch", {"jobs": [SMALL] * 1000})
    mine += [ours.submit() for _ in range(2)]
    first = ours.json("GET", "/api/jobs?limit=4")
    rest = ours.json("GET", f"/api/jobs?limit=4&cursor={first['cursor']}")
    assert [row["job_id"] for row in (*first["jobs"], *rest["jobs"])] == mine[::-1]
    assert rest["cursor"] is None and len(first["jobs"]) == 4
    assert {row["tenant"] for row in theirs.json("GET", "/api/jobs?limit=500&state=queued")["jobs"]} == {"orange"}


def test_an_idempotency_key_is_a_tenants_own(admin: Bearer) -> None:
    ours, _ = minted(admin, "submit", tenant="red")
    also, _ = minted(admin, "submit", tenant="red")
    theirs, _ = minted(admin, "submit", tenant="blue")
    job = ours.submit(idempotency_key="same")
    assert also.submit(idempotency_key="same") == job
    assert theirs.submit(idempotency_key="same") != job


@contextlib.contextmanager
def heard(bearer: Bearer, path: str) -> Iterator[tuple[list[str], threading.Thread]]:
    """Return the received data lines of a stream, and the thread that reads it to its end."""
    lines: list[str] = []
    headers = {"Authorization": f"Bearer {bearer.token}"}
    client = httpx.Client(base_url=bearer.cluster.url(), headers=headers, timeout=30)

    def listen() -> None:
        with contextlib.suppress(httpx.HTTPError, OSError), client.stream("GET", path) as answer:
            lines.append(f"status {answer.status_code}")
            lines.extend(line for line in answer.iter_lines() if line.startswith("data: "))
            lines.append("END")

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        until(lambda: lines)
        yield lines, thread
    finally:
        client.close()


def test_streams_of_events_leave_other_tenants_out(admin: Bearer) -> None:
    ours, _ = minted(admin, "read", "submit", tenant="red")
    theirs, _ = minted(admin, "read", "submit", tenant="blue")
    other = theirs.submit()
    topics = f"/api/events?topics=jobs,job:{other}"
    with heard(ours, topics) as (lines, _), heard(admin, topics) as (every, _):
        time.sleep(0.5)
        theirs.json("POST", f"/api/jobs/{other}/cancel")
        mine = ours.submit()
        until(lambda: any(mine in line for line in lines) and any(other in line for line in every))
        assert not any(other in line for line in lines)
        admin.json("POST", f"/api/jobs/{mine}/cancel")


def test_a_stream_ends_within_15_seconds_of_its_tokens_end(admin: Bearer) -> None:
    assert within(lambda: seconds_to_a_streams_end(admin), 16)


def seconds_to_a_streams_end(admin: Bearer) -> float:
    """Revoke a token, and return the seconds until a stream that it opened has ended."""
    bearer, token_id = minted(admin, "read")
    with heard(bearer, "/api/events?topics=jobs") as (lines, thread):
        admin.json("DELETE", f"/api/tokens/{token_id}")
        began = time.monotonic()
        thread.join(60)
        assert lines == ["status 200", "END"]
        return time.monotonic() - began


# -- logins of browsers ------------------------------------------------------------------------------------------------


class Browser:
    """Sends its login cookie to every port, like browsers, and the CSRF token of its page."""

    def __init__(self, cluster: Live, replica: int = 0) -> None:
        self.url = cluster.url(replica)
        self.csrf = self.cookie = ""

    def log_in(self, **body: str) -> httpx.Response:
        answer = fetch.post(f"{self.url}/api/login", json=body, headers={"Origin": self.url}, timeout=30)
        self.csrf = answer.json().get("csrf_token", "")
        self.cookie = answer.headers.get("set-cookie", "").partition(";")[0]
        return answer

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        given = {"Cookie": self.cookie, "X-CSRF-Token": self.csrf, **headers}
        return fetch.request(method, self.url + path, json=body, headers=given, timeout=30)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> int:
        return self.send(method, path, body, **headers).status_code


def test_a_browser_logs_in_with_a_token_and_out(cluster: Live, admin: Bearer) -> None:
    bearer, _ = minted(admin, "read", "submit")
    browser = Browser(cluster)
    cookie = browser.log_in(token=bearer.token).headers["set-cookie"]
    port = cluster.ports[0]
    assert cookie.startswith(f"cluster_session_{port}=ts_")
    for part in ("HttpOnly", "SameSite=strict", "Path=/", "Max-Age=43200"):
        assert part in cookie
    assert "Secure" not in cookie and "Domain" not in cookie
    assert browser.ask("GET", "/api/status") == 200 and browser.ask("POST", "/api/submit", SMALL) == 202
    assert browser.ask("GET", "/api/tokens") == 403
    assert browser.send("GET", "/api/session").json()["by_cookie"] is True
    answer = browser.send("POST", "/api/logout")
    assert answer.status_code == 204 and f'cluster_session_{port}="";' in answer.headers["set-cookie"]
    assert browser.ask("GET", "/api/status") == 401


def test_a_cookie_alone_opens_nothing(cluster: Live) -> None:
    """Cookies ignore ports, so a server on another port of the host receives the cookie and can send it."""
    browser = Browser(cluster)
    assert browser.log_in(token=MASTER).status_code == 200
    for wrong in ("", "wrong", browser.csrf[:-1]):
        assert browser.ask("GET", "/api/status", **{"X-CSRF-Token": wrong}) == 401
        assert browser.ask("POST", "/api/submit", SMALL, **{"X-CSRF-Token": wrong}) == 401
        assert browser.ask("GET", "/api/events", **{"X-CSRF-Token": wrong}) == 401
    own = browser.url
    assert browser.ask("POST", "/api/submit", SMALL, Origin=own) == 202
    for origin in (
        "http://127.0.0.1",
        "http://127.0.0.1:1",
        "http://localhost:1",
        "null",
        f"{own}0",
        "http://evil.example",
    ):
        assert browser.ask("POST", "/api/submit", SMALL, Origin=origin) == 403
        assert browser.ask("GET", "/api/status", Origin=origin) == 403
    for site in ("cross-site", "same-site"):
        assert browser.ask("GET", "/api/status", **{"Sec-Fetch-Site": site}) == 403


def test_a_login_dies_with_its_token(cluster: Live, admin: Bearer) -> None:
    bearer, token_id = minted(admin, "read")
    browser = Browser(cluster, replica=1)
    browser.log_in(token=bearer.token)
    assert browser.ask("GET", "/api/status") == 200
    admin.json("DELETE", f"/api/tokens/{token_id}")
    refused_soon(lambda: browser.ask("GET", "/api/status"), time.monotonic())


def test_a_tokens_logins_end_its_own_oldest_and_nobody_elses(cluster: Live, admin: Bearer) -> None:
    greedy, modest = (minted(admin, "read")[0] for _ in range(2))
    other, first, second = Browser(cluster), Browser(cluster), Browser(cluster)
    for browser, bearer in ((other, modest), (first, greedy), (second, greedy)):
        assert browser.log_in(token=bearer.token).status_code == 200
    with httpx.Client(base_url=cluster.url(), timeout=30) as client:
        for _ in range(MAX_LOGINS - 1):
            assert client.post("/api/login", json={"token": greedy.token}).status_code == 200
    until(lambda: first.ask("GET", "/api/status") == 401)
    assert second.ask("GET", "/api/status") == other.ask("GET", "/api/status") == 200
    assert second.ask("POST", "/api/logout") == 204
    assert cluster.redis().zcard(f"ct:logins:{greedy.token.split('_')[1]}") == MAX_LOGINS - 1


def test_logins_are_refused_from_other_pages_and_without_tls_over_a_network(cluster: Live) -> None:
    def login(**headers: str) -> httpx.Response:
        return fetch.post(cluster.url() + "/api/login", json={"token": MASTER}, headers=headers)

    assert login().status_code == 200
    assert login(Origin="http://evil.example").status_code == 403
    assert login(**{"Sec-Fetch-Site": "same-site"}).status_code == 403
    open_network = login(Host="cluster.example")
    assert open_network.status_code == 403 and "TLS" in open_network.json()["detail"]
    tls = login(Host="cluster.example", **{"X-Forwarded-Proto": "https"})
    assert tls.status_code == 200
    assert tls.headers["set-cookie"].startswith("__Host-cluster_session=ts_") and "Secure" in tls.headers["set-cookie"]
    wrong = fetch.post(cluster.url() + "/api/login", json={"token": "wrong"})
    large = fetch.post(cluster.url() + "/api/login", json={"token": "w" * 20_000})
    assert large.status_code == 413, "strangers take no room from the bodies of others"
    assert wrong.status_code == 401 and "set-cookie" not in wrong.headers


def test_a_one_time_code_logs_in_once(cluster: Live, admin: Bearer) -> None:
    bearer, _ = minted(admin, "read")
    code = bearer.json("POST", "/api/login-codes")["code"]
    first, second = Browser(cluster), Browser(cluster, replica=1)
    assert first.log_in(code=code).status_code == 200
    assert first.ask("GET", "/api/status") == 200 and first.ask("POST", "/api/submit", SMALL) == 403
    assert second.log_in(code=code).status_code == 401
    assert second.log_in(code="never-was").status_code == 401
    for number in range(2):
        assert code not in cluster.log(f"coordinator-{number}")
    assert not list(cluster.redis().scan_iter("ct:login:*"))


def test_where_no_token_is_needed_a_cookie_changes_nothing_and_a_wrong_token_is_refused(tmp_path: Path) -> None:
    live = Live(tmp_path, workers=0)
    try:
        live.start_redis()
        live.start_coordinator()
        name = f"cluster_session_{live.ports[0]}=ts_{'a' * 10}_{'b' * 43}"
        for headers in ({}, {"Cookie": name}, {"Cookie": name, "X-CSRF-Token": "x"}):
            answer = fetch.get(f"{live.url()}/api/session", headers=headers).json()
            assert answer["scopes"] == ["operate", "read", "submit"] and answer["token_needed"] is False
        assert status(Bearer(live, f"tc_{'a' * 10}_{'b' * 43}")) == status(Bearer(live, "x")) == 401
        for method, path in (("GET", "/api/tokens"), ("POST", "/api/tokens")):
            assert fetch.request(method, live.url() + path).status_code == 403
        assert live.post("/api/login-codes").status_code == 409
    finally:
        live.stop()


def test_one_cluster_token_replaces_another_without_a_stop(cluster: Live, admin: Bearer) -> None:
    browser = Browser(cluster, replica=1)
    browser.log_in(token=MASTER)
    for number, tokens in ((0, f"{MASTER},second"), (1, f"{MASTER},second"), (0, "second"), (1, "second")):
        cluster.kill(f"coordinator-{number}")
        cluster.environment["CLUSTER_TOKEN"] = tokens
        cluster.start_coordinator(number)
        if MASTER in tokens:
            assert status(admin, number) == 200
        assert status(Bearer(cluster, "second"), number) == 200
    assert status(admin, 0) == status(admin, 1) == 401
    assert browser.ask("GET", "/api/status") == 401, "its login dies with the token"
