"""API routes of schedules."""

from __future__ import annotations

import json
from typing import Annotated

from fastapi import Path, Request, Response
from starlette.concurrency import run_in_threadpool

from coordinator.access.principal import Principal, Scope
from coordinator.cluster import Cluster
from coordinator.schedules import creation, queries
from coordinator.schedules.creation import NewSchedule
from coordinator.schedules.runs import times
from coordinator.server import bodies, http
from coordinator.server.http import json_response
from coordinator.state import shared_state
from jobs import errors
from jobs.kinds import registry
from jobs.store.schedules import NAME, Schedule
from threads_protocol.answers import schedules as answers

routes = http.router(tag="jobs")

_SUBMIT = [http.require_scope(Scope.SUBMIT)]
Name = Annotated[str, Path(pattern=NAME, description="Schedule name.")]


@routes.get("/schedules", **http.describe_response(answers.ScheduleList))
def list_schedules(cluster: http.ClusterDep, tenant: http.Owner) -> Response:
    """List a tenant's schedules."""
    return json_response({"schedules": queries.schedule_list(cluster.store, tenant)})


@routes.post("/schedules", dependencies=_SUBMIT, **http.describe_response(answers.Schedule, 201, body=NewSchedule))
async def add_schedule(request: Request, cluster: http.ClusterDep, principal: http.PrincipalDep) -> Response:
    """Add a schedule, which submits a job or a workflow repeatedly for the caller's tenant."""
    asked = http.parse(NewSchedule, await bodies.read_json(request))
    return json_response(await run_in_threadpool(_add, cluster, asked, principal), 201)


def _add(cluster: Cluster, asked: NewSchedule, principal: Principal) -> answers.Schedule:
    schedule, artifacts = creation.plan_schedule(cluster, asked, principal)
    how, what = cluster.store.schedules.add(schedule, artifacts, principal.actor)
    if how == "exists":
        detail = f"name: a schedule {what} already exists; delete it first, or choose another name"
        raise errors.Conflict(detail, field="name")
    if how == "full":
        raise errors.Conflict(f"the tenant has {what} schedules, which is the maximum; delete one first", field="name")
    if how == "missing":
        raise errors.UnknownTenant(what)
    if how == "artifact":
        field = "workflow" if schedule.workflow else "job.parameters"
        raise errors.NotFound(f"{field}: artifact {what} was deleted in the meantime", field=field)
    return queries.find_row(cluster.store, principal.tenant, asked.name)


@routes.get("/schedules/{name}", **http.describe_response(answers.Schedule))
def get_schedule(name: Name, cluster: http.ClusterDep, tenant: http.Owner) -> Response:
    """Return a schedule with its job or workflow and its next runs."""
    return json_response(queries.find_row(cluster.store, tenant, name))


@routes.delete("/schedules/{name}", status_code=204, dependencies=_SUBMIT)
def delete_schedule(name: Name, cluster: http.ClusterDep, tenant: http.Owner, principal: http.PrincipalDep) -> Response:
    """Delete a schedule. Jobs and workflows that it has submitted continue."""
    if not cluster.store.schedules.delete(tenant, name, principal.actor):
        raise errors.missing("schedule", name, "name")
    return Response(status_code=204)


@routes.post("/schedules/{name}/pause", dependencies=_SUBMIT, **http.describe_response(answers.Schedule))
def pause_schedule(name: Name, cluster: http.ClusterDep, tenant: http.Owner, principal: http.PrincipalDep) -> Response:
    """Pause a schedule until it is resumed. Runs during the pause do not count as missed."""
    if not cluster.store.schedules.pause(tenant, name, principal.actor):
        raise errors.missing("schedule", name, "name")
    return json_response(queries.find_row(cluster.store, tenant, name))


def check_may_start(schedule: Schedule, principal: Principal) -> None:
    """Raise Forbidden if the schedule runs programs and the principal has no permission to run programs."""
    runs = schedule.runs_programs and (
        schedule.workflow or registry.program_kind(str(json.loads(schedule.job)["type"]))
    )
    if runs and not (principal.token and principal.has(Scope.RUN)):
        needs = "which requires a token with the scope run; log in with such a token: cluster login"
        raise errors.Forbidden(f"name: the schedule {schedule.name} runs programs, {needs}", field="name")


@routes.post("/schedules/{name}/resume", dependencies=_SUBMIT, **http.describe_response(answers.Schedule))
def resume_schedule(name: Name, cluster: http.ClusterDep, tenant: http.Owner, principal: http.PrincipalDep) -> Response:
    """Resume a paused schedule from its next scheduled time."""
    store = cluster.store.schedules
    schedule = queries.find(store, tenant, name)
    check_may_start(schedule, principal)
    following = times(schedule).after(store.now_ms() // 1000)
    if following is None:
        raise errors.Conflict("the schedule has no future runs; delete it", field="name")
    store.resume(tenant, name, following, principal.actor)
    return json_response(queries.find_row(cluster.store, tenant, name))


@routes.post("/schedules/{name}/run", dependencies=_SUBMIT, **http.describe_response(answers.Started, 202))
def run_schedule(
    request: Request, name: Name, cluster: http.ClusterDep, tenant: http.Owner, principal: http.PrincipalDep
) -> Response:
    """Submit the job or workflow of a schedule now, in addition to its scheduled runs."""
    schedule = queries.find(cluster.store.schedules, tenant, name)
    check_may_start(schedule, principal)
    made = shared_state(request).runs.run_now(schedule)
    of_job, of_workflow = (None, made) if schedule.workflow else (made, None)
    return json_response({"name": name, "job_id": of_job, "workflow_id": of_workflow}, 202)
