"""Routes that change jobs: cancel, pause, resume, retry, delete."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query, Response
from starlette.convertors import StringConvertor, register_url_convertor

from coordinator.access.principal import Scope
from coordinator.server import http
from coordinator.server.http import json_response
from threads_protocol.answers import jobs as answers

routes = http.router(tag="jobs")

#: An operator steers the jobs of every tenant.
_STEERS = [http.require_scope(Scope.SUBMIT, Scope.OPERATE)]


class Verb(StringConvertor):
    """Part of a path: one of the commands that a job takes. Any other word there is a 404, not a 405."""

    regex = "cancel|pause|resume|retry"


register_url_convertor("verb", Verb())


@routes.post("/jobs/{job_id}/{verb:verb}", dependencies=_STEERS, **http.describe_response(answers.Job))
def steer(
    job_id: http.JobId,
    verb: Annotated[str, Path(pattern="^(cancel|pause|resume|retry)$")],
    cluster: http.ClusterDep,
    principal: http.PrincipalDep,
    hold: Annotated[bool, Query(description="Of resume and retry: as in a submission.")] = False,
) -> Response:
    """Cancel, pause, resume or retry a job. 409 naming the state when it does not allow that.

    A call that was carried out before changes nothing and answers 200, so that it can be repeated when its answer was
    lost: cancel of a cancelled job, pause of a paused one, resume or retry of one that waits or runs.
    """
    cluster.steer(job_id, verb, principal, hold=hold)
    return json_response(cluster.queries.jobs.job(job_id))


@routes.delete("/jobs/{job_id}", status_code=204, dependencies=_STEERS)
def delete(job_id: http.JobId, cluster: http.ClusterDep, principal: http.PrincipalDep) -> Response:
    """Remove a finished job and its result."""
    cluster.steer(job_id, "delete", principal)
    return Response(status_code=204)
