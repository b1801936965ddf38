"""Requests of paths without parameters: answered by their routes' functions, past FastAPI's router and its solving of
dependencies, which cost more than all else that a small request needs.

Routes are declared and described as all others. What is unusual, such as a parameter that is not valid, is left to
FastAPI, which says what is wrong with it.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, TypeAlias, get_args, get_type_hints

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.responses import Response
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

#: What answers an error of a kind.
Handlers: TypeAlias = Mapping[Any, Callable[[Request, Any], Any]]
#: Types of parameters that are read here.
_SCALARS = {str, int, float, bool, NoneType}


class Unusual(Exception):
    """The route, or the request, has something that is FastAPI's to handle."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """Call of a dependency, or of the route's function, with what earlier steps returned and what the request gives."""

    call: Callable[..., Awaitable[Any]]
    #: Name of the argument that is the request; empty for none.
    request: str
    #: Names of arguments, and the places of the steps that return them.
    earlier: tuple[tuple[str, int], ...]
    #: Fields of the query, and of the headers.
    query: tuple[Any, ...]
    headers: tuple[Any, ...]

    def given(self, request: Request) -> dict[str, Any]:
        """Return the arguments that the request gives. Unusual where one is not valid."""
        arguments: dict[str, Any] = {self.request: request} if self.request else {}
        if self.query:
            arguments |= {field.name: _read(field, request.query_params) for field in self.query}
        if self.headers:
            arguments |= {field.name: _read(field, request.headers) for field in self.headers}
        return arguments


class Plan:
    """Steps of a route in their order, each dependency once. Unusual for a route that needs more than steps."""

    def __init__(self, route: APIRoute) -> None:
        self.route = route
        self._steps: list[Step] = []
        self._places: dict[Callable[..., Any], int] = {}
        if route.param_convertors or not _makes_response(route.endpoint):
            raise Unusual
        self._add(route.dependant)

    def _add(self, dependant: Dependant) -> int:
        """Add a dependency after those of its own, where it is not there yet, and return its place."""
        call = dependant.call
        if call is None or _needs_more(dependant) or not _is_coroutine(call):
            raise Unusual
        if call not in self._places:
            earlier = [(each.name, self._add(each)) for each in dependant.dependencies]
            self._places[call] = len(self._steps)
            self._steps.append(
                Step(
                    call=call,
                    request=dependant.request_param_name or "",
                    earlier=tuple((name, place) for name, place in earlier if name is not None),
                    query=_plain(dependant.query_params),
                    headers=_plain(dependant.header_params),
                )
            )
        return self._places[call]

    def given(self, request: Request) -> list[dict[str, Any]]:
        """Return what the request gives to each step. Unusual where something is not valid."""
        return [step.given(request) for step in self._steps]

    async def answer(self, given: Sequence[dict[str, Any]]) -> Response:
        """Make the steps, of which the last one answers; errors are theirs."""
        returned: list[Any] = []
        for step, arguments in zip(self._steps, given, strict=True):
            for name, place in step.earlier:
                arguments[name] = returned[place]
            returned.append(await step.call(**arguments))
        answer: Response = returned[-1]
        return answer


class Direct:
    """ASGI layer before FastAPI's own: answers by plans, and passes other requests on untouched."""

    def __init__(self, app: ASGIApp, routes: Iterable[BaseRoute], handlers: Handlers) -> None:
        self._app = app
        self._handlers = handlers
        self.plans: dict[tuple[str, str], Plan | None] = {}
        for route in routes:
            if isinstance(route, APIRoute) and not route.param_convertors:
                for method in route.methods or ():
                    self.plans.setdefault((method, route.path), plan(route))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self.plans.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if found is None or scope.get("root_path"):
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive, send)
        try:
            given = found.given(request)
        except Unusual:
            await self._app(scope, receive, send)
            return
        scope.update({"route": found.route, "endpoint": found.route.endpoint, "path_params": {}})
        response = await self._answered(request, found, given)
        try:
            await response(scope, receive, send)
        except Exception as error:
            if self._handler(error) is None:
                raise
            raise RuntimeError("an answer that had begun failed") from error

    async def _answered(self, request: Request, found: Plan, given: Sequence[dict[str, Any]]) -> Response:
        try:
            return await found.answer(given)
        except Exception as error:
            handler = self._handler(error)
            if handler is None:
                raise
            answer: Response = await handler(request, error)
            # Errors of threads are in circles with the frames that they passed, which hold the body.
            traceback.clear_frames(error.__traceback__)
            return answer

    def _handler(self, error: Exception) -> Callable[[Request, Any], Any] | None:
        """Return what answers an error; None for a fault, which the outermost layer answers and logs."""
        known = (kind for kind in type(error).__mro__ if kind in self._handlers)
        kind = next(known, Exception)
        return None if kind is Exception else self._handlers[kind]


def plan(route: APIRoute) -> Plan | None:
    """Return the plan of a route; None for one that is FastAPI's."""
    try:
        return Plan(route)
    except Unusual:
        return None


def _makes_response(endpoint: Callable[..., Any]) -> bool:
    made = get_type_hints(endpoint).get("return")
    return isinstance(made, type) and issubclass(made, Response)


def _needs_more(dependant: Dependant) -> bool:
    """Return True for a dependency that needs what a step has not."""
    return bool(
        dependant.path_params
        or dependant.cookie_params
        or dependant.body_params
        or dependant.own_oauth_scopes
        or dependant.websocket_param_name
        or dependant.http_connection_param_name
        or dependant.response_param_name
        or dependant.background_tasks_param_name
        or dependant.security_scopes_param_name
        or dependant.concurrency
        or not dependant.use_cache
    )


def _is_coroutine(call: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(getattr(call, "__call__", None))  # noqa: B004


def _plain(fields: Sequence[Any]) -> tuple[Any, ...]:
    """Return fields that have one value and one name. Unusual for others."""
    for field in fields:
        kind = field.field_info.annotation
        if not _SCALARS.issuperset(get_args(kind) or (kind,)) or field.validation_alias not in (None, field.alias):
            raise Unusual
    return tuple(fields)


def _read(field: Any, given: Mapping[str, str]) -> Any:
    """Return the valid value of a field, or its default. Unusual for any other."""
    raw = given.get(field.alias)
    if raw is None:
        if field.field_info.is_required():
            raise Unusual
        return field.get_default()
    value, errors = field.validate(raw)
    if errors:
        raise Unusual
    return value
