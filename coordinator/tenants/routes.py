"""Routes of tenants: who shares the cluster, by which weight and within which caps."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from coordinator.access.principal import Scope
from coordinator.server import bodies, http
from coordinator.server.http import json_response
from jobs import errors
from jobs.hosts import labels
from jobs.kinds import registry
from jobs.store.tenancy.tenants import MAX_BYTES, MAX_CAP, MAX_GPU_SECONDS, MAX_UNITS, MAX_WEIGHT, NAME, Tenant
from threads_protocol.answers import tenants as answers
from threads_protocol.numbers import short

routes = http.router(tag="tenants")

_ADMIN = [http.require_scope(Scope.ADMIN)]
Name = Annotated[str, Path(pattern=NAME, description="A tenant's name.")]
#: Why a tenant is not deleted, by the store's answer.
_KEPT = {
    "default": "the tenant default cannot be deleted: it owns the jobs of everybody without another tenant",
    "busy": "jobs of tenant {tenant} wait or run; cancel them first",
    "workflows": "tenant {tenant} has workflows; delete them first: cluster workflow list",
    "tokens": "tokens of tenant {tenant} count, and would have no caps without it; revoke them first:"
    " cluster token list",
    "artifacts": "tenant {tenant} has artifacts; delete them first with a token of it: cluster artifact list",
}


class Shares(BaseModel):
    """Weight and caps of a tenant; what is left out has its default."""

    model_config = ConfigDict(extra="forbid", strict=True)
    weight: int = Field(1, ge=1, le=MAX_WEIGHT, description="Its share of the lanes, relative to other tenants'.")
    max_lanes: int | None = Field(
        None, ge=1, le=MAX_CAP, description="Most lanes that compute its jobs at once; null: any number."
    )
    max_jobs: int | None = Field(
        None, ge=1, le=MAX_CAP, description="Most of its jobs that wait or run at once; null: any number."
    )
    max_units: dict[str, Annotated[int, Field(ge=1, le=MAX_UNITS)]] = Field(
        default_factory=dict,
        max_length=64,
        description="Most units that are computed for it on one day (UTC), by kind; of other kinds any number.",
    )
    max_gpu_seconds: int | None = Field(
        None, ge=1, le=MAX_GPU_SECONDS, description="Most seconds of GPUs that it uses on one day; null: any number."
    )
    max_stored_bytes: int | None = Field(
        None,
        ge=1,
        le=MAX_BYTES,
        description="Most bytes that are stored of its jobs, artifacts and workflows; null: any number.",
    )
    requires: list[Annotated[str, Field(pattern=labels.PATTERN)]] | None = Field(
        None,
        max_length=labels.MOST,
        description="Labels that a host must have, all of them, to compute its jobs; empty: any host may. null, or left"
        " out: as it was, so that who knows nothing of labels takes none away.",
    )


@routes.get("/tenants", **http.describe_response(answers.Tenants))
def list_tenants(cluster: http.ClusterDep, principal: http.PrincipalDep) -> Response:
    """Tenants with their weights, caps and use: all of them for an admin, else one's own."""
    return json_response({"tenants": cluster.queries.tenants.all(principal)})


@routes.get("/tenants/{tenant}", **http.describe_response(answers.Tenant))
def get_tenant(tenant: Name, cluster: http.ClusterDep, principal: http.PrincipalDep) -> Response:
    """One tenant; 404 for another's, unless one is an admin."""
    return json_response(cluster.queries.tenants.one(principal, tenant))


@routes.put("/tenants/{tenant}", dependencies=_ADMIN, **http.describe_response(answers.Tenant, body=Shares))
async def put_tenant(
    request: Request, tenant: Name, cluster: http.ClusterDep, principal: http.PrincipalDep
) -> Response:
    """Register a tenant, or change its weight, caps and required labels. What is admitted already stays."""
    asked: Shares = http.parse(Shares, await bodies.read_json(request, empty={}))
    for kind in asked.max_units:
        _require_kind(kind)
    shares = Tenant(
        name=tenant,
        weight=asked.weight,
        max_lanes=asked.max_lanes or 0,
        max_jobs=asked.max_jobs or 0,
        max_units=asked.max_units,
        max_gpu_seconds=asked.max_gpu_seconds or 0,
        max_stored_bytes=asked.max_stored_bytes or 0,
        requires=None if asked.requires is None else frozenset(asked.requires),
    )
    await run_in_threadpool(cluster.store.tenants.put, shares, principal.actor)
    return json_response(await run_in_threadpool(cluster.queries.tenants.one, principal, tenant))


def _require_kind(kind: str) -> None:
    if kind not in registry.names():
        have = ", ".join(registry.names())
        raise errors.InvalidRequest(f"max_units: no kind {short(kind)}; there are {have}", field="max_units")


@routes.delete("/tenants/{tenant}", status_code=204, dependencies=_ADMIN)
def delete_tenant(tenant: Name, cluster: http.ClusterDep, principal: http.PrincipalDep) -> Response:
    """Forget a tenant; 409 while jobs of it wait or run, tokens of it count, or it has artifacts. `default` stays."""
    answer = cluster.store.tenants.remove(tenant, principal.actor)
    if answer == "missing":
        raise errors.missing("tenant", tenant, "tenant")
    if answer in _KEPT:
        raise errors.Conflict(_KEPT[answer].format(tenant=tenant), field="tenant")
    return Response(status_code=204)
