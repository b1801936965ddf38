"""Routes that serve models at a location, with the paths and field names of another system."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from coordinator import locations
from coordinator.access.principal import Scope
from coordinator.fleet import hosts
from coordinator.server import bodies, http
from coordinator.server.http import json_response
from coordinator.services import model_services, queries
from coordinator.services.gateway import openai
from jobs import errors
from jobs.kinds.service.parameters import NAME
from jobs.store import artifacts
from threads_protocol import ports
from threads_protocol.answers import services as answers

routes = http.router(tag="services")

Service = Annotated[str, Path(pattern=NAME, description="A service's name.")]


class ModelAt(BaseModel):
    """The body of POST /api/v1/services."""

    model_config = ConfigDict(extra="forbid", strict=True, protected_namespaces=())
    model_name: str = Field(pattern=artifacts.NAME, description="A model that GET /api/v1/models lists.")
    device: str = Field(max_length=100, description="HOST:gpu0 or HOST:cpu. Without HOST, any suitable host.")
    port: int | None = Field(
        None, ge=1, le=65535, description="Not used. A note in the response says where to send requests."
    )


@routes.post(
    "/v1/services",
    dependencies=[http.require_scope(Scope.RUN)],
    **http.describe_response(answers.Placed, 202, body=ModelAt),
)
async def serve_model(request: Request, cluster: http.ClusterDep, principal: http.PrincipalDep) -> Response:
    """Serve a model at a location. An existing service at that location is not changed."""
    asked = http.parse(ModelAt, await bodies.read_json(request))
    try:
        place = locations.parse(asked.device, locations.COMPUTE_DEVICES, any_host=True)
    except ValueError as error:
        raise errors.InvalidRequest(f"device: {error}", field="device") from None

    def work() -> Response:
        if place.host:
            hosts.require(cluster.queries.fleet.workers(), place.host, "device")
        model = cluster.models.find(principal.tenant, asked.model_name)
        name = model_services.serve(cluster, model, place, principal)
        row = queries.one(cluster.store, cluster.queries.jobs, principal.tenant, name)
        note = {} if asked.port is None else {"note": ports.explain_unused(asked.port)}
        return json_response({"service_id": name, "status": row["state"], **note}, 202)

    return await run_in_threadpool(work)


@routes.get("/v1/services/{name}/status", **http.describe_response(answers.PlacedStatus))
def get_service_status(name: Service, cluster: http.ClusterDep, principal: http.PrincipalDep) -> Response:
    """Show the state and the URL of a service."""
    row = queries.one(cluster.store, cluster.queries.jobs, principal.tenant, name)
    return json_response({"service_id": name, "status": row["state"], "replicas": row["ready"], "url": openai.PREFIX})
