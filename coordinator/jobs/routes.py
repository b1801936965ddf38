"""API routes that read jobs, kinds and their marks."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Annotated

from fastapi import Path, Query, Response
from pydantic import AwareDatetime
from starlette.concurrency import run_in_threadpool

from coordinator.jobs.index import Filter
from coordinator.jobs.submissions import MAX_TAGS
from coordinator.server import http
from coordinator.server.http import json_response
from jobs.kinds import registry
from threads_protocol.answers import jobs as answers
from threads_protocol.states import JobState

routes = http.router()


@routes.get("/job-types", tags=["cluster"], **http.describe_response(answers.Kinds))
def list_job_types(cluster: http.ClusterDep) -> Response:
    """List all kinds with summary, JSON Schema of the parameters, and an example."""
    return json_response({"kinds": cluster.kinds()})


@routes.get("/jobs", tags=["jobs"], **http.describe_response(answers.Jobs))
def list_jobs(
    cluster: http.ClusterDep,
    principal: http.PrincipalDep,
    state: Annotated[list[JobState] | None, Query(description="Only jobs in one of these states.")] = None,
    type: Annotated[str | None, Query(max_length=64, description="Only jobs of this kind.")] = None,
    search: Annotated[
        str,
        Query(
            max_length=200,
            description="Only jobs whose ID begins with each word, or whose title, kind or tags contain it.",
        ),
    ] = "",
    tag: Annotated[
        list[str] | None, Query(max_length=MAX_TAGS, description="Only jobs with all of these tags.")
    ] = None,
    tenant: Annotated[str | None, Query(max_length=32, description="Only jobs of this tenant.")] = None,
    since: Annotated[AwareDatetime | None, Query(description="Only jobs submitted at this time or later.")] = None,
    until: Annotated[AwareDatetime | None, Query(description="Only jobs submitted before this time.")] = None,
    cursor: Annotated[int | None, Query(ge=0, le=2**53)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> Response:
    """List the jobs that meet all conditions, newest first. Pass `cursor` of a page to get the next page."""
    if type is not None:
        registry.definition(type)
    wanted = Filter(
        states=frozenset(state or ()),
        kind=type,
        tags=frozenset(tag or ()),
        words=tuple(search.split()),
        tenant=tenant,
        visible_to=principal.only_tenant,
        since_ms=_milliseconds(since),
        until_ms=_milliseconds(until),
    )
    return json_response(cluster.queries.jobs.page(wanted, cursor, limit))


def _milliseconds(time: datetime | None) -> int | None:
    """Return a time in milliseconds since 1970, rounded up."""
    return None if time is None else math.ceil(time.timestamp() * 1000)


@routes.get("/jobs/{job_id}", tags=["jobs"], **http.describe_response(answers.Job))
async def get_job(job_id: http.JobId, cluster: http.ClusterDep, wait_seconds: http.Wait = 0) -> Response:
    """Return one job. With `wait_seconds`, wait until it has ended or the time has passed."""
    await http.wait_for_end(cluster, job_id, wait_seconds)
    return json_response(await run_in_threadpool(cluster.queries.jobs.job, job_id))


@routes.get("/jobs/{job_id}/relations", tags=["jobs"], **http.describe_response(answers.Relations))
def get_relations(job_id: http.JobId, cluster: http.ClusterDep) -> Response:
    """Return a job's dependencies, its dependents, and the jobs that were skipped because of it."""
    return json_response(cluster.queries.jobs.relations(job_id))


@routes.get("/kinds/{kind}/marks/{mark}", tags=["jobs"], **http.describe_response(answers.Mark))
def get_mark(
    kind: Annotated[str, Path(max_length=64, description="Kind of job, such as collatz.")],
    mark: Annotated[str, Path(max_length=64, description="Mark of the kind, such as verified.")],
    cluster: http.ClusterDep,
) -> Response:
    """Return the ranges that finished jobs of a kind have proved, starting with the gapless range from the origin."""
    return json_response(cluster.queries.jobs.mark(kind, mark))
