"""Tests that every route requires a known token with its scope, except for a short list of routes."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from starlette.routing import Mount, WebSocketRoute
from starlette.testclient import TestClient, WebSocketDenialResponse
from starlette.websockets import WebSocketDisconnect

from coordinator import app
from coordinator.access.credentials import Credentials
from coordinator.access.principal import ANYONE, OWNER, Principal, Scope
from coordinator.server import http
from jobs import errors
from jobs.settings import Settings
from jobs.store import Store
from jobs.store.server import connection
from jobs.store.tenancy import tokens
from tests.unit.artifact_bench import Bench

#: Routes without a token, by method and path, in addition to the pages' files.
OPEN = {
    ("GET", "/health"),
    ("HEAD", "/health"),
    ("GET", "/ready"),
    ("HEAD", "/ready"),
    ("GET", "/api/docs"),
    ("GET", "/api/docs/start.js"),
    ("GET", "/api/docs/swagger-ui.css"),
    ("GET", "/api/docs/swagger-ui-bundle.js"),
    ("GET", "/api/openapi.json"),
    ("HEAD", "/api/openapi.json"),
    ("POST", "/api/login"),
    ("GET", "/api/authority"),
    ("GET", "/join"),
    ("GET", "/join/cluster.whl"),
}
#: Routes with further checks: only admins revoke other tokens, and an invitation has only the scope join.
CLOSER = {("DELETE", "/api/tokens/t2"): Scope.ADMIN, ("POST", "/api/join"): Scope.JOIN}
#: Sample values for path parameters.
SAMPLES = {"verb": "cancel", "kind": "collatz", "mark": "verified", "token_id": "t2", "wheel": "cluster.whl"}
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")


class Known:
    """A cluster that knows one principal and answers all other calls with 409."""

    def __init__(self, principal: Principal | None) -> None:
        async def known(_bearer: str) -> Principal:
            if principal is None:
                raise errors.Unauthorized
            return principal

        async def no_guest(_request: Any) -> None:
            return None

        self.credentials = type("Credentials", (), {"principal_by_bearer": staticmethod(known)})
        self.guests = type("Guests", (), {"principal": staticmethod(no_guest)})

    def __getattr__(self, name: str) -> Any:
        raise errors.Conflict(f"reached {name}")


def application(principal: Principal | None) -> FastAPI:
    api = app.create(Settings(redis_url="redis://127.0.0.1:1/0"))
    api.state.coordinator = replace(api.state.coordinator, cluster=Known(principal))
    return api


def routes(api: FastAPI) -> Iterator[tuple[str, str, Any]]:
    """Yield every route of the application with its method, and its path with samples."""
    for context in iter_route_contexts(api.router.routes):
        if isinstance(context.original_route, Mount | WebSocketRoute):
            continue
        path = re.sub(r"\{(\w+)(:\w+)?\}", lambda name: SAMPLES.get(name[1], name[1]), context.path or "")
        for method in context.methods or ():
            yield method, path, context


def answers(api: FastAPI, asked: list[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """Return the status of each response; 0 for a stream that started."""

    async def go() -> dict[tuple[str, str], int]:
        found = {}
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=api), base_url="http://127.0.0.1") as client:
            for method, path in asked:
                try:
                    found[method, path] = (await client.request(method, path)).status_code
                except RuntimeError:  # the stream fails after its first line
                    found[method, path] = 0
        return found

    return asyncio.run(go())


def principal(*scopes: Scope) -> Principal:
    return Principal(tenant="default", token="t1", scopes=frozenset(scopes), name="w1")


def test_without_a_token_everything_is_a_401_but_for_the_list() -> None:
    api = application(None)
    every = [(method, path) for method, path, _ in routes(api)]
    assert len(every) > 30
    statuses = answers(api, every)
    assert {one for one, status in statuses.items() if status != 401} == OPEN


def test_no_method_of_any_path_is_let_in_without_a_token() -> None:
    api = application(None)
    declared = {(method, path) for method, path, _ in routes(api)}
    paths = {path for _, path in declared}
    every = [(method, path) for path in paths for method in METHODS if (method, path) not in OPEN]
    statuses = answers(api, every)
    assert set(statuses.values()) == {401, 405}
    others = [one for one in every if one[0] in ("PUT", "PATCH") and one not in declared]
    assert others and all(statuses[one] == 405 for one in others)


@pytest.mark.parametrize("scope", [None, *Scope])
def test_a_tunnel_is_for_workers_alone(scope: Scope | None) -> None:
    api = application(principal(scope) if scope else None)
    sockets = [one.path for one in api.router.routes if isinstance(one, WebSocketRoute)]
    assert sockets == ["/api/worker/tunnel"], "each such route must look at its principal by itself"
    client = TestClient(api)
    if scope in (Scope.WORKER, Scope.ADMIN):
        with client.websocket_connect(sockets[0]) as socket:
            assert socket.receive_json()["coordinator"]
            socket.send_bytes(b"nonsense")
            with pytest.raises(WebSocketDisconnect):
                socket.receive_bytes()
        return
    with pytest.raises(WebSocketDenialResponse) as refused, client.websocket_connect(sockets[0]):
        pass
    assert refused.value.status_code == (403 if scope else 401)


@pytest.mark.parametrize("scope", list(Scope))
def test_each_scope_opens_its_routes_and_no_other(scope: Scope) -> None:
    api = application(principal(scope))
    guarded = {(method, path): route for method, path, route in routes(api) if (method, path) not in OPEN}
    opened = set()
    for (method, path), status in answers(api, list(guarded)).items():
        declared = (one.dependency for one in guarded[method, path].dependencies)
        [needed] = [one.scopes for one in declared if isinstance(one, http.RequiredScopes)]
        allowed = not needed or scope in needed or scope is Scope.ADMIN
        if (method, path) in CLOSER:
            assert allowed or scope is not CLOSER[method, path]
            allowed = scope is CLOSER[method, path]
        assert (status == 403) != allowed and status != 401, (method, path, status)
        if allowed:
            opened.add((method, path))
    assert opened if scope in (Scope.READ, Scope.SUBMIT, Scope.WORKER, Scope.OPERATE) else scope in Scope


#: Requests that every token permits: show itself, log out, and revoke itself.
OWN = {("GET", "/api/session"), ("POST", "/api/logout"), ("DELETE", "/api/tokens/t1")}


@pytest.mark.parametrize("scope", [Scope.WORKER, Scope.INFER, Scope.JOIN])
def test_a_token_of_a_machine_opens_its_own_calls_alone(scope: Scope) -> None:
    api = application(principal(scope))
    every = {(method, path) for method, path, _ in routes(api)} - OPEN | OWN
    opened = {one for one, status in answers(api, sorted(every)).items() if status != 403}
    places = {Scope.WORKER: ("/api/worker/",), Scope.INFER: ("/v1/", "/api/llm/"), Scope.JOIN: ("/api/join",)}
    link = {("POST", "/api/login-codes")} if scope is Scope.INFER else set()
    assert {one for one in opened if not one[1].startswith(places[scope])} == OWN | link


@pytest.mark.parametrize("scope", [Scope.READ, Scope.SUBMIT, Scope.RUN, Scope.INFER, Scope.OPERATE, Scope.ADMIN])
def test_a_token_of_a_person_logs_in(redis_url: str, tmp_path: Path, scope: Scope) -> None:
    with closing(Bench(redis_url, tmp_path)) as bench:
        token = bench.token("default", scope.value)
        assert bench.ask("POST", "/api/login", {"token": token}).status_code == 200
        code = bench.ask("POST", "/api/login-codes", token=token).json()["code"]
        assert bench.ask("POST", "/api/login", {"code": code}).status_code == 200


@pytest.mark.parametrize("scope", [Scope.WORKER, Scope.JOIN])
def test_a_token_of_a_machine_cannot_log_in(redis_url: str, tmp_path: Path, scope: Scope) -> None:
    with closing(Bench(redis_url, tmp_path)) as bench:
        token = bench.token("default", scope.value)
        link = bench.ask("POST", "/api/login-codes", token=token)
        login = bench.ask("POST", "/api/login", {"token": token})
        assert (link.status_code, login.status_code) == (403, 403), link.text
        needed = "this request needs the scope read or submit or run or infer or operate"
        assert login.json()["detail"] == f"{needed}; the token has {scope.value}"
        assert not list(bench.store.client.scan_iter("ct:login*")), "nothing is stored of it"
        assert bench.ask("GET", "/api/session", token=token).json()["scopes"] == [scope.value]


def test_every_path_of_a_job_hides_the_jobs_of_other_tenants() -> None:
    paths = [route for _, _, route in routes(application(OWNER)) if "{job_id}" in route.path]
    assert len(paths) > 5
    for route in paths:
        assert http.visible_job in [one.call for one in route.dependant.dependencies], f"{route.path}: http.JobId"


def test_a_refusal_names_the_scope_needed_and_those_there_are() -> None:
    async def go() -> httpx.Response:
        api = application(principal(Scope.READ, Scope.OPERATE))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=api), base_url="http://127.0.0.1") as client:
            return await client.post("/api/submit", json={})

    answer = asyncio.run(go())
    assert answer.status_code == 403
    assert answer.json()["detail"] == "this request needs the scope submit; the token has operate, read"


def test_a_route_that_changes_something_must_declare_its_scope() -> None:
    routes = http.router()
    with pytest.raises(TypeError, match="/api/things changes data and must declare a scope"):
        routes.post("/things")(lambda: None)
    routes.post("/things", dependencies=[http.require_scope(Scope.ADMIN)])(lambda: None)
    routes.get("/things")(lambda: None)


STORE = Store(connection.connect("redis://127.0.0.1:1/0", retries=0, timeout=1)).tokens


def test_the_page_on_access_lists_every_scope_and_what_is_open() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "access.md").read_text()
    assert re.findall(r"^\| `([a-z]+)` \| [a-z]", text, re.MULTILINE)[-len(Scope) :] == [scope.value for scope in Scope]
    opened = text[text.index("paths never need a token") : text.index("## Scopes")]
    for _, path in OPEN:
        assert any(path == named or path.startswith(f"{named}/") for named in re.findall(r"`[A-Z ]*(/[^`]+)`", opened))


def found(bearer: str = "", **chosen: str) -> Principal:
    return asyncio.run(Credentials(Settings.model_validate(chosen), STORE).principal_by_bearer(bearer))


def test_without_a_token_anybody_may_do_all_but_administer_where_none_is_needed() -> None:
    assert found() == ANYONE
    assert ANYONE.has(Scope.READ) and ANYONE.has(Scope.SUBMIT) and ANYONE.has(Scope.OPERATE)
    assert not ANYONE.has(Scope.ADMIN) and ANYONE.only_tenant is None


def test_cluster_token_is_everything_and_without_it_nobody_is_let_in() -> None:
    assert found("t", cluster_token="t") == OWNER
    assert all(OWNER.has(scope) for scope in Scope)
    for wrong in ("", "T", "tt", "é"):
        with pytest.raises(errors.Unauthorized):
            found(wrong, cluster_token="t")


def test_two_cluster_tokens_count_while_one_replaces_the_other() -> None:
    for text in ("old,new", "old\nnew\n", " old  new "):
        assert found("old", cluster_token=text) == found("new", cluster_token=text) == OWNER
        with pytest.raises(errors.Unauthorized):
            found("old,new", cluster_token=text)


def test_who_has_neither_operate_nor_admin_sees_its_own_tenant_alone() -> None:
    assert principal(Scope.READ, Scope.SUBMIT).only_tenant == "default"
    assert principal(Scope.OPERATE).only_tenant is principal(Scope.ADMIN).only_tenant is None


class Hanging:
    """Token store of a hanging Redis, whose calls fail after a while."""

    def __init__(self) -> None:
        self.calls = 0

    def state(self) -> tuple[bytes, int]:
        self.calls += 1
        time.sleep(0.05)
        raise connection.SilenceError("no answer")


def test_requests_that_wait_for_a_hanging_redis_fail_with_the_first() -> None:
    store = Hanging()
    credentials = Credentials(Settings.model_validate({"auth": "required"}), store)  # type: ignore[arg-type]

    async def ask() -> list[Any]:
        bearer = tokens.mint().text
        first = await asyncio.gather(
            *(credentials.principal_by_bearer(bearer) for _ in range(20)), return_exceptions=True
        )
        return [*first, *await asyncio.gather(credentials.principal_by_bearer(bearer), return_exceptions=True)]

    answers = asyncio.run(ask())
    assert all(isinstance(answer, connection.SilenceError) for answer in answers)
    assert store.calls == 2, "one for the twenty at once, one for who came later"
