"""API routes of results, and of data that workers compute about a job on demand."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from coordinator.access.principal import Scope
from coordinator.cluster import Cluster
from coordinator.jobs import submissions
from coordinator.server import bodies, http
from coordinator.server.http import json_response
from jobs import errors
from jobs.kinds import registry
from jobs.store.work.job_reads import ResultText
from threads_protocol.answers import jobs as answers
from threads_protocol.states import TERMINAL

#: Seconds to wait for an on-demand computation before responding with status 202.
QUESTION_WAIT_SECONDS = 2.0

_LATER: dict[int | str, dict[str, Any]] = {
    202: {"model": answers.Asked, "description": "A worker is still computing the result."}
}
_QUESTION: dict[str, Any] = {
    "response_model": None,
    "responses": {
        200: {
            "description": "JSON with a schema that the kind defines.",
            "content": {"application/json": {"schema": {}}},
        },
        **_LATER,
    },
}

_PACKED: dict[str, Any] = {
    "response_model": None,
    "response_class": Response,
    "responses": {
        200: {
            "description": "Packed columns in the format TCB1.",
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        },
        **_LATER,
    },
}
_CONTAINER = (
    "Data about a job as columns that browsers can read without copying. Little-endian: `TCB1`; u32 length of the "
    'header; the header, JSON `{"facts": {}, "columns": [{"name", "type", "offset", "length"}]}` padded with '
    "spaces; the columns. A column holds `length` items of `type` (u8, u16, u32, i32, u64, f32, f64) from byte "
    "`offset`, a multiple of 8. Status 202 with Location while a worker is still computing the data."
)
_BINARIES = "\n\n".join(
    [_CONTAINER]
    + [
        f"**{kind}, {name}.bin**: {binary.summary}"
        for kind in registry.names()
        for name, binary in registry.definition(kind).binaries.items()
    ]
)

routes = http.router(tag="jobs")


class Ids(BaseModel):
    """IDs of the jobs whose results are requested.

    The response has the same order.
    """

    model_config = ConfigDict(extra="forbid")
    job_ids: list[Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]] = Field(
        min_length=1, max_length=submissions.MAX_BATCH
    )
    wait_seconds: float = Field(0, strict=True, ge=0, le=http.MAX_WAIT_SECONDS, allow_inf_nan=False)


@routes.post(
    "/results", dependencies=[http.require_scope(Scope.READ)], **http.describe_response(answers.ManyResults, body=Ids)
)
async def get_results(request: Request, cluster: http.ClusterDep, principal: http.PrincipalDep) -> Response:
    """Return states and results of many jobs, after all have ended or `wait_seconds` have passed.

    A response contains up to 16 MiB of results. A larger result is replaced by its URL and length in bytes: `result_at`
    and `result_bytes`.
    """
    asked = http.parse(Ids, await bodies.read_json(request))
    if asked.wait_seconds:
        await cluster.hub.ends.wait(
            asked.job_ids, lambda: cluster.queries.jobs.states(asked.job_ids, principal.only_tenant), asked.wait_seconds
        )
    stored = await run_in_threadpool(cluster.queries.jobs.results, asked.job_ids, principal.only_tenant)
    return Response(stored, media_type="application/json")


@routes.get("/jobs/{job_id}/result", **http.describe_response(answers.Result))
async def get_result(
    job_id: http.JobId, cluster: http.ClusterDep, wait_seconds: http.Wait = 0, partial: bool = False
) -> Response:
    """Return a job's result, or with `partial` the committed part. If there is no result, the response is a 409."""
    await http.wait_for_end(cluster, job_id, wait_seconds)
    return await run_in_threadpool(_result, cluster, job_id, partial)


def _result(cluster: Cluster, job_id: str, partial: bool) -> Response:
    head, state, stored = cluster.queries.jobs.result(job_id)
    if stored is None and partial:
        if so_far := cluster.result_so_far(job_id, head["type"]):
            return Response(json.dumps({**head, "partial": True, **so_far}), media_type="application/json")
        head, state, stored = cluster.queries.jobs.result(job_id)  # the job ended in the meantime
    if stored is not None:
        return http.send_result(stored, json.dumps(head)[:-1].encode() + b', "result": ', b"}")
    detail = f"the job is {state}; only a job in state done has a result. Use partial=true to get the committed part"
    if registry.program_kind(head["type"]):
        detail += f"; list its units with: cluster units {job_id}; show their output with: cluster logs {job_id}"
    raise errors.Conflict(detail, field="state")


@routes.get("/jobs/{job_id}/{question}.json", dependencies=[http.require_scope(Scope.SUBMIT)], **_QUESTION)
async def get_answer(
    request: Request,
    job_id: http.JobId,
    question: Annotated[str, Path(max_length=64, description="Such as trace, for a job of kind thread.")],
    cluster: http.ClusterDep,
    principal: http.PrincipalDep,
) -> Response:
    """Return data that a worker computes about a job on demand. The status is 202, with Location, until the data is
    ready.
    """
    answering = await run_in_threadpool(cluster.ask_question, job_id, question, dict(request.query_params), principal)
    state, stored = await _wait_for_answer(cluster, answering)
    return http.send_result(stored) if stored else _not_yet(answering, state)


@routes.get("/jobs/{job_id}/{binary}.bin", description=_BINARIES, **_PACKED)
async def get_binary(
    request: Request,
    job_id: http.JobId,
    binary: Annotated[str, Path(max_length=64, description="Such as columns, for a job of kind collatz.")],
    cluster: http.ClusterDep,
    principal: http.PrincipalDep,
) -> Response:
    """Return data about a job as packed columns. The status is 202, with Location, until the data is ready."""
    choice = dict(request.query_params)
    kind, what = await run_in_threadpool(cluster.binary, job_id, binary)
    own = {name: choice.pop(name) for name in what.choices if name in choice}
    if choice and not what.question:
        raise errors.InvalidRequest(f"{binary} has no parameter {', '.join(choice)}", field=next(iter(choice)))
    source = job_id
    if what.question:
        principal.require(Scope.SUBMIT)
        source = await run_in_threadpool(cluster.ask_question, job_id, what.question, choice, principal)
    packer = cluster.packer(source, binary)
    if packer is None:
        state, stored = await (_wait_for_answer(cluster, source) if what.question else _read_stored(cluster, source))
        if stored is None:
            return _not_yet(source, state)
        packer = await cluster.prepare(kind, binary, source, stored)
    data = await run_in_threadpool(packer, own)
    return Response(data, media_type="application/octet-stream", headers={"Cache-Control": "private, max-age=600"})


async def _read_stored(cluster: Cluster, job_id: str) -> tuple[str, ResultText]:
    """Return a job's state and stored result. Raises Conflict if there is no result."""
    _, state, stored = await run_in_threadpool(cluster.queries.jobs.result, job_id)
    if stored is None:
        raise errors.Conflict(f"the job is {state}; its data is available in state done", field="state")
    return state, stored


async def _wait_for_answer(cluster: Cluster, answering: str) -> tuple[str, ResultText | None]:
    """Return the state of an on-demand job, and its result if it was ready within QUESTION_WAIT_SECONDS."""
    await http.wait_for_end(cluster, answering, QUESTION_WAIT_SECONDS)
    _, state, stored = await run_in_threadpool(cluster.queries.jobs.result, answering)
    if stored is None and state in TERMINAL:
        job = await run_in_threadpool(cluster.queries.jobs.job, answering)
        raise errors.ClusterError(f"job {answering}, which computes the requested data, is {state}: {job['error']}")
    return state, stored


def _not_yet(answering: str, state: str) -> Response:
    answer = json_response({"job_id": answering, "status": state}, 202)
    answer.headers.update({"Location": f"/api/jobs/{answering}/result", "Retry-After": "1"})
    return answer
