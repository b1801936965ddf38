"""API routes that submit jobs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import Header, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from coordinator.access.principal import Scope
from coordinator.cluster import Cluster
from coordinator.jobs import submissions
from coordinator.server import bodies, http
from coordinator.server.http import json_response
from jobs import errors
from jobs.store.work.job_reads import ResultText
from threads_protocol.answers import jobs as answers
from threads_protocol.states import TERMINAL

routes = http.router(tag="jobs", scope=Scope.SUBMIT)

#: Maximum length in characters of a batch's key. Each job's key has the form `KEY/INDEX`.
_BATCH_KEY = submissions.MAX_KEY - len(f"/{submissions.MAX_BATCH}")
#: Maximum size in bytes of a request body that is handled in the event loop.
#: Maximum size in bytes of a job result that is read in the event loop.
_SHORT, _SHORT_RESULT = 4096, 1 << 16
_BATCH_KEYS = "Repeating a batch with the same key returns the same jobs. A job without its own key gets KEY/INDEX."


class Batch(BaseModel):
    """Up to 1,000 submissions, each validated separately."""

    model_config = ConfigDict(extra="forbid", strict=True)
    jobs: list[Any] = Field(min_length=1, max_length=submissions.MAX_BATCH)


@routes.post("/submit", **http.describe_response(answers.Submitted, 202, body=submissions.Submission))
async def submit_job(
    request: Request,
    cluster: http.ClusterDep,
    principal: http.PrincipalDep,
    place: http.TraceContextDep,
    idempotency_key: Annotated[str | None, Header(max_length=submissions.MAX_KEY)] = None,
    wait_seconds: http.Wait = 0,
) -> Response:
    """Submit one job. With `wait_seconds`, the response includes the result if the job is done within that time."""
    body = await bodies.read_json(request)
    if isinstance(body, dict) and idempotency_key and body.get("idempotency_key") is None:
        body["idempotency_key"] = idempotency_key
    short = bodies.declared_size(request, bodies.MAX_BODY) <= _SHORT
    answer = await cluster.submit_one(body, principal, place, short=short)
    if isinstance(answer, errors.ClusterError):
        raise answer
    if not wait_seconds:
        return json_response(answer, 202)
    if answer["status"] not in TERMINAL:
        await http.wait_for_end(cluster, answer["job_id"], wait_seconds, just_seen=True)
    return await _answer_submission(cluster, answer)


@routes.post("/estimate", **http.describe_response(answers.Estimate, body=submissions.Submission))
async def estimate_job(request: Request, cluster: http.ClusterDep, principal: http.PrincipalDep) -> Response:
    """Return when a job would start, or why no runner could ever take it. The body is that of a submission.

    No job is submitted, and limits of the tenant are not checked.
    """
    body = await bodies.read_json(request)
    return json_response(await run_in_threadpool(cluster.estimate, body, principal))


async def _answer_submission(cluster: Cluster, answer: answers.Submitted) -> Response:
    """Return the response with the job's current state, and with its result if it is done."""
    reads, job_id = cluster.store.job_reads, answer["job_id"]
    short = await reads.short_result(cluster.store.wire, job_id, _SHORT_RESULT)
    if short is None:
        _, state, stored = await run_in_threadpool(cluster.queries.jobs.result, job_id)
    else:
        state, text = short
        stored = ResultText(reads, job_id, text, len(text)) if text else None
    head = json.dumps(answer | {"status": state}, separators=(",", ":")).encode()
    if stored is None:
        return Response(head, 202, media_type="application/json")
    return http.send_result(stored, head[:-1] + b',"result":', b"}", 202)


@routes.post("/submit-batch", **http.describe_response(answers.SubmittedBatch, body=Batch))
async def submit_batch(
    request: Request,
    cluster: http.ClusterDep,
    principal: http.PrincipalDep,
    place: http.TraceContextDep,
    idempotency_key: Annotated[str | None, Header(max_length=_BATCH_KEY, description=_BATCH_KEYS)] = None,
) -> Response:
    """Submit up to 1,000 jobs. An invalid job does not affect the others."""
    async with bodies.open_json(request, bodies.MAX_BATCH_BODY, bodies.MAX_BATCH_VALUES) as body:
        batch = http.parse(Batch, body)
        if idempotency_key:
            _give_keys(batch.jobs, idempotency_key)
        answers = await run_in_threadpool(cluster.submit, batch.jobs, principal, place)
    return json_response({"answers": [_answer_or_problem(answer) for answer in answers]})


def _give_keys(bodies: Sequence[Any], key: str) -> None:
    """Derive each job's idempotency key from the batch's key, so that repeating the batch returns the same jobs."""
    for place, body in enumerate(bodies):
        if isinstance(body, dict) and body.get("idempotency_key") is None:
            body["idempotency_key"] = f"{key}/{place}"


def _answer_or_problem(answer: answers.Submitted | errors.ClusterError) -> Mapping[str, Any]:
    return {"error": http.serialize_problem(answer)} if isinstance(answer, errors.ClusterError) else answer
