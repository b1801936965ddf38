"""API routes of dead units (units that were given up): list their ranges and retry a range."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query, Response

from coordinator.access.principal import Scope
from coordinator.server import http
from coordinator.server.http import json_response
from threads_protocol.answers import jobs as answers

routes = http.router(tag="jobs")


@routes.get("/dead", **http.describe_response(answers.DeadJobs))
def list_dead(cluster: http.ClusterDep, principal: http.PrincipalDep) -> Response:
    """List ranges of dead units with their errors, for the newest 1,000 failed and 1,000 running jobs.

    A job lists at most 20 ranges; `more_ranges` counts the others.
    """
    return json_response({"jobs": cluster.queries.jobs.all_dead(principal.only_tenant)})


@routes.get("/jobs/{job_id}/dead", **http.describe_response(answers.DeadJobs))
def get_dead(job_id: http.JobId, cluster: http.ClusterDep) -> Response:
    """List up to 1,000 ranges of dead units of one job. If the job has no dead units, `jobs` is empty."""
    cluster.queries.jobs.job(job_id)
    return json_response({"jobs": cluster.queries.jobs.dead([job_id])})


@routes.post(
    "/jobs/{job_id}/dead/{first}/retry",
    dependencies=[http.require_scope(Scope.SUBMIT, Scope.OPERATE)],
    **http.describe_response(answers.Job),
)
def retry_dead(
    job_id: http.JobId,
    first: Annotated[int, Path(ge=0, lt=2**53, description="First unit of the range.")],
    cluster: http.ClusterDep,
    principal: http.PrincipalDep,
    hold: Annotated[bool, Query(description="Queue the job if its tenant has reached a cap.")] = False,
) -> Response:
    """Retry one range of dead units. A failed job continues with this range; other ranges stay dead."""
    cluster.retry_dead(job_id, first, principal, hold=hold)
    return json_response(cluster.queries.jobs.job(job_id))
