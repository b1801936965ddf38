"""Worker API routes of a service's replica: report its state and address, and find the leading replica."""

from __future__ import annotations

import ipaddress
from typing import Any, Literal

from fastapi import Request, Response
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from coordinator.access.principal import Scope
from coordinator.server import bodies, http
from coordinator.work import lease_check, schemas
from coordinator.work.identity import WorkerDep, worker_lease_token
from coordinator.work.lease_check import Job, LeasedCall
from jobs import errors
from jobs.store.services import Report, job_id, parse_job_id

routes = http.router(tag="worker", scope=Scope.WORKER)

_MAX_WHY = 300


class Replica(LeasedCall):
    """State report of a replica, sent when it starts, when its state changes, and every five seconds."""

    state: Literal["starting", "ready", "unhealthy", "stopping"]
    why: str = Field("", max_length=2000, description="Reason why the replica is not ready.")
    address: str = Field(max_length=64, description="IP address at which coordinators reach the replica.")
    port: int = Field(ge=1, le=65535)
    key: str = Field(pattern=r"^[A-Za-z0-9_-]{16,128}$", description="Bearer token for requests to the replica.")
    host: str = Field(max_length=300, description="Name of the runner's host.")
    memory_bytes: int = Field(ge=0, le=1 << 60, description="Memory of the replica's processes in bytes.")
    devices: str = Field(max_length=4000, description="Devices of the replica, separated by ;.")


@routes.post("/worker/jobs/{job}/replica", **http.describe_response(schemas.Ended, body=Replica))
async def replica(request: Request, worker: WorkerDep, job: Job, cluster: http.ClusterDep) -> Response:
    """Report the state of a service's replica, and the address at which coordinators reach it."""
    asked: Replica = http.parse(Replica, await bodies.read_json(request))

    def work() -> bool:
        lease = lease_check.require(cluster.store, worker, job, asked.lease)
        fields: dict[str, str | int] = {
            "state": asked.state,
            "why": asked.why[:_MAX_WHY],
            "address": _parse_address(asked.address),
            "port": asked.port,
            "key": asked.key,
            "host": asked.host,
            "worker": worker,
            "memory_bytes": asked.memory_bytes,
            "devices": asked.devices,
        }
        return cluster.store.services.report(job, worker_lease_token(worker, asked.lease), fields) and bool(lease)

    if not await run_in_threadpool(work):
        raise lease_check.stale(job)
    return http.json_response({"ended": False})


@routes.post("/worker/jobs/{job}/lead", **http.describe_response(schemas.Leader, body=LeasedCall))
async def lead(request: Request, worker: WorkerDep, job: Job, cluster: http.ClusterDep) -> Response:
    """Return the leading replica of the service and its address. The first replica that asks becomes the leader."""
    asked: LeasedCall = http.parse(LeasedCall, await bodies.read_json(request))

    def work() -> dict[str, Any]:
        lease_check.require(cluster.store, worker, job, asked.lease)
        number = cluster.store.services.lead(job, worker_lease_token(worker, asked.lease))
        if number is None:
            raise lease_check.stale(job)
        service, own = parse_job_id(job)
        replicas = cluster.store.services.replicas([service])[service]
        report = next((one.report for one in replicas if one.number == number), None)
        return {"leads": number == own, "job_id": job_id(service, number), **_address_fields(report)}

    answer = http.json_response(await run_in_threadpool(work))
    answer.headers["Cache-Control"] = "no-store"
    return answer


def _address_fields(report: Report | None) -> dict[str, Any]:
    known = report or Report(state="starting", why="", since=0, address="", port=0, key="", worker="", host="")
    where = {"address": known.address, "port": known.port, "key": known.key, "host": known.host}
    return {"state": known.state, **where}


def _parse_address(address: str) -> str:
    """Return a normalized IP address. Raises InvalidRequest for host names, whose addresses can change."""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        raise errors.InvalidRequest("address: must be an IPv4 or IPv6 address", field="address") from None
