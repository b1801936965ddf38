"""Routes for workers and fleet statistics."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Request, Response
from pydantic import BaseModel, ConfigDict
from starlette.concurrency import run_in_threadpool

from coordinator.access.principal import Scope
from coordinator.server import bodies, http
from coordinator.server.http import json_response
from jobs import errors
from threads_protocol.answers import fleet as answers

routes = http.router(tag="cluster")


WorkerId = Annotated[str, Path(pattern=r"^[A-Za-z0-9._-]{1,64}$")]


class Drain(BaseModel):
    """Body of a drain request. A draining worker finishes its leases and takes no new work."""

    model_config = ConfigDict(extra="forbid", strict=True)
    on: bool = True


@routes.get("/status", **http.describe_response(answers.Status))
def get_status(cluster: http.ClusterDep, principal: http.PrincipalDep) -> Response:
    """Return statistics of workers and queues, and of the jobs that the token can list."""
    return json_response(cluster.queries.fleet.status(tenant=principal.only_tenant))


@routes.get("/workers", **http.describe_response(answers.WorkerList))
def list_workers(cluster: http.ClusterDep) -> Response:
    """List live workers and workers lost within the last hour."""
    return json_response({"workers": cluster.queries.fleet.workers()})


@routes.post(
    "/workers/{worker_id}/drain",
    dependencies=[http.require_scope(Scope.OPERATE)],
    **http.describe_response(answers.Drained, body=Drain),
)
async def drain_worker(
    request: Request, worker_id: WorkerId, cluster: http.ClusterDep, principal: http.PrincipalDep
) -> Response:
    """Drain a worker: it finishes its leases and takes no new work. {"on": false} ends draining."""
    asked = http.parse(Drain, await bodies.read_json(request, empty={}))
    if not await run_in_threadpool(cluster.store.fleet.drain, worker_id, asked.on, principal.actor):
        raise errors.missing("worker", worker_id, "worker_id")
    return json_response({"id": worker_id, "draining": asked.on})
