"""API routes that control jobs: cancel, pause, resume, retry and delete."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query, Response
from starlette.convertors import StringConvertor, register_url_convertor

from coordinator.access import guests
from coordinator.access.principal import Scope
from coordinator.server import http
from coordinator.server.http import json_response
from threads_protocol.answers import jobs as answers

routes = http.router(tag="jobs")

#: Operators can control the jobs of all tenants.
_STEERS = [http.require_scope(Scope.SUBMIT, Scope.OPERATE)]


class Verb(StringConvertor):
    """URL path convertor for job commands. An unknown command results in status 404 instead of 405."""

    regex = "cancel|pause|resume|retry"


register_url_convertor("verb", Verb())


@routes.post("/jobs/{job_id}/{verb:verb}", dependencies=_STEERS, **http.describe_response(answers.Job))
def control_job(
    job_id: http.JobId,
    verb: Annotated[str, Path(pattern="^(cancel|pause|resume|retry)$")],
    cluster: http.ClusterDep,
    principal: http.PrincipalDep,
    hold: Annotated[
        bool, Query(description="For resume and retry: queue the job if its tenant has reached a cap.")
    ] = False,
) -> Response:
    """Cancel, pause, resume or retry a job. If the job's state does not allow this, the response is a 409 with the
    state.
    """
    if hold:
        guests.require_token(principal, "hold")
    cluster.steer(job_id, verb, principal, hold=hold)
    return json_response(cluster.queries.jobs.job(job_id))


@routes.delete("/jobs/{job_id}", status_code=204, dependencies=_STEERS)
def delete_job(job_id: http.JobId, cluster: http.ClusterDep, principal: http.PrincipalDep) -> Response:
    """Delete a finished job and its result."""
    cluster.steer(job_id, "delete", principal)
    return Response(status_code=204)
