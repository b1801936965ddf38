"""Routes of units that were given up: their ranges, and trying one of them again."""

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
    """Ranges of units that were given up, with their errors, of the newest 1,000 failed and 1,000 running jobs.

    At most 20 of a job; `more_ranges` counts the others.
    """
    return json_response({"jobs": cluster.queries.jobs.all_dead(principal.only_tenant)})


@routes.get("/jobs/{job_id}/dead", **http.describe_response(answers.DeadJobs))
def get_dead(job_id: http.JobId, cluster: http.ClusterDep) -> Response:
    """The same of one job, at most 1,000 ranges; no jobs when none of its units was given up."""
    cluster.queries.jobs.job(job_id)
    return json_response({"jobs": cluster.queries.jobs.dead([job_id])})


@routes.post(
    "/jobs/{job_id}/dead/{first}/retry",
    dependencies=[http.require_scope(Scope.SUBMIT, Scope.OPERATE)],
    **http.describe_response(answers.Job),
)
def retry_dead(
    job_id: http.JobId,
    first: Annotated[int, Path(ge=0, lt=2**53, description="Where the range begins.")],
    cluster: http.ClusterDep,
    principal: http.PrincipalDep,
    hold: Annotated[bool, Query(description="As in a submission.")] = False,
) -> Response:
    """Try one range again that was given up; a failed job goes on with it. The others stay given up."""
    cluster.retry_dead(job_id, first, principal, hold=hold)
    return json_response(cluster.queries.jobs.job(job_id))
