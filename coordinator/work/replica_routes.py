"""Route of a replica of a service, for the runner that holds the lease of its job: what state it is in, and where."""

from __future__ import annotations

import ipaddress
from typing import Literal

from fastapi import Request, Response
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from coordinator import bodies, http
from coordinator.asker import Scope
from coordinator.work import leased, schemas
from coordinator.work.calls import Call
from coordinator.work.identity import WorkerDep, owned
from coordinator.work.leased import Job
from coordinator.work.program_routes import Lease
from jobs import errors

routes = http.router()

_MAX_WHY = 300


class Replica(Call):
    """A replica has begun, changed its state, or is as it was five seconds ago."""

    lease: Lease
    state: Literal["starting", "ready", "unhealthy", "stopping"]
    why: str = Field("", max_length=2000, description="Why it is not ready.")
    address: str = Field(max_length=64, description="Address at which coordinators reach it.")
    port: int = Field(ge=1, le=65535)
    key: str = Field(pattern=r"^[A-Za-z0-9_-]{16,128}$", description="Bearer token of requests to it.")
    host: str = Field(max_length=300, description="Name of the runner's host.")
    memory_bytes: int | None = Field(None, ge=0, le=1 << 60, description="Memory of its processes.")
    devices: str | None = Field(None, max_length=4000, description="What it computes on, with ; between.")


@routes.post(
    "/worker/jobs/{job}/replica", tags=["worker"], dependencies=[http.needs(Scope.WORKER)],
    openapi_extra=http.describes(Replica), **http.answers(schemas.Ended),
)  # fmt: skip
async def replica(request: Request, worker: WorkerDep, job: Job, cluster: http.ClusterDep) -> Response:
    """Say in which state a replica of a service is, and where coordinators reach it."""
    asked: Replica = http.parsed(Replica, await bodies.body(request))

    def work() -> bool:
        lease = leased.require(cluster.store, worker, job, asked.lease)
        fields: dict[str, str | int] = {
            "state": asked.state, "why": asked.why[:_MAX_WHY], "address": _literal(asked.address), "port": asked.port,
            "key": asked.key, "host": asked.host, "worker": worker,
        }  # fmt: skip
        if asked.memory_bytes is not None:
            fields["memory_bytes"] = asked.memory_bytes
        if asked.devices is not None:
            fields["devices"] = asked.devices
        return cluster.store.services.report(job, owned(worker, asked.lease), fields) and bool(lease)

    if not await run_in_threadpool(work):
        raise leased.stale(job)
    return http.shown({"ended": False})


def _literal(address: str) -> str:
    """Return an address of IP. InvalidRequest for anything else: a name could lead anywhere later."""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        raise errors.InvalidRequest("address: must be an address of IP 4 or 6", field="address") from None
