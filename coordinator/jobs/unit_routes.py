"""API routes of the units of programs, for jobs in any state."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response

from coordinator.server import http
from coordinator.server.http import json_response
from jobs.models import MAX_UNITS
from threads_protocol.answers import jobs as answers

routes = http.router(tag="jobs")

#: Maximum number of units in one response.
MOST = 1000


@routes.get("/jobs/{job_id}/units", **http.describe_response(answers.Units))
def list_units(
    job_id: http.JobId,
    cluster: http.ClusterDep,
    first: Annotated[int, Query(alias="from", ge=0, le=MAX_UNITS, description="First unit of the page.")] = 0,
    limit: Annotated[int, Query(ge=1, le=MOST)] = 100,
    state: answers.UnitStateName | None = None,
) -> Response:
    """List units of a program by number, with exit code, time, attempts and value. `counts` covers all units.

    Status 404 if the job's kind runs no programs.
    """
    return json_response(cluster.queries.jobs.units_page(job_id, first, limit, state))


@routes.get("/jobs/{job_id}/unit-states", **http.describe_response(answers.UnitStates))
def list_unit_states(job_id: http.JobId, cluster: http.ClusterDep) -> Response:
    """Return the states of all units of a program, run-length encoded."""
    return json_response(cluster.queries.jobs.units(job_id).runs())
