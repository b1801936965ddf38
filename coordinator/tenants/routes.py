"""Routes for tenants, their weights and caps."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from coordinator.access.principal import GUEST_TENANT, Scope
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
Name = Annotated[str, Path(pattern=NAME, description="Tenant name.")]
#: Error messages for tenants that cannot be deleted, by the result of the store.
_CONFLICTS = {
    "default": "tenant default cannot be deleted, because it owns the jobs of all principals without another tenant",
    "guest": "tenant guest cannot be deleted while the cluster accepts jobs without a token, because it limits them; to"
    " accept no such jobs, set AUTH=required",
    "busy": "jobs of tenant {tenant} are waiting or running; cancel them first",
    "workflows": "tenant {tenant} has workflows; delete them first. List them with `cluster workflow list`",
    "tokens": "tenant {tenant} has valid tokens, which would have no caps without the tenant; revoke them first."
    " List them with `cluster token list`",
    "artifacts": "tenant {tenant} has artifacts; delete them first, with one of its tokens. List them with"
    " `cluster artifact list`",
}


class Shares(BaseModel):
    """Weight and caps of a tenant. Omitted fields are set to their defaults."""

    model_config = ConfigDict(extra="forbid", strict=True)
    weight: int = Field(1, ge=1, le=MAX_WEIGHT, description="Share of the lanes, relative to other tenants.")
    max_lanes: int | None = Field(
        None,
        ge=1,
        le=MAX_CAP,
        description="Maximum lanes that compute the tenant's jobs at the same time; null: no limit.",
    )
    max_jobs: int | None = Field(
        None, ge=1, le=MAX_CAP, description="Maximum waiting and running jobs; null: no limit."
    )
    max_units: dict[str, Annotated[int, Field(ge=1, le=MAX_UNITS)]] = Field(
        default_factory=dict,
        max_length=64,
        description="Maximum units per day (UTC), by kind; other kinds have no limit.",
    )
    max_gpu_seconds: int | None = Field(
        None, ge=1, le=MAX_GPU_SECONDS, description="Maximum GPU seconds per day; null: no limit."
    )
    max_stored_bytes: int | None = Field(
        None,
        ge=1,
        le=MAX_BYTES,
        description="Maximum bytes stored for the tenant's jobs, artifacts and workflows; null: no limit.",
    )
    requires: list[Annotated[str, Field(pattern=labels.PATTERN)]] | None = Field(
        None,
        max_length=labels.MAX_LABELS,
        description="Labels that a host must have to compute the tenant's jobs; empty: any host. If null or omitted,"
        " the labels do not change, so that older clients do not remove them.",
    )


@routes.get("/tenants", **http.describe_response(answers.Tenants))
def list_tenants(cluster: http.ClusterDep, principal: http.PrincipalDep) -> Response:
    """List tenants with their weights, caps and usage. Without the scope admin, only your own tenant is listed."""
    return json_response({"tenants": cluster.queries.tenants.all(principal)})


@routes.get("/tenants/{tenant}", **http.describe_response(answers.Tenant))
def get_tenant(tenant: Name, cluster: http.ClusterDep, principal: http.PrincipalDep) -> Response:
    """Return one tenant. Without the scope admin, other tenants return 404."""
    return json_response(cluster.queries.tenants.get(principal, tenant))


@routes.put("/tenants/{tenant}", dependencies=_ADMIN, **http.describe_response(answers.Tenant, body=Shares))
async def put_tenant(
    request: Request, tenant: Name, cluster: http.ClusterDep, principal: http.PrincipalDep
) -> Response:
    """Register a tenant, or change its weight, caps and required labels. Jobs already admitted are not affected."""
    shares: Shares = http.parse(Shares, await bodies.read_json(request, empty={}))
    for kind in shares.max_units:
        _require_kind(kind)
    new = Tenant(
        name=tenant,
        weight=shares.weight,
        max_lanes=shares.max_lanes or 0,
        max_jobs=shares.max_jobs or 0,
        max_units=shares.max_units,
        max_gpu_seconds=shares.max_gpu_seconds or 0,
        max_stored_bytes=shares.max_stored_bytes or 0,
        requires=None if shares.requires is None else frozenset(shares.requires),
    )
    await run_in_threadpool(cluster.store.tenants.put, new, principal.actor)
    return json_response(await run_in_threadpool(cluster.queries.tenants.get, principal, tenant))


def _require_kind(kind: str) -> None:
    if kind not in registry.names():
        known = ", ".join(registry.names())
        raise errors.InvalidRequest(
            f"max_units: kind {short(kind)} does not exist; the kinds are {known}", field="max_units"
        )


@routes.delete("/tenants/{tenant}", status_code=204, dependencies=_ADMIN)
def delete_tenant(tenant: Name, cluster: http.ClusterDep, principal: http.PrincipalDep) -> Response:
    """Delete a tenant. If it has waiting or running jobs, workflows, valid tokens or artifacts, the response is a 409.

    The tenant `default` cannot be deleted.
    """
    is_in_use = tenant == GUEST_TENANT and cluster.guests.are_accepted
    answer = "guest" if is_in_use else cluster.store.tenants.remove(tenant, principal.actor)
    if answer == "missing":
        raise errors.missing("tenant", tenant, "tenant")
    if answer in _CONFLICTS:
        raise errors.Conflict(_CONFLICTS[answer].format(tenant=tenant), field="tenant")
    return Response(status_code=204)
