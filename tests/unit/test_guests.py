"""Tests that requests without a token can only submit compiled kinds and use the jobs of guests (AUTH=guest)."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from coordinator import app
from coordinator.access import guests
from coordinator.access.principal import GUEST_TENANT, Scope
from coordinator.rpc import cluster_pb2 as messages
from coordinator.rpc.service import Service
from coordinator.server import http
from jobs.network import exposure
from jobs.settings import Settings
from jobs.store import Store
from jobs.store.server import connection
from jobs.store.tenancy import tokens
from tests.unit.test_scopes import OPEN, SAMPLES, routes

#: A submission of the specification, sent without a token.
SNIPPET = {
    "type": "thread",
    "priority": "high",
    "gpu_preferred": True,
    "parameters": {"thread_count": 1000, "max_depth": 10, "batch_size": 256},
}
JOB = {"type": "collatz", "parameters": {"start_number": 1, "number_count": 10}}
PROGRAM = {"type": "command", "parameters": {"argv": ["id"], "count": 1}}
Pair = tuple[str, str]


class Site:
    """A coordinator application without a server that accepts guests, and the tokens of people."""

    def __init__(self, redis_url: str, **settings: Any) -> None:
        self.store = Store(connection.connect(redis_url))
        self.app = app.create(Settings.model_validate({"redis_url": redis_url, "auth": "guest", **settings}))
        self.admin = self.token("admin")

    def token(self, *scopes: str) -> str:
        minted = tokens.mint()
        self.store.tokens.create(minted, name="person", scopes=scopes)
        return minted.text

    def ask(self, method: str, path: str, body: Any = None, token: str = "", **headers: str) -> httpx.Response:
        """Send a request without a token, or with this one."""
        given = {"Authorization": f"Bearer {token}"} if token else {}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        return self.ask_all([(method, path)], body, given)[method, path]

    def ask_all(self, asked: list[Pair], body: Any = None, headers: Any = None) -> dict[Pair, httpx.Response]:
        async def go() -> dict[Pair, httpx.Response]:
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:3000") as client:
                return {one: await client.request(*one, json=body, headers=headers) for one in asked}

        return asyncio.run(go())

    def submit(self, body: Any = None, token: str = "", **headers: str) -> str:
        answer = self.ask("POST", "/api/submit", body or JOB, token, **headers)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["job_id"])


@pytest.fixture
def site(any_redis_url: str) -> Iterator[Site]:
    site = Site(any_redis_url)
    yield site
    site.store.client.close()


def paths_of_guests(**samples: str) -> dict[Pair, str]:
    """Return the routes of guests with sample values, and the declared path of each."""
    chosen = SAMPLES | samples
    return {
        (method, re.sub(r"\{(\w+)(:\w+)?\}", lambda name: chosen[name[1]], path)): path
        for method, path in guests.ROUTES
    }


# -- routes ------------------------------------------------------------------------------------------------------------


def test_each_route_outside_the_list_needs_a_token_and_says_how_to_get_one(site: Site) -> None:
    declared = {(method, path): context.path for method, path, context in routes(site.app)}
    listed = {one for one, path in declared.items() if (one[0], path) in guests.ROUTES}
    assert {(method, declared[method, path]) for method, path in listed} == guests.ROUTES, "each listed route exists"
    others = sorted(declared.keys() - listed - OPEN)
    assert len(others) > 100
    for one, answer in site.ask_all(others).items():
        assert answer.status_code == 401, one
        if one[0] != "HEAD":
            assert "cluster login URL" in answer.text and "cluster token create NAME" in answer.text, one


def test_a_new_route_needs_a_token(site: Site) -> None:
    def reached() -> None:
        raise AssertionError

    router = http.router()
    router.get("/jobs/{job_id}/new")(reached)
    router.post("/new", dependencies=[http.require_scope(Scope.SUBMIT)])(reached)
    site.app.router.routes[:0] = router.routes
    asked = [("GET", "/api/jobs/a/new"), ("POST", "/api/new")]
    assert {answer.status_code for answer in site.ask_all(asked).values()} == {401}


def test_with_any_other_setting_the_listed_routes_need_a_token_too(any_redis_url: str) -> None:
    for settings in ({"auth": "required"}, {"cluster_token": "t"}, {"published": "192.168.1.7"}):
        site = Site(any_redis_url, **settings)
        answers = site.ask_all(sorted(paths_of_guests(job_id="a")))
        assert {answer.status_code for answer in answers.values()} == {401}, settings
        site.store.client.close()


def test_guests_are_accepted_on_loopback_without_a_cluster_token_only() -> None:
    def accepts(**settings: Any) -> bool:
        return exposure.accepts_guests(Settings.model_validate(settings))

    assert accepts(auth="guest") and accepts(auth="guest", bind="0.0.0.0", published="loopback")
    for other in ({"auth": "auto"}, {"auth": "required"}, {"cluster_token": "t"}, {"bind": "0.0.0.0"}):
        assert not accepts(**{"auth": "guest", **other})
    assert exposure.needs_token(Settings(auth="guest")), "the pages ask for a login"
    with pytest.raises(exposure.ExposureError, match="CLUSTER_TOKEN"):
        exposure.check(Settings(auth="guest", bind="0.0.0.0", metrics_port=0))


# -- jobs of guests ----------------------------------------------------------------------------------------------------


def test_the_snippet_of_the_specification_works_without_a_header(site: Site) -> None:
    job = site.submit(SNIPPET)
    shown = site.ask("GET", f"/api/jobs/{job}").json()
    assert (shown["tenant"], shown["priority"]) == (GUEST_TENANT, "normal")
    assert "the priority is normal: high needs a token" in shown["notes"]
    for verb, state in (("pause", "paused"), ("resume", "queued"), ("cancel", "cancelled"), ("retry", "queued")):
        assert site.ask("POST", f"/api/jobs/{job}/{verb}").json()["state"] == state
    assert site.ask("GET", f"/api/v1/queue/tasks/{job}").json()["task_id"] == job
    assert site.ask("POST", f"/api/v1/queue/tasks/{job}/cancel").json()["state"] == "cancelled"
    assert [one["job_id"] for one in site.ask("GET", "/api/jobs").json()["jobs"]] == [job]
    assert [one["job_id"] for one in site.ask("GET", "/api/v1/queue/history").json()["tasks"]] == [job]
    assert site.ask("GET", f"/api/jobs/{job}/result").status_code == 409
    assert job in site.ask("POST", "/api/results", {"job_ids": [job]}).text
    assert "type" in site.ask("GET", "/api/job-types").json()["kinds"][0]


def test_an_operator_reads_and_steers_the_jobs_of_guests_and_other_tokens_do_not(site: Site) -> None:
    job, operator = site.submit(), site.token("read", "operate")
    assert site.ask("GET", f"/api/jobs/{job}", token=operator).status_code == 200
    assert site.ask("POST", f"/api/jobs/{job}/cancel", token=operator).json()["state"] == "cancelled"
    assert site.ask("GET", f"/api/jobs/{job}", token=site.token("read", "submit")).status_code == 404


def test_a_job_of_a_person_looks_missing_on_each_route(site: Site) -> None:
    person = site.token("read", "submit")
    job = site.submit(token=person)
    for method, path in sorted(paths_of_guests(job_id=job)):
        if job in path:
            answer, missing = site.ask(method, path), site.ask(method, path.replace(job, "missing"))
            assert answer.status_code == 404 and answer.text.replace(job, "missing") == missing.text, path
    assert site.ask("POST", "/api/results", {"job_ids": [job, "missing"]}).text.count('"state":null') == 2
    site.ask("POST", f"/api/jobs/{job}/cancel", token=person)
    for path in ("/api/jobs", "/api/jobs?state=cancelled", "/api/v1/queue/history"):
        assert job not in site.ask("GET", path).text
    assert site.ask("GET", f"/api/jobs/{job}", token=person).json()["state"] == "cancelled"


def test_keys_of_guests_and_of_people_are_different_keys(site: Site) -> None:
    person = site.token("read", "submit")
    theirs = site.submit({**JOB, "priority": "low"}, person, Idempotency_Key="night")
    own = site.submit(Idempotency_Key="night")
    assert own != theirs and site.submit(Idempotency_Key="night") == own
    for key in ("default:night", f"{GUEST_TENANT}:night"):
        assert site.submit(Idempotency_Key=key) not in (own, theirs)


def test_what_a_guest_cannot_submit_is_refused_by_name(site: Site) -> None:
    refused: dict[str, Any] = {
        "type": PROGRAM,
        "notify": {**JOB, "notify": "http://127.0.0.1:1/"},
        "after": {**JOB, "after": ["a"]},
        "after_any": {**JOB, "after_any": ["a"]},
        "hold": {**JOB, "hold": True},
    }
    for field, body in [*refused.items(), ("type", {"type": "service", "parameters": {}})]:
        single = site.ask("POST", "/api/submit", body)
        [batched] = site.ask("POST", "/api/submit-batch", {"jobs": [body]}).json()["answers"]
        for problem in (single.json(), batched["error"]):
            assert (problem["status"], problem["field"]) == (403, field)
            assert "needs a token" in problem["detail"] and "cluster login URL" in problem["detail"]
            assert body["type"] in problem["detail"] or field in problem["detail"]
    assert site.ask("GET", "/api/jobs", token=site.admin).json()["jobs"] == []


def test_a_compiled_kind_has_no_parameters_of_programs(site: Site) -> None:
    for name in ("artifact", "files", "secrets", "requirements", "labels", "workspace"):
        answer = site.ask(
            "POST", "/api/submit", {**JOB, "parameters": {"start_number": 1, "number_count": 1, name: "a"}}
        )
        assert answer.status_code == 422 and answer.json()["field"] == f"parameters.{name}"


def test_jobs_of_guests_cannot_come_before_all_jobs_of_people(site: Site) -> None:
    person, urgent = site.token("submit"), {**JOB, "priority": "high"}
    [batched] = site.ask("POST", "/api/submit-batch", {"jobs": [urgent]}).json()["answers"]
    for job, token, priority in (
        (site.submit(urgent), "", "normal"),
        (batched["job_id"], "", "normal"),
        (site.submit({**JOB, "priority": "low"}), "", "low"),
        (site.submit(urgent, person), site.admin, "high"),
    ):
        assert site.ask("GET", f"/api/jobs/{job}", token=token).json()["priority"] == priority


def test_hold_of_a_later_command_needs_a_token(site: Site) -> None:
    job = site.submit()
    site.ask("POST", f"/api/jobs/{job}/pause")
    refused = site.ask("POST", f"/api/jobs/{job}/resume?hold=true")
    assert (refused.status_code, refused.json()["field"]) == (403, "hold")


# -- attacks -----------------------------------------------------------------------------------------------------------


#: Headers of requests that are not guests, although they have no valid credential.
NOT_GUESTS = [
    {"Host": "evil.example:3000"},  # DNS rebinding
    {"Host": "192.168.1.7:3000"},
    {"Host": ""},
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:3000"},  # the pages ask for a login
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "same-origin"},
    {"X-Forwarded-For": "192.168.1.7"},  # a proxy on this machine that publishes the API
    {"X-Forwarded-Host": "evil.example"},
    {"X-Real-IP": "192.168.1.7"},
    {"Forwarded": "for=192.168.1.7"},
    {"Via": "1.1 proxy"},
    {"Authorization": "Basic eDp5"},
    {"Authorization": "Bearer wrong"},
    {"X-Api-Key": "wrong"},
    {"X-CSRF-Token": "of-an-ended-login"},
    {"Cookie": "cluster_session_3000=ended"},
]


def test_a_request_of_a_page_a_proxy_or_a_wrong_credential_is_not_a_guest(site: Site) -> None:
    job = site.submit()
    asked = [("GET", f"/api/jobs/{job}"), ("GET", "/api/jobs"), ("POST", f"/api/jobs/{job}/cancel")]
    for headers in NOT_GUESTS:
        answers = [*site.ask_all(asked, headers=headers).values()]
        answers += site.ask_all([("POST", "/api/submit"), ("POST", "/api/submit-batch")], JOB, headers).values()
        assert {answer.status_code for answer in answers} == {401}, headers
    assert [one["state"] for one in site.ask("GET", "/api/jobs").json()["jobs"]] == ["queued"]


def test_another_name_of_the_machine_is_accepted_if_it_is_allowed(any_redis_url: str) -> None:
    site = Site(any_redis_url, allowed_hosts="cluster.example")
    assert site.ask("GET", "/api/jobs", Host="cluster.example:3000").status_code == 200
    assert site.ask("GET", "/api/jobs", Host="other.example:3000").status_code == 401
    site.store.client.close()


def test_a_form_of_a_page_is_refused(site: Site) -> None:
    for form in ("application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain"):
        assert site.ask("POST", "/api/submit", JOB, Content_Type=form).status_code == 415
    assert site.ask("GET", "/api/jobs").json()["jobs"] == []


def test_a_flood_of_jobs_ends_at_the_limit_and_leaves_people_their_share(site: Site) -> None:
    batch = {"jobs": [JOB] * 1000}
    first, second = (site.ask("POST", "/api/submit-batch", batch).json()["answers"] for _ in range(2))
    assert all("job_id" in one for one in first)
    assert all(one["error"]["field"] == "max_jobs" and one["error"]["status"] == 429 for one in second)
    assert site.submit(token=site.token("submit"))


def test_guests_store_a_limited_number_of_bytes(site: Site) -> None:
    site.submit()
    [(registered, _)] = site.store.tenants.read([GUEST_TENANT])
    assert (registered.max_jobs, registered.max_stored_bytes) == (1000, 64 << 20)
    huge = {"type": "collatz", "parameters": {"start_number": 1, "number_count": "9" * 500_000}}
    assert site.ask("POST", "/api/submit", huge).status_code == 422
    assert site.ask("POST", "/api/submit", {**JOB, "type": "x" * 2_000_000}).status_code == 413


# -- the tenant --------------------------------------------------------------------------------------------------------


def test_no_token_belongs_to_the_tenant_of_guests(site: Site) -> None:
    site.submit()
    body = {"name": "x", "scopes": ["read"], "tenant": GUEST_TENANT}
    refused = site.ask("POST", "/api/tokens", body, site.admin)
    assert (refused.status_code, refused.json()["field"]) == (422, "tenant")


def test_an_admin_changes_the_limits_of_guests_and_cannot_delete_them(site: Site) -> None:
    path = f"/api/tenants/{GUEST_TENANT}"
    site.ask("PUT", path, {"max_jobs": 1}, site.admin)
    site.submit()
    refused = site.ask("POST", "/api/submit", JOB)
    assert refused.status_code == 429, "the limit of the admin stays"
    assert (
        "or use a token; the `cluster` command" in refused.json()["detail"] and "hold" not in refused.json()["detail"]
    )
    refused = site.ask("DELETE", path, token=site.admin)
    assert refused.status_code == 409 and "AUTH=required" in refused.json()["detail"]


# -- gRPC --------------------------------------------------------------------------------------------------------------


class Call:
    """Context of a gRPC call without metadata."""

    def invocation_metadata(self) -> tuple[Any, ...]:
        return ()

    def peer(self) -> str:
        return "ipv4:127.0.0.1:5"

    async def abort(self, code: Any, detail: str, trailers: Any = ()) -> None:
        raise RuntimeError(f"{code.name}: {detail}")


def test_a_call_over_grpc_is_a_guest_with_the_same_limits(site: Site) -> None:
    service, theirs = Service(site.app), site.submit(token=site.token("submit"))
    own = site.submit()

    def call(method: Any, request: Any) -> Any:
        return asyncio.run(method(request, Call()))

    text = json.dumps(JOB["parameters"])
    assert call(service.submit, messages.SubmitRequest(type="collatz", parameters_json=text)).status == "queued"
    assert json.loads(call(service.get_job, messages.JobRequest(job_id=own)).row_json)["tenant"] == GUEST_TENANT
    for method, request, words in (
        (service.get_job, messages.JobRequest(job_id=theirs), "NOT_FOUND"),
        (service.cancel, messages.JobRequest(job_id=theirs), "NOT_FOUND"),
        (service.get_status, messages.StatusRequest(), "UNAUTHENTICATED: this request needs a token"),
        (
            service.submit,
            messages.SubmitRequest(type="command"),
            "PERMISSION_DENIED: command runs programs, which needs a token",
        ),
    ):
        with pytest.raises(RuntimeError, match=words):
            call(method, request)

    async def read_events(request: Any) -> None:
        await anext(service.stream_events(request, Call()))

    for job, words in (("", "UNAUTHENTICATED"), (theirs, "NOT_FOUND")):
        with pytest.raises(RuntimeError, match=words):
            asyncio.run(read_events(messages.EventsRequest(job_id=job)))
