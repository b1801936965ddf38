"""Tests that requests answered without FastAPI get the same responses as from FastAPI, including errors."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any

import httpx
import pytest
from fastapi import BackgroundTasks, FastAPI, Header, Query, Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from coordinator import app
from coordinator.access.principal import OWNER, Principal, Scope
from coordinator.server import direct_dispatch, http
from coordinator.server.direct_dispatch import DirectDispatch
from coordinator.server.http import json_response
from jobs import errors
from jobs.settings import Settings
from jobs.store.server import connection

PATH = "/api/tried"
BODY = {"Content-Type": "application/json"}
_QUERIES = (
    "",
    "seconds=2",
    "seconds=2.5",
    "seconds=",
    "seconds=31",
    "seconds=-1",
    "seconds=nan",
    "seconds=inf",
    "seconds=two",
    "seconds=1&seconds=2",
    "seconds=40&seconds=2",
    "seconds=2&seconds=40",
    "partial=true",
    "partial=1",
    "partial=maybe",
    "SECONDS=40",
    "seconds=%32",
    "seconds=+2",
    "seconds=1_0",
    "other=1",
    "seconds",
    "seconds=2;partial=true",
    "%73econds=40",
    "seconds=1e1",
    "seconds=1e400",
    "partial=",
    "seconds=\u0662",
)
_HEADERS: tuple[list[tuple[str, str]], ...] = (
    [],
    [("A-Key", "k")],
    [("a-key", "x" * 9)],
    [("A-Key", "")],
    [("A_Key", "k")],
    [("A-Key", "\u00e9\u00e8")],
    [("A-Key", "one"), ("A-Key", "x" * 9)],
    [("A-Key", "x" * 9), ("A-Key", "one")],
)
#: Requests to the routes below: method, query, headers and body.
ASKED: list[tuple[str, str, list[tuple[str, str]], bytes]] = [
    *(("POST", query, [], b"{}") for query in _QUERIES),
    *(("POST", "seconds=2", headers, b"") for headers in _HEADERS),
    *((method, "seconds=40", [], b"") for method in ("GET", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH")),
]


class Known:
    """A cluster that accepts any token as the same principal, and rejects requests without a token."""

    def __init__(self, scopes: Sequence[Scope]) -> None:
        async def known(bearer: str) -> Principal:
            if not bearer:
                raise errors.Unauthorized("no token was sent")
            return Principal(tenant="default", token="t1", scopes=frozenset(scopes))

        async def no_guest(_request: Request) -> None:
            return None

        self.credentials = type("Credentials", (), {"principal_by_bearer": staticmethod(known)})
        self.guests = type("Guests", (), {"principal": staticmethod(no_guest)})


async def tried(
    request: Request,
    principal: http.PrincipalDep,
    place: http.TraceContextDep,
    a_key: Annotated[str | None, Header(max_length=5)] = None,
    seconds: Annotated[float, Query(ge=0, le=30)] = 0,
    partial: bool = False,
) -> Response:
    """Return all given arguments."""
    body = (await request.body()).decode()
    return json_response(
        [principal.token, place, a_key, seconds, partial, body, request.path_params, request.url.path], 202
    )


def application(answer: Callable[..., Awaitable[Response]], *scopes: Scope, plain: bool = False) -> FastAPI:
    """Return an application with one more route. With `plain`, FastAPI answers it."""
    api = app.create(Settings(redis_url="redis://127.0.0.1:1/0"))
    api.state.coordinator = replace(api.state.coordinator, cluster=Known(scopes or (Scope.SUBMIT,)))
    router = http.router()
    router.post("/tried", dependencies=[http.require_scope(Scope.SUBMIT)])(answer)
    api.router.routes.extend(router.routes)
    layers = [layer for layer in api.user_middleware if vars(layer.cls) == vars(DirectDispatch)]
    assert len(layers) == 1
    if plain:
        api.user_middleware.remove(layers[0])
    return api


def answers(
    api: FastAPI, asked: Sequence[tuple[str, str, list[tuple[str, str]], bytes]], token: str = "t"
) -> list[Any]:
    """Return status, headers and body of each response, or the raised error."""

    async def go() -> list[Any]:
        transport, found = httpx.ASGITransport(app=api, raise_app_exceptions=False), []
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            for method, query, headers, body in asked:
                given = [*headers, *BODY.items(), *([("Authorization", f"Bearer {token}")] if token else [])]
                encoded = [(name.encode(), value.encode("latin-1")) for name, value in given]
                answer = await client.request(method, f"{PATH}?{query}", headers=encoded, content=body)
                found.append((answer.status_code, sorted(answer.headers.multi_items()), answer.content))
        return found

    return asyncio.run(go())


def both(answer: Callable[..., Awaitable[Response]], *scopes: Scope, **more: Any) -> tuple[list[Any], list[Any]]:
    """Return the responses of a route to all requests, without FastAPI and with it."""
    one, other = application(answer, *scopes), application(answer, *scopes, plain=True)
    return answers(one, ASKED, **more), answers(other, ASKED, **more)


@functools.cache
def planned() -> dict[tuple[str, str], direct_dispatch.Plan | None]:
    api = app.create(Settings(redis_url="redis://127.0.0.1:1/0"))
    return DirectDispatch(api, api.router.routes, api.exception_handlers).plans


@pytest.mark.parametrize(
    "call", [("POST", "/api/submit"), ("POST", "/api/submit-batch"), ("POST", "/api/results"), ("GET", "/health")]
)
def test_the_calls_that_come_most_often_are_answered_past_fastapi(call: tuple[str, str]) -> None:
    assert planned()[call]


def test_whatever_is_asked_is_answered_as_fastapi_answers_it() -> None:
    past, by_it = both(tried)
    assert past == by_it
    assert {202, 405} < {status for status, *_ in past}


def test_who_is_unknown_or_lacks_the_scope_hears_the_same() -> None:
    for token, scopes, status in (("", (Scope.SUBMIT,), 401), ("t", (Scope.READ,), 403)):
        past, by_it = both(tried, *scopes, token=token)
        assert past == by_it and status in {one[0] for one in past} and 202 not in {one[0] for one in past}


@pytest.fixture(scope="module")
def failing() -> Callable[[Exception], Sequence[FastAPI]]:
    """Return two applications, without FastAPI and with it, whose route raises an error."""
    raised: list[Exception] = []

    async def fails(_request: Request) -> Response:
        raise raised[-1]

    pair = application(fails), application(fails, plain=True)

    def of(error: Exception) -> Sequence[FastAPI]:
        raised.append(error)
        return pair

    return of


@pytest.mark.parametrize(
    "error",
    [
        errors.InvalidRequest("seconds: no", field="seconds"),
        errors.OverLimit("no", seconds=3),
        errors.NotFound("no"),
        errors.ClusterError("no"),
        connection.Unreachable[0]("gone"),
        connection.Unreachable[1]("late"),
        connection.Refused("MISCONF no"),
        HTTPException(418, "no", {"X-No": "1"}),
        ClientDisconnect(),
        KeyError("no"),
        ExceptionGroup("no", [errors.NotFound("no")]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_is_answered_as_fastapi_answers_it(
    error: Exception, failing: Callable[[Exception], Sequence[FastAPI]]
) -> None:
    past, by_it = (answers(api, ASKED[:2]) for api in failing(error))
    assert past == by_it and past[0][0] >= 400


def test_a_fault_is_not_hidden_from_the_log() -> None:
    async def fails(_request: Request) -> Response:
        raise KeyError("no")

    async def go() -> None:
        transport = httpx.ASGITransport(app=application(fails))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            await client.post(PATH, headers={"Authorization": "Bearer t"})

    with pytest.raises(KeyError):
        asyncio.run(go())


def test_a_dependency_is_called_once_and_before_the_route() -> None:
    called: list[str] = []

    class Counting(Known):
        def __init__(self) -> None:
            async def known(_bearer: str) -> Principal:
                called.append("principal")
                return OWNER

            self.credentials = type("Credentials", (), {"principal_by_bearer": staticmethod(known)})

    async def answer(_request: Request, principal: http.PrincipalDep, place: http.TraceContextDep) -> Response:
        called.append("route")
        return json_response({})

    api = application(answer)
    api.state.coordinator = replace(api.state.coordinator, cluster=Counting())
    assert answers(api, ASKED[:1])[0][0] == 200
    assert called == ["principal", "route"]


async def in_the_background(_request: Request, tasks: BackgroundTasks) -> Response:
    return json_response({})


async def several(_request: Request, names: Annotated[list[str] | None, Query()] = None) -> Response:
    return json_response({})


async def with_a_body(_request: Request, body: dict[str, int]) -> Response:
    return json_response({})


async def a_row(_request: Request) -> dict[str, int]:
    return {}


def in_a_thread(_request: Request) -> Response:
    return json_response({})


@pytest.mark.parametrize("answer", [in_the_background, several, with_a_body, a_row, in_a_thread])
def test_what_needs_more_is_left_to_fastapi(answer: Callable[..., Any]) -> None:
    router = http.router()
    router.post("/tried", dependencies=[http.require_scope(Scope.SUBMIT)], response_model=None)(answer)
    [route] = router.routes
    assert isinstance(route, APIRoute) and direct_dispatch.create_plan(route) is None


def test_a_path_with_parameters_is_left_to_fastapi() -> None:
    plans = planned()
    assert plans and not [path for _, path in plans if "{" in path]
