"""Shared parts of all routes: dependencies, JSON responses, body models, and error responses."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response, params
from fastapi.openapi.models import HTTPBearer as HTTPBearerModel
from fastapi.responses import StreamingResponse
from fastapi.routing import APIRoute
from fastapi.security.base import SecurityBase
from fastapi.security.utils import get_authorization_scheme_param
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from coordinator.access import cookies
from coordinator.access.principal import Principal, Scope
from coordinator.cluster import Cluster
from coordinator.jobs import submissions
from coordinator.server import description, patterns, program_versions
from coordinator.services.gateway.openai import PREFIX
from coordinator.state import shared_state
from coordinator.tracing import TraceContext
from jobs import errors
from jobs.store.tenancy import tenants
from jobs.store.work.job_reads import ResultText
from threads_protocol.answers.fields import Problem

MAX_WAIT_SECONDS = 30.0
#: Lowest HTTP status code of an error.
FIRST_ERROR = 400

Wait = Annotated[float, Query(ge=0, le=MAX_WAIT_SECONDS, description="Seconds to wait for the job's end.")]


# The dependencies are coroutines because FastAPI would run plain functions in a thread.
async def _cluster(request: Request) -> Cluster:
    cluster: Cluster = shared_state(request).cluster
    return cluster


ClusterDep = Annotated[Cluster, Depends(_cluster)]


class _Identity(SecurityBase):
    """Dependency that authenticates the request. OpenAPI describes it as a bearer token.

    It has no dependencies itself, because FastAPI would resolve them again for every use.
    """

    def __init__(self) -> None:
        self.model = HTTPBearerModel(description="CLUSTER_TOKEN or an API token, if the cluster requires one")
        self.scheme_name = "HTTPBearer"

    async def __call__(self, request: Request) -> Principal:
        """Return the principal of a bearer token, or else of a session cookie with its CSRF token, or else the guest.

        Raise Unauthorized if the token is unknown, or if the cluster requires a token and the request has none.
        """
        program_versions.require_compatible(request.headers.get("User-Agent", ""))
        cluster: Cluster = shared_state(request).cluster
        scheme, parameter = get_authorization_scheme_param(request.headers.get("Authorization"))
        bearer: str = (scheme.lower() == "bearer" and parameter) or _api_key(request)
        if not bearer and (cookie := cookies.read(request)):
            principal = await cluster.credentials.principal_by_cookie(
                cookie, request.headers.get(cookies.CSRF_HEADER, "")
            )
            if principal is not None:
                cookies.check_origin(request)
                return principal
        if not bearer and (guest := await cluster.guests.principal(request)) is not None:
            return guest
        return await cluster.credentials.principal_by_bearer(bearer)


def _api_key(request: Request) -> str:
    """Return the token in the header that Anthropic's clients use. The header is accepted only under /v1."""
    return request.headers.get("X-Api-Key", "") if request.scope["path"].startswith(f"{PREFIX}/") else ""


_identity = _Identity()
PrincipalDep = Annotated[Principal, Depends(_identity)]


async def visible_job(
    cluster: ClusterDep,
    principal: PrincipalDep,
    job_id: Annotated[str, Path(pattern=patterns.JOB_ID, description="Job ID.")],
) -> str:
    """Return the job ID. Raise NotFound if the job does not exist or belongs to another tenant."""
    if principal.only_tenant is not None:
        await run_in_threadpool(cluster.queries.jobs.require_visible, job_id, principal.only_tenant)
    return job_id


JobId = Annotated[str, Depends(visible_job)]


async def _trace_context(
    request: Request,
    traceparent: Annotated[
        str | None,
        Header(description="W3C Trace Context of the caller. An invalid value is ignored."),
    ] = None,
    tracestate: Annotated[
        str | None, Header(description="Vendor-specific trace data of W3C Trace Context, passed on unchanged.")
    ] = None,
) -> TraceContext | None:
    trace: TraceContext | None = request.scope.get("state", {}).get("trace")
    return trace


#: Trace context of a request that submits jobs. The middleware in telemetry/request_spans.py parses the headers.
TraceContextDep = Annotated[TraceContext | None, Depends(_trace_context)]


async def _owner(
    principal: PrincipalDep,
    tenant: Annotated[
        str | None,
        Query(pattern=tenants.NAME, description="Tenant; default: your own. Another tenant needs the scope admin."),
    ] = None,
) -> str:
    """Return the tenant of the request. Raise Forbidden for another tenant without the scope admin."""
    if tenant not in (None, principal.tenant):
        principal.require(Scope.ADMIN)
    return tenant or principal.tenant


Owner = Annotated[str, Depends(_owner)]


class RequiredScopes:
    """Dependency that raises Forbidden unless the principal has one of the required scopes."""

    def __init__(self, *scopes: Scope) -> None:
        self.scopes = scopes

    async def __call__(self, request: Request, principal: PrincipalDep) -> None:
        """Check the principal's scopes, and store its actor for the statistics of denied requests."""
        request.state.actor = principal.actor
        principal.require(*self.scopes)


def require_scope(*scopes: Scope) -> params.Depends:
    """Return a dependency that requires one of these scopes. Without scopes, any principal is allowed."""
    return params.Depends(RequiredScopes(*scopes))


class ScopedRoute(APIRoute):
    """Route that declares its scope with `require_scope`. A GET route without it requires Scope.READ.

    Its response models are built when OpenAPI needs them, because they would take half of a coordinator's start.
    """

    def __init__(
        self,
        path: str,
        endpoint: Callable[..., Any],
        *,
        dependencies: Sequence[params.Depends] | None = None,
        methods: set[str] | list[str] | None = None,
        responses: Mapping[int | str, Mapping[str, Any]] | None = None,
        **options: Any,
    ) -> None:
        route_dependencies = list(dependencies or ())
        if not any(isinstance(each.dependency, RequiredScopes) for each in route_dependencies):
            if not {"GET", "HEAD"}.issuperset(methods or {"GET"}):
                raise TypeError(f"{path} changes data and must declare a scope: dependencies=[http.require_scope(...)]")
            route_dependencies.append(require_scope(Scope.READ))
        super().__init__(path, endpoint, dependencies=route_dependencies, methods=methods, **options)
        self.responses = {status: dict(response) for status, response in (responses or {}).items()}
        del self.response_fields

    @cached_property
    def response_fields(self) -> dict[int | str, Any]:  # type: ignore[override]
        """Return the fields of the responses that have a model, by status."""
        described = APIRoute(self.path, self.endpoint, operation_id=self.unique_id, responses=self.responses)
        return described.response_fields


def describe_problem(model: Any) -> dict[str, Any]:
    """Return the OpenAPI description of an error response."""
    return {"application/problem+json": {"schema": description.refer(model, "serialization")}}


_PROBLEMS: dict[int | str, dict[str, Any]] = {
    code: {"description": text, "content": describe_problem(Problem)}
    for code, text in (("4XX", "The request cannot be fulfilled"), ("5XX", "The request cannot be fulfilled now"))
}


def _operation_id(route: APIRoute) -> str:
    """Return the name of an operation, which is also its name in generated clients."""
    return f"worker_{route.name}" if "worker" in route.tags else route.name


def open_router() -> APIRouter:
    """Return a router for routes without authentication."""
    return APIRouter(responses=_PROBLEMS, generate_unique_id_function=_operation_id)


def router(prefix: str = "/api", *, tag: str = "", scope: Scope | None = None) -> APIRouter:
    """Return a router that authenticates every request and checks the scopes of each route.

    `tag` and `scope` apply to all of its routes.
    """
    dependencies = [Depends(_identity), *([require_scope(scope)] if scope else ())]
    return APIRouter(
        prefix=prefix,
        tags=[tag] if tag else [],
        dependencies=dependencies,
        responses=_PROBLEMS,
        route_class=ScopedRoute,
        generate_unique_id_function=_operation_id,
    )


async def wait_for_end(cluster: Cluster, job_id: str, seconds: float, *, just_seen: bool = False) -> None:
    """Wait until a job has ended or was deleted, for at most `seconds`.

    Set `just_seen` if this replica has just submitted the job, or has just read that it has not ended.
    """
    if seconds:
        await cluster.hub.ends.wait(
            [job_id], lambda: cluster.queries.jobs.states([job_id]), seconds, just_seen=just_seen
        )


def send_result(result: ResultText, head: bytes = b"", end: bytes = b"", status: int = 200) -> Response:
    """Return a JSON response of `head`, the result and `end`. A long result is streamed from Redis in pieces."""
    if not result.is_long:
        return Response(head + result.whole() + end, status, media_type="application/json")
    length = str(len(head) + result.length + len(end))
    pieces = itertools.chain([head], result.pieces(), [end])
    return StreamingResponse(filter(None, pieces), status, {"Content-Length": length}, "application/json")


def describe_response(
    model: type[Any],
    status: int = 200,
    *,
    body: type[BaseModel] | None = None,
    others: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return keyword arguments that describe a route's response in OpenAPI. FastAPI does not validate the response.

    `body` is the model of the body if the route parses it itself. `others` describes other responses by status.
    """
    extra = {"openapi_extra": describe_body(body)} if body else {}
    return {
        "response_model": None,
        "status_code": status,
        "responses": {status: {"model": model}, **(others or {})},
        **extra,
    }


def json_response(body: Any, status: int = 200) -> Response:
    """Return a JSON response without validation. Frequently used routes should call this in a thread."""
    return Response(json.dumps(body, ensure_ascii=False, separators=(",", ":")), status, media_type="application/json")


def describe_body(model: type[BaseModel]) -> dict[str, Any]:
    """Return the OpenAPI description of a body that a route parses itself."""
    schema = description.refer(model, "validation")
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def parse(model: type[Any], body: Any) -> Any:
    """Validate a body and return an instance of the model. Raise InvalidRequest that names the invalid field."""
    return submissions.validate(model, body)


def serialize_problem(error: errors.ClusterError) -> dict[str, Any]:
    """Return an error as a problem of RFC 9457: type, title, status, detail and field."""
    kind = type(error)
    body = {"type": f"urn:threads-cluster:{kind.__name__}", "title": kind.title(), "status": kind.status}
    problem = {**body, "detail": error.detail, **error.extra}
    return {**problem, "field": error.field} if error.field else problem


def problem_response(error: errors.ClusterError) -> Response:
    """Return the HTTP response for an error."""
    extra = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "1"}}.get(error.status)
    if isinstance(error, errors.OverLimit):
        extra = {"Retry-After": str(error.seconds)}
    return Response(json.dumps(serialize_problem(error)), error.status, extra, "application/problem+json")
