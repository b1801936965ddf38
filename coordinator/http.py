"""What all routes share: who asks, what is answered, and bodies as models, refused in our words."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ValidationError

from coordinator.cluster import Cluster
from coordinator.jobs import submissions
from coordinator.schemas import Problem
from jobs import errors
from jobs.numbers import short

MAX_WAIT_SECONDS = 30.0

JobId = Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{1,64}$", description="A job's id.")]
Wait = Annotated[float, Query(ge=0, le=MAX_WAIT_SECONDS, description="Seconds to wait for the job's end.")]


# Coroutines, though they wait for nothing: FastAPI gives any other dependency a thread for each request.
async def _cluster(request: Request) -> Cluster:
    cluster: Cluster = request.app.state.cluster
    return cluster


_bearer = HTTPBearer(auto_error=False, description="CLUSTER_TOKEN, where the cluster has one")


The = Annotated[Cluster, Depends(_cluster)]


async def _owner(cluster: The, given: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]) -> str:
    """Who submits; with CLUSTER_TOKEN set, only who knows it."""
    return cluster.owner(given.credentials if given else "")


Owner = Annotated[str, Depends(_owner)]


_PROBLEMS: dict[int | str, dict[str, Any]] = {
    code: {"description": text, "content": {"application/problem+json": {"schema": Problem.model_json_schema()}}}
    for code, text in (("4XX", "What was asked cannot be done"), ("5XX", "It cannot be done now"))
}


def open_router() -> APIRouter:
    """For what everybody may ask."""
    return APIRouter(responses=_PROBLEMS)


def router() -> APIRouter:
    """For the API: with CLUSTER_TOKEN set, only for who knows it."""
    return APIRouter(prefix="/api", dependencies=[Depends(_owner)], responses=_PROBLEMS)


def answers(model: type[BaseModel], status: int = 200, **more: Any) -> dict[str, Any]:
    """Of a route whose answer is this model's: described, and neither validated nor copied on its way out."""
    return {"response_model": None, "responses": {status: {"model": model}, **more}}


def shown(body: Any, status: int = 200) -> Response:
    """JSON as it is. A route that is called often calls this in its thread."""
    return Response(json.dumps(body, ensure_ascii=False, separators=(",", ":")), status, media_type="application/json")


def describes(model: type[BaseModel]) -> dict[str, Any]:
    """For OpenAPI: the body that a route reads by hand."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": model.model_json_schema()}}}}


def parsed(model: type[Any], body: Any) -> Any:
    if not isinstance(body, dict):
        raise errors.InvalidRequest(f"the body must be an object; got {short(body)}", field="body")
    try:
        return model.model_validate(submissions.bounded(body, model))
    except ValidationError as error:
        raise submissions.problems(error, model) from None


def problem(error: errors.ClusterError) -> dict[str, Any]:
    """RFC 9457: what, why and which field."""
    kind = type(error)
    body = {"type": f"urn:threads-cluster:{kind.__name__}", "title": kind.title(), "status": kind.status}
    told = {**body, "detail": error.detail}
    return {**told, "field": error.field} if error.field else told


def refused(error: errors.ClusterError) -> Response:
    """The answer that says so."""
    extra = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "1"}}.get(error.status)
    return Response(json.dumps(problem(error)), error.status, extra, "application/problem+json")
