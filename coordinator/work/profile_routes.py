"""Routes by which workers claim devices to sample for profiles, and bring what they recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import Request, Response
from starlette.concurrency import run_in_threadpool

from coordinator import bodies, http
from coordinator.asker import Scope
from coordinator.http import shown
from coordinator.state import shared_state
from coordinator.work import calls, schemas
from coordinator.work.calls import Call
from coordinator.work.identity import WorkerDep

routes = http.router()

_WORKER = [http.needs(Scope.WORKER)]


async def _answered(request: Request, model: type[Call], work: Callable[[Any], dict[str, Any]]) -> Response:
    async with bodies.held(request, calls.MAX_BODY, calls.MAX_VALUES, {}, shared_state(request).work_bodies) as body:
        return await run_in_threadpool(lambda: shown(work(http.parsed(model, body))))


@routes.post(
    "/worker/profile", tags=["worker"], dependencies=_WORKER, openapi_extra=http.describes(calls.Profile),
    **http.answers(schemas.Profiled),
)  # fmt: skip
async def report(request: Request, worker: WorkerDep, cluster: http.ClusterDep) -> Response:
    """Claim devices to sample for a profile, say what was recorded, and hear which of it is wanted."""

    def work(asked: calls.Profile) -> dict[str, Any]:
        found = [one.recording() for one in asked.recordings]
        told = cluster.store.profiles.report(asked.profile_id, worker, asked.devices, found)
        return {"state": told.state, "now": told.now, "devices": list(told.devices), "wanted": dict(told.wanted)}

    return await _answered(request, calls.Profile, work)


@routes.post(
    "/worker/profile-part", tags=["worker"], dependencies=_WORKER, openapi_extra=http.describes(calls.ProfilePart),
    **http.answers(schemas.ProfilePart),
)  # fmt: skip
async def add_part(request: Request, worker: WorkerDep, cluster: http.ClusterDep) -> Response:
    """Bring a part of a recording that is wanted."""

    def work(asked: calls.ProfilePart) -> dict[str, Any]:
        calls_of = cluster.store.profiles
        return {"how": calls_of.add_part(asked.profile_id, worker, asked.recording, asked.number, asked.data)}

    return await _answered(request, calls.ProfilePart, work)
