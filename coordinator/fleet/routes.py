"""Workers, and the fleet in numbers."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Request, Response
from pydantic import BaseModel, ConfigDict
from starlette.concurrency import run_in_threadpool

from coordinator import bodies, http
from coordinator.fleet import schemas
from coordinator.http import shown
from jobs import errors

routes = http.router()


class Drain(BaseModel):
    """Whether a worker finishes what it has and takes nothing new."""

    model_config = ConfigDict(extra="forbid", strict=True)
    on: bool = True


@routes.get("/status", tags=["cluster"], **http.answers(schemas.Status))
def status(cluster: http.ClusterDep) -> Response:
    """Workers, queues and jobs in numbers."""
    return shown(cluster.queries.fleet.status())


@routes.get("/nodes", tags=["cluster"], **http.answers(schemas.Nodes))
def nodes(cluster: http.ClusterDep) -> Response:
    """Workers that live, and those lost within the hour."""
    return shown({"nodes": cluster.queries.fleet.nodes()})


@routes.post(
    "/nodes/{node_id}/drain", tags=["cluster"], openapi_extra=http.describes(Drain), **http.answers(schemas.Drained)
)
async def drain(
    request: Request, node_id: Annotated[str, Path(pattern=r"^[A-Za-z0-9._-]{1,64}$")], cluster: http.ClusterDep
) -> Response:
    """A drained worker ends its leases and takes nothing new; {"on": false} lets it work again."""
    asked = http.parsed(Drain, await bodies.body(request, empty={}))
    if not await run_in_threadpool(cluster.leases.drain, node_id, asked.on):
        raise errors.NotFound(f"no worker {node_id}; list them with GET /api/nodes", field="node_id")
    return shown({"id": node_id, "draining": asked.on})
