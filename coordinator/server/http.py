"""Parts that all routes share: dependencies, answers as JSON, bodies as models, errors as problems."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response, params
from fastapi.openapi.models import HTTPBearer as HTTPBearerModel
from fastapi.responses import StreamingResponse
from fastapi.routing import APIRoute
from fastapi.security.base import SecurityBase
from fastapi.security.utils import get_authorization_scheme_param
from pydantic import BaseModel, TypeAdapter
from starlette.concurrency import run_in_threadpool

from coordinator.access import cookies
from coordinator.access.principal import Principal, Scope
from coordinator.cluster import Cluster
from coordinator.jobs import submissions
from coordinator.server import patterns
from coordinator.services.gateway.openai import PREFIX
from coordinator.state import shared_state
from coordinator.tracing import Place
from jobs import errors
from jobs.store.tenancy import tenants
from jobs.store.work.job_reads import ResultText
from threads_protocol.answers.fields import Problem

MAX_WAIT_SECONDS = 30.0
#: Statuses from here on are errors.
FIRST_ERROR = 400

Wait = Annotated[float, Query(ge=0, le=MAX_WAIT_SECONDS, description="Seconds to wait for the job's end.")]


# Coroutines, though they wait for nothing: FastAPI gives any other dependency a thread for each request.
async def _cluster(request: Request) -> Cluster:
    cluster: Cluster = shared_state(request).cluster
    return cluster


ClusterDep = Annotated[Cluster, Depends(_cluster)]


class _Identity(SecurityBase):
    """Dependency that says who asks; OpenAPI describes it as a bearer token.

    It has no dependencies of its own: FastAPI goes through those again wherever a route depends on it.
    """

    def __init__(self) -> None:
        self.model = HTTPBearerModel(description="CLUSTER_TOKEN or an API token, where the cluster needs one")
        self.scheme_name = "HTTPBearer"

    async def __call__(self, request: Request) -> Principal:
        """Return who asks, by a bearer token, else by a session's cookie and its CSRF token.

        Unauthorized without them, where a token is needed, and with an unknown token.
        """
        cluster: Cluster = shared_state(request).cluster
        scheme, given = get_authorization_scheme_param(request.headers.get("Authorization"))
        bearer: str = (scheme.lower() == "bearer" and given) or _key(request)
        if not bearer and (cookie := cookies.read(request)):
            principal = await cluster.credentials.principal_by_cookie(
                cookie, request.headers.get(cookies.CSRF_HEADER, "")
            )
            if principal is not None:
                cookies.check_origin(request)
                return principal
        return await cluster.credentials.principal(bearer)


def _key(request: Request) -> str:
    """Return the token as Anthropic's clients send it, below /v1."""
    return request.headers.get("X-Api-Key", "") if request.scope["path"].startswith(f"{PREFIX}/") else ""


_identity = _Identity()
PrincipalDep = Annotated[Principal, Depends(_identity)]


async def visible_job(
    cluster: ClusterDep,
    principal: PrincipalDep,
    job_id: Annotated[str, Path(pattern=patterns.JOB_ID, description="A job's id.")],
) -> str:
    """Return the id of a job that the principal sees; NotFound for another tenant's, as for one that does not exist."""
    if principal.only_tenant is not None:
        await run_in_threadpool(cluster.queries.jobs.require_visible, job_id, principal.only_tenant)
    return job_id


JobId = Annotated[str, Depends(visible_job)]


async def _place(
    request: Request,
    traceparent: Annotated[
        str | None,
        Header(description="The caller's place in a trace, as W3C Trace Context has it; one that is none is ignored."),
    ] = None,
    tracestate: Annotated[str | None, Header(description="What vendors add to it, handed on as it came.")] = None,
) -> Place | None:
    place: Place | None = request.scope.get("state", {}).get("place")
    return place


#: Where in a trace a request submits something; the layer in telemetry/request_spans.py reads the header.
PlaceDep = Annotated[Place | None, Depends(_place)]


async def _owner(
    principal: PrincipalDep,
    tenant: Annotated[
        str | None, Query(pattern=tenants.NAME, description="Another tenant than one's own; needs the scope admin.")
    ] = None,
) -> str:
    """Return the tenant whose things are asked for. Forbidden for another's, without the scope admin."""
    if tenant not in (None, principal.tenant):
        principal.require(Scope.ADMIN)
    return tenant or principal.tenant


Owner = Annotated[str, Depends(_owner)]


class Needs:
    """Dependency that raises Forbidden unless the principal has one of these scopes."""

    def __init__(self, *scopes: Scope) -> None:
        self.scopes = scopes

    async def __call__(self, request: Request, principal: PrincipalDep) -> None:
        """Check the principal of one request, and note it for the count of denied calls."""
        request.state.actor = principal.actor
        principal.require(*self.scopes)


def needs(*scopes: Scope) -> params.Depends:
    """Return the dependency with which a route declares its scope: any one of these; none: whoever is known."""
    return params.Depends(Needs(*scopes))


class ScopedRoute(APIRoute):
    """Route that declares its scope with `needs`. One that only reads needs Scope.READ where it says nothing."""

    def __init__(
        self,
        path: str,
        endpoint: Callable[..., Any],
        *,
        dependencies: Sequence[params.Depends] | None = None,
        methods: set[str] | list[str] | None = None,
        **more: Any,
    ) -> None:
        given = list(dependencies or ())
        if not any(isinstance(one.dependency, Needs) for one in given):
            if not {"GET", "HEAD"}.issuperset(methods or {"GET"}):
                raise TypeError(f"{path} changes something and declares no scope: dependencies=[http.needs(...)]")
            given.append(needs(Scope.READ))
        super().__init__(path, endpoint, dependencies=given, methods=methods, **more)


def problem_as(shape: Any) -> dict[str, Any]:
    """Return OpenAPI's description of a refusal."""
    return {"application/problem+json": {"schema": TypeAdapter(shape).json_schema(mode="serialization")}}


_PROBLEMS: dict[int | str, dict[str, Any]] = {
    code: {"description": text, "content": problem_as(Problem)}
    for code, text in (("4XX", "What was asked cannot be done"), ("5XX", "It cannot be done now"))
}


def open_router() -> APIRouter:
    """Return a router for what everybody may ask, token or none."""
    return APIRouter(responses=_PROBLEMS)


def router(prefix: str = "/api", *, tag: str = "", scope: Scope | None = None) -> APIRouter:
    """Return a router: it answers only those whom the cluster knows, and each route those with its scope.

    `tag`, `scope`: of all its routes.
    """
    dependencies = [Depends(_identity), *([needs(scope)] if scope else ())]
    return APIRouter(
        prefix=prefix,
        tags=[tag] if tag else [],
        dependencies=dependencies,
        responses=_PROBLEMS,
        route_class=ScopedRoute,
    )


async def wait_for_end(cluster: Cluster, job_id: str, seconds: float, *, just_seen: bool = False) -> None:
    """Return when the job has ended, or is gone, or after `seconds`.

    `just_seen`: this replica has just written it, or read that it has not ended.
    """
    if seconds:
        await cluster.hub.ends.wait(
            [job_id], lambda: cluster.queries.jobs.states([job_id]), seconds, just_seen=just_seen
        )


def send_result(result: ResultText, head: bytes = b"", end: bytes = b"", status: int = 200) -> Response:
    """Return a result as JSON, with text around it. Send a long result in pieces, as they arrive from Redis."""
    if not result.is_long:
        return Response(head + result.whole() + end, status, media_type="application/json")
    length = str(len(head) + result.length + len(end))
    pieces = itertools.chain([head], result.pieces(), [end])
    return StreamingResponse(filter(None, pieces), status, {"Content-Length": length}, "application/json")


def answers(
    model: type[Any],
    status: int = 200,
    *,
    takes: type[BaseModel] | None = None,
    others: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the arguments of a route that answers with this model: described, and not validated on its way out.

    `takes`: the body that the route reads by hand. `others`: descriptions of further answers by their status.
    """
    form = {"openapi_extra": describes(takes)} if takes else {}
    return {
        "response_model": None,
        "status_code": status,
        "responses": {status: {"model": model}, **(others or {})},
        **form,
    }


def shown(body: Any, status: int = 200) -> Response:
    """Return JSON as it is. A route that is called often calls this in its thread."""
    return Response(json.dumps(body, ensure_ascii=False, separators=(",", ":")), status, media_type="application/json")


def describes(model: type[BaseModel]) -> dict[str, Any]:
    """Return OpenAPI's description of a body that a route reads by hand."""
    schema = model.model_json_schema()
    whole = _inlined(schema, schema.pop("$defs", {}))
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": whole}}}}


def _inlined(schema: Any, parts: dict[str, Any]) -> Any:
    """Return a schema with its parts in the place of references to them, which name no place in the description."""
    if isinstance(schema, list):
        return [_inlined(one, parts) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(parts[schema["$ref"].rpartition("/")[2]], parts)
    return {name: _inlined(value, parts) for name, value in schema.items()}


def parsed(model: type[Any], body: Any) -> Any:
    """Return the body as this model; InvalidRequest naming the field."""
    return submissions.validated(model, body)


def problem(error: errors.ClusterError) -> dict[str, Any]:
    """Return an error as RFC 9457 has it: what, why and which field."""
    kind = type(error)
    body = {"type": f"urn:threads-cluster:{kind.__name__}", "title": kind.title(), "status": kind.status}
    problem = {**body, "detail": error.detail, **error.extra}
    return {**problem, "field": error.field} if error.field else problem


def refused(error: errors.ClusterError) -> Response:
    """Return the answer to a request that ended in this error."""
    extra = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "1"}}.get(error.status)
    if isinstance(error, errors.OverLimit):
        extra = {"Retry-After": str(error.seconds)}
    return Response(json.dumps(problem(error)), error.status, extra, "application/problem+json")
