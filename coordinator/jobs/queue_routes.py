"""API routes that expose jobs as tasks of a queue, for clients of generic task queues."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response

from coordinator.access.principal import Scope
from coordinator.server import http
from coordinator.server.http import json_response
from threads_protocol.answers import jobs as answers

routes = http.router(tag="jobs")

_STEERS = [http.require_scope(Scope.SUBMIT, Scope.OPERATE)]


def _task(row: answers.Job) -> answers.Task:
    return {**row, "task_id": row["job_id"]}


@routes.get("/v1/queue", **http.describe_response(answers.QueueCounts))
def get_queue(cluster: http.ClusterDep, principal: http.PrincipalDep) -> Response:
    """Count the stored jobs by state."""
    return json_response({"tasks": cluster.queries.jobs.counts(principal.only_tenant)})


@routes.get("/v1/queue/tasks/{job_id}", **http.describe_response(answers.Task))
def get_task(job_id: http.JobId, cluster: http.ClusterDep) -> Response:
    """Return a job, like GET /api/jobs/{job_id}."""
    return json_response(_task(cluster.queries.jobs.job(job_id)))


@routes.post("/v1/queue/tasks/{job_id}/cancel", dependencies=_STEERS, **http.describe_response(answers.Task))
def cancel_task(job_id: http.JobId, cluster: http.ClusterDep, principal: http.PrincipalDep) -> Response:
    """Cancel a job, like POST /api/jobs/{job_id}/cancel."""
    cluster.steer(job_id, "cancel", principal)
    return json_response(_task(cluster.queries.jobs.job(job_id)))


@routes.get("/v1/queue/history", **http.describe_response(answers.Tasks))
def list_ended_tasks(
    cluster: http.ClusterDep, principal: http.PrincipalDep, limit: Annotated[int, Query(ge=1, le=500)] = 50
) -> Response:
    """List ended jobs, the latest end first.

    Only the newest submissions of each final state are searched: 100, or `limit` if larger.
    """
    return json_response({"tasks": list(map(_task, cluster.queries.jobs.ended(limit, principal.only_tenant)))})
