"""Routes that create, read and change services. Requests to services use the routes of the gateway."""

from __future__ import annotations

import json
from typing import Annotated

from fastapi import Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from coordinator.access.principal import Principal, Scope
from coordinator.cluster import Cluster
from coordinator.fleet import hosts
from coordinator.server import bodies, http
from coordinator.server.http import json_response
from coordinator.services import access, creation, queries, scaling
from coordinator.services.creation import MAX_REPLICAS, NewService
from coordinator.services.gateway.gateway import Gateway
from coordinator.services.pages import page_links
from coordinator.services.pages.page_names import PageNames
from coordinator.state import shared_state
from jobs import errors
from jobs.kinds.service.parameters import NAME
from threads_protocol.answers import services as answers

routes = http.router(tag="services")

_RUN = [http.require_scope(Scope.RUN)]
Name = Annotated[str, Path(pattern=NAME, description="A service's name.")]


class Scale(BaseModel):
    """The body of POST /api/services/{name}/scale."""

    model_config = ConfigDict(extra="forbid", strict=True)
    replicas: int = Field(ge=0, le=MAX_REPLICAS, description="Number of replicas.")


@routes.get("/services", **http.describe_response(answers.ServiceList))
async def list_services(request: Request, cluster: http.ClusterDep, tenant: http.Owner) -> Response:
    """List a tenant's services with their replicas."""
    unreached = await _unreached(request, tenant)
    read = queries.service_list
    return json_response(
        {"services": await run_in_threadpool(read, cluster.store, cluster.queries.jobs, tenant, unreached)}
    )


async def _unreached(request: Request, tenant: str) -> dict[str, str]:
    """Return why this coordinator cannot reach some ready replicas, by job ID."""
    found: dict[str, str] = await shared_state(request).gateway.routes.explain_unreached(tenant)
    return found


@routes.post("/services", dependencies=_RUN, **http.describe_response(answers.Service, 201, body=NewService))
async def add_service(request: Request, cluster: http.ClusterDep, principal: http.PrincipalDep) -> Response:
    """Create a service, which keeps replicas of an engine running."""
    asked = http.parse(NewService, await bodies.read_json(request))
    return json_response(await run_in_threadpool(_added, cluster, asked, principal), 201)


@routes.post("/services/estimate", dependencies=_RUN, **http.describe_response(answers.Estimate, body=NewService))
async def estimate_service(request: Request, cluster: http.ClusterDep, principal: http.PrincipalDep) -> Response:
    """Validate a service without creating it, and return the memory of a replica."""
    asked = http.parse(NewService, await bodies.read_json(request))
    return json_response(await run_in_threadpool(_estimated, cluster, asked, principal))


def _estimated(cluster: Cluster, asked: NewService, principal: Principal) -> answers.Estimate:
    service = creation.plan_service(cluster, asked, principal)
    memory = json.loads(service.asked)["memory"]
    if memory is None:
        return {"engine": service.engine, "memory": None, "fits": None}
    available = memory["available_bytes"]
    fits = None if available is None else memory["needed_bytes"] <= available
    return {"engine": service.engine, "memory": memory["words"], "fits": fits}


def _added(cluster: Cluster, asked: NewService, principal: Principal) -> answers.Service:
    if host := asked.requirements.get("host"):
        hosts.require(cluster.queries.fleet.workers(), str(host), "requirements.host")
    service = creation.plan_service(cluster, asked, principal)
    if refused := creation.refusal(*cluster.store.services.add(service, principal.actor)):
        raise refused
    return _row(cluster, principal.tenant, asked.name)


def _row(cluster: Cluster, tenant: str, name: str) -> answers.Service:
    return queries.one(cluster.store, cluster.queries.jobs, tenant, name)


@routes.get("/services/{name}", **http.describe_response(answers.Service))
async def get_service(request: Request, name: Name, cluster: http.ClusterDep, tenant: http.Owner) -> Response:
    """Return a service with its replicas and its specification."""
    unreached = await _unreached(request, tenant)
    return json_response(
        await run_in_threadpool(queries.one, cluster.store, cluster.queries.jobs, tenant, name, unreached)
    )


@routes.delete("/services/{name}", status_code=204, dependencies=_RUN)
def delete_service(name: Name, cluster: http.ClusterDep, tenant: http.Owner, principal: http.PrincipalDep) -> Response:
    """Delete a service. Its name is free at once, and its replicas stop after they have answered their requests."""
    if not cluster.store.services.delete(tenant, name, principal.actor):
        raise errors.missing("service", name, "name")
    return Response(status_code=204)


@routes.post("/services/{name}/scale", dependencies=_RUN, **http.describe_response(answers.Service, body=Scale))
async def scale_service(
    request: Request, name: Name, cluster: http.ClusterDep, tenant: http.Owner, principal: http.PrincipalDep
) -> Response:
    """Change the number of replicas. Starts a stopped service."""
    asked: Scale = http.parse(Scale, await bodies.read_json(request))

    def work() -> Response:
        load = scaling.of(queries.found(cluster.store, tenant, name))
        if load.most:
            creation.check_between(load.least, asked.replicas, load.most)
        if not cluster.store.services.scale(tenant, name, asked.replicas, principal.actor):
            raise errors.missing("service", name, "name")
        return json_response(_row(cluster, tenant, name))

    return await run_in_threadpool(work)


@routes.post("/services/{name}/access", dependencies=_RUN, **http.describe_response(answers.Access))
def access_service(name: Name, cluster: http.ClusterDep, tenant: http.Owner, principal: http.PrincipalDep) -> Response:
    """Return the address and credentials of the leading replica of a group. The audit log records the call."""
    answer = json_response(access.of(cluster.store, tenant, name))
    cluster.store.services.log_disclosure(tenant, name, principal.actor)
    answer.headers["Cache-Control"] = "no-store"
    return answer


@routes.post(
    "/services/{name}/open", dependencies=[http.require_scope(Scope.READ)], **http.describe_response(answers.PageLink)
)
async def open_page(
    request: Request, name: Name, cluster: http.ClusterDep, tenant: http.Owner, principal: http.PrincipalDep
) -> Response:
    """Create a browser link to a service's page, such as Dask's dashboard."""
    service = await run_in_threadpool(queries.found, cluster.store, tenant, name)
    gateway: Gateway = shared_state(request).gateway
    names: PageNames = shared_state(request).page_names
    return json_response(await page_links.link(request, service, principal, gateway.routes, names))


@routes.post("/services/{name}/restart", dependencies=_RUN, **http.describe_response(answers.Service))
def restart_service(name: Name, cluster: http.ClusterDep, tenant: http.Owner, principal: http.PrincipalDep) -> Response:
    """Replace all replicas, one after the other. An old replica stops when a new one is ready or lacks resources."""
    if not cluster.store.services.restart(tenant, name, principal.actor):
        raise errors.missing("service", name, "name")
    return json_response(_row(cluster, tenant, name))


@routes.post("/services/{name}/stop", dependencies=_RUN, **http.describe_response(answers.Service))
def stop_service(name: Name, cluster: http.ClusterDep, tenant: http.Owner, principal: http.PrincipalDep) -> Response:
    """Stop all replicas until the service is scaled or restarted."""
    if not cluster.store.services.stop(tenant, name, principal.actor):
        raise errors.missing("service", name, "name")
    return json_response(_row(cluster, tenant, name))
