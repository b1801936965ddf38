"""Call the functions of routes without path parameters directly, without FastAPI's router and dependency injection.

For a small request, the router and the injection cost more CPU time than everything else. Routes are declared as usual.
Unsupported requests, such as requests with an invalid parameter, are passed to FastAPI, which reports the error.
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

#: Exception handlers by exception class.
Handlers: TypeAlias = Mapping[Any, Callable[[Request, Any], Any]]
#: Supported types of parameters.
_SCALARS = {str, int, float, bool, NoneType}


class Unsupported(Exception):
    """FastAPI must handle this route or request."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """Call of a dependency or of the route's function."""

    call: Callable[..., Awaitable[Any]]
    #: Name of the argument for the request, or empty if there is none.
    request: str
    #: Names of arguments, and the indexes of the steps that return their values.
    earlier: tuple[tuple[str, int], ...]
    #: Query parameters and header parameters of the function.
    query: tuple[Any, ...]
    headers: tuple[Any, ...]

    def arguments(self, request: Request) -> dict[str, Any]:
        """Return the arguments from the request. Raise Unsupported if an argument is invalid."""
        arguments: dict[str, Any] = {self.request: request} if self.request else {}
        if self.query:
            arguments |= {field.name: _read(field, request.query_params) for field in self.query}
        if self.headers:
            arguments |= {field.name: _read(field, request.headers) for field in self.headers}
        return arguments


class Plan:
    """Steps of a route in order of execution, with each dependency once.

    The constructor raises Unsupported if FastAPI must handle the route.
    """

    def __init__(self, route: APIRoute) -> None:
        self.route = route
        self._steps: list[Step] = []
        self._indexes: dict[Callable[..., Any], int] = {}
        if route.param_convertors or not _returns_response(route.endpoint):
            raise Unsupported
        self._add(route.dependant)

    def _add(self, dependant: Dependant) -> int:
        """Add a dependency after its own dependencies, unless it was added before, and return its index."""
        call = dependant.call
        if call is None or _needs_fastapi(dependant) or not _is_coroutine(call):
            raise Unsupported
        if call not in self._indexes:
            earlier = [(each.name, self._add(each)) for each in dependant.dependencies]
            self._indexes[call] = len(self._steps)
            self._steps.append(
                Step(
                    call=call,
                    request=dependant.request_param_name or "",
                    earlier=tuple((name, index) for name, index in earlier if name is not None),
                    query=_check_fields(dependant.query_params),
                    headers=_check_fields(dependant.header_params),
                )
            )
        return self._indexes[call]

    def arguments(self, request: Request) -> list[dict[str, Any]]:
        """Return the arguments of each step from the request. Raise Unsupported if an argument is invalid."""
        return [step.arguments(request) for step in self._steps]

    async def run(self, arguments: Sequence[dict[str, Any]]) -> Response:
        """Run the steps and return the response of the last one."""
        results: list[Any] = []
        for step, step_arguments in zip(self._steps, arguments, strict=True):
            for name, index in step.earlier:
                step_arguments[name] = results[index]
            results.append(await step.call(**step_arguments))
        response: Response = results[-1]
        return response


class DirectDispatch:
    """ASGI middleware in front of FastAPI. Handles requests to routes that have a plan, and passes on all others."""

    def __init__(self, app: ASGIApp, routes: Iterable[BaseRoute], handlers: Handlers) -> None:
        self._app = app
        self._handlers = handlers
        self.plans: dict[tuple[str, str], Plan | None] = {}
        for route in routes:
            if isinstance(route, APIRoute) and not route.param_convertors:
                for method in route.methods or ():
                    self.plans.setdefault((method, route.path), create_plan(route))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        plan = self.plans.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if plan is None or scope.get("root_path"):
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive, send)
        try:
            arguments = plan.arguments(request)
        except Unsupported:
            await self._app(scope, receive, send)
            return
        scope.update({"route": plan.route, "endpoint": plan.route.endpoint, "path_params": {}})
        response = await self._run(request, plan, arguments)
        try:
            await response(scope, receive, send)
        except Exception as error:
            if self._handler(error) is None:
                raise
            raise RuntimeError("the response failed after it had started") from error

    async def _run(self, request: Request, plan: Plan, arguments: Sequence[dict[str, Any]]) -> Response:
        try:
            return await plan.run(arguments)
        except Exception as error:
            handler = self._handler(error)
            if handler is None:
                raise
            response: Response = await handler(request, error)
            # Errors from threads form reference cycles with their frames, which would keep the body in memory.
            traceback.clear_frames(error.__traceback__)
            return response

    def _handler(self, error: Exception) -> Callable[[Request, Any], Any] | None:
        """Return the handler of an expected error, or None. The outermost layer handles and logs unexpected errors."""
        known = (kind for kind in type(error).__mro__ if kind in self._handlers)
        kind = next(known, Exception)
        return None if kind is Exception else self._handlers[kind]


def create_plan(route: APIRoute) -> Plan | None:
    """Return the plan of a route, or None if FastAPI must handle it."""
    try:
        return Plan(route)
    except Unsupported:
        return None


def _returns_response(endpoint: Callable[..., Any]) -> bool:
    result = get_type_hints(endpoint).get("return")
    return isinstance(result, type) and issubclass(result, Response)


def _needs_fastapi(dependant: Dependant) -> bool:
    """Return True if the dependency uses a feature that a step does not support."""
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


def _check_fields(fields: Sequence[Any]) -> tuple[Any, ...]:
    """Return the fields. Raise Unsupported unless each has a scalar type and a single name."""
    for field in fields:
        kind = field.field_info.annotation
        if not _SCALARS.issuperset(get_args(kind) or (kind,)) or field.validation_alias not in (None, field.alias):
            raise Unsupported
    return tuple(fields)


def _read(field: Any, parameters: Mapping[str, str]) -> Any:
    """Return the value of a field or its default. Raise Unsupported if the value is missing or invalid."""
    raw = parameters.get(field.alias)
    if raw is None:
        if field.field_info.is_required():
            raise Unsupported
        return field.get_default()
    value, errors = field.validate(raw)
    if errors:
        raise Unsupported
    return value
