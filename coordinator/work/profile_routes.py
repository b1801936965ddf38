"""Routes by which workers claim devices to sample for profiles, and bring what they recorded."""

from __future__ import annotations

from typing import Any

from fastapi import Request, Response

from coordinator.access.asker import Scope
from coordinator.server import http
from coordinator.work import calls, schemas
from coordinator.work.identity import WorkerDep
from coordinator.work.routes import answered

routes = http.router(tag="worker", scope=Scope.WORKER)


@routes.post("/worker/profile", **http.answers(schemas.Profiled, takes=calls.Profile))
async def report(request: Request, worker: WorkerDep, cluster: http.ClusterDep) -> Response:
    """Claim devices to sample for a profile, say what was recorded, and hear which of it is wanted."""

    def work(asked: calls.Profile) -> dict[str, Any]:
        found = [one.recording() for one in asked.recordings]
        told = cluster.store.profiles.report(asked.profile_id, worker, asked.devices, found)
        return {"state": told.state, "now": told.now, "devices": list(told.devices), "wanted": dict(told.wanted)}

    return await answered(request, calls.Profile, work)


@routes.post("/worker/profile-part", **http.answers(schemas.ProfilePart, takes=calls.ProfilePart))
async def add_part(request: Request, worker: WorkerDep, cluster: http.ClusterDep) -> Response:
    """Bring a part of a recording that is wanted."""

    def work(asked: calls.ProfilePart) -> dict[str, Any]:
        calls_of = cluster.store.profiles
        return {"how": calls_of.add_part(asked.profile_id, worker, asked.recording, asked.number, asked.data)}

    return await answered(request, calls.ProfilePart, work)
