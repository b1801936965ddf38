"""Routes of jobs: submitting, reading, steering, their results, questions and marks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import Header, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.convertors import StringConvertor, register_url_convertor

from coordinator import bodies, http
from coordinator.cluster import Cluster
from coordinator.http import shown
from coordinator.jobs import schemas, submissions
from coordinator.jobs.rows import SubmittedRow
from jobs import errors
from jobs.kinds import registry
from jobs.models import TERMINAL, JobState

#: A question that takes longer is answered with 202.
QUESTION_WAIT_SECONDS = 2.0

_LATER: dict[int | str, dict[str, Any]] = {202: {"model": schemas.Asked, "description": "A worker still computes it"}}
_QUESTION: dict[str, Any] = {
    "response_model": None,
    "responses": {200: {"description": "As the kind says", "content": {"application/json": {"schema": {}}}}, **_LATER},
}

_PACKED: dict[str, Any] = {
    "response_model": None,
    "response_class": Response,
    "responses": {
        200: {
            "description": "TCB1 and columns",
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        },
        **_LATER,
    },
}
_CONTAINER = (
    "Numbers about a job as columns that a page reads without copying. Little-endian: `TCB1`; u32 length of the "
    'header; the header, JSON `{"facts": {}, "columns": [{"name", "type", "offset", "length"}]}` filled up with '
    "spaces; the columns. A column holds `length` items of `type` (u8, u16, u32, i32, u64, f32, f64) from byte "
    "`offset`, a multiple of 8. 202 with Location while a worker still computes what they are made of."
)
_BINARIES = "\n\n".join(
    [_CONTAINER]
    + [
        f"**{kind}, {name}.bin**: {binary.summary}"
        for kind in registry.names()
        if (packing := registry.packing(kind))
        for name, binary in packing.BINARIES.items()
    ]
)

routes = http.router()


# -- submitting -----------------------------------------------------------------------------------------------------


#: With a place behind it, a key is at most as long as a submission's may be.
_BATCH_KEY = submissions.MAX_KEY - len(f"/{submissions.MAX_BATCH}")
_BATCH_KEYS = "The same key and batch again answer with the same jobs: KEY/PLACE is the key of a job without its own."


class Batch(BaseModel):
    """Up to 1,000 submissions, each validated and answered alone."""

    model_config = ConfigDict(extra="forbid", strict=True)
    jobs: list[Any] = Field(min_length=1, max_length=submissions.MAX_BATCH)


class Ids(BaseModel):
    """Jobs whose results are wanted, in the order of the answers."""

    model_config = ConfigDict(extra="forbid")
    job_ids: list[Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]] = Field(
        min_length=1, max_length=submissions.MAX_BATCH
    )
    wait_seconds: float = Field(0, strict=True, ge=0, le=http.MAX_WAIT_SECONDS, allow_inf_nan=False)


@routes.post(
    "/submit", status_code=202, tags=["jobs"], openapi_extra=http.describes(submissions.Submission),
    **http.answers(schemas.Submitted, 202),
)  # fmt: skip
async def submit(
    request: Request,
    cluster: http.ClusterDep,
    owner: http.Owner,
    idempotency_key: Annotated[str | None, Header(max_length=submissions.MAX_KEY)] = None,
    wait_seconds: http.Wait = 0,
) -> Response:
    """Submit one job; with `wait_seconds`, answer with its result, or without it when that time is over."""
    body = await bodies.body(request)
    if isinstance(body, dict) and idempotency_key and "idempotency_key" not in body:
        body["idempotency_key"] = idempotency_key
    [answer] = await run_in_threadpool(cluster.submit, [body], owner)
    if isinstance(answer, errors.ClusterError):
        raise answer
    if not wait_seconds:
        return shown(answer, 202)
    await _waited(cluster, answer["job_id"], wait_seconds)
    return Response(await run_in_threadpool(_submitted, cluster, answer), 202, media_type="application/json")


def _submitted(cluster: Cluster, answer: SubmittedRow) -> bytes:
    """Return the answer with the state that the job has now, and with its result if it is done."""
    _, state, stored = cluster.queries.jobs.result(answer["job_id"])
    text = json.dumps(answer | {"status": state}, separators=(",", ":")).encode()
    return text if stored is None else text[:-1] + b',"result":' + stored + b"}"


@routes.post(
    "/submit-batch", tags=["jobs"], openapi_extra=http.describes(Batch), **http.answers(schemas.SubmittedBatch)
)
async def submit_batch(
    request: Request,
    cluster: http.ClusterDep,
    owner: http.Owner,
    idempotency_key: Annotated[str | None, Header(max_length=_BATCH_KEY, description=_BATCH_KEYS)] = None,
) -> Response:
    """Submit up to 1,000 jobs; an invalid one does not hold up the others."""
    async with bodies.held(request, bodies.MAX_BATCH_BODY, bodies.MAX_BATCH_VALUES) as body:
        batch = http.parsed(Batch, body)
        if idempotency_key:
            _give_keys(batch.jobs, idempotency_key)
        answers = await run_in_threadpool(cluster.submit, batch.jobs, owner)
    return shown({"answers": [_answer_or_problem(answer) for answer in answers]})


def _give_keys(bodies: Sequence[Any], key: str) -> None:
    """Give each job of a batch its key, so that the same key and batch again answer with the same jobs."""
    for place, body in enumerate(bodies):
        if isinstance(body, dict):
            body.setdefault("idempotency_key", f"{key}/{place}")


def _answer_or_problem(answer: SubmittedRow | errors.ClusterError) -> Mapping[str, Any]:
    return {"error": http.problem(answer)} if isinstance(answer, errors.ClusterError) else answer


@routes.get("/job-types", tags=["cluster"], **http.answers(schemas.Kinds))
def job_types(cluster: http.ClusterDep) -> Response:
    """Every kind: summary, JSON Schema of its parameters, an example."""
    return shown({"kinds": cluster.kinds()})


# -- jobs -----------------------------------------------------------------------------------------------------------


@routes.get("/jobs", tags=["jobs"], **http.answers(schemas.Jobs))
def list_jobs(
    cluster: http.ClusterDep,
    state: JobState | None = None,
    type: Annotated[str | None, Query(max_length=64)] = None,
    cursor: Annotated[int | None, Query(ge=0, le=2**53)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> Response:
    """Jobs, newest first; `cursor` of one page asks for the next."""
    if type is not None:
        registry.definition(type)
    return shown(cluster.queries.jobs.page(state, type, cursor, limit))


@routes.post("/results", tags=["jobs"], openapi_extra=http.describes(Ids), **http.answers(schemas.ManyResults))
async def results(request: Request, cluster: http.ClusterDep) -> Response:
    """States and results of many jobs, once all have ended or the time is over.

    An answer holds up to 16 MiB of results. Of a result beyond that it says where it is and how long: `result_at` and
    `result_bytes`.
    """
    asked = http.parsed(Ids, await bodies.body(request))
    if asked.wait_seconds:
        await cluster.hub.ends.wait(
            asked.job_ids, lambda: cluster.queries.jobs.states(asked.job_ids), asked.wait_seconds
        )
    return Response(await run_in_threadpool(cluster.queries.jobs.results, asked.job_ids), media_type="application/json")


async def _waited(cluster: Cluster, job_id: str, seconds: float) -> None:
    if seconds:
        await cluster.hub.ends.wait([job_id], lambda: cluster.queries.jobs.states([job_id]), seconds)


@routes.get("/jobs/{job_id}", tags=["jobs"], **http.answers(schemas.Job))
async def get_job(job_id: http.JobId, cluster: http.ClusterDep, wait_seconds: http.Wait = 0) -> Response:
    """One job; with `wait_seconds`, once it has ended or the time is over."""
    await _waited(cluster, job_id, wait_seconds)
    return shown(await run_in_threadpool(cluster.queries.jobs.job, job_id))


@routes.get("/jobs/{job_id}/result", tags=["jobs"], **http.answers(schemas.Result))
async def get_result(
    job_id: http.JobId, cluster: http.ClusterDep, wait_seconds: http.Wait = 0, partial: bool = False
) -> Response:
    """The result; 409 naming the state before the end. `partial` gives what is committed so far."""
    await _waited(cluster, job_id, wait_seconds)
    return Response(await run_in_threadpool(_result, cluster, job_id, partial), media_type="application/json")


def _result(cluster: Cluster, job_id: str, partial: bool) -> bytes:
    head, state, stored = cluster.queries.jobs.result(job_id)
    if stored is None and partial:
        if so_far := cluster.so_far(job_id, head["type"]):
            return json.dumps({**head, "partial": True, **so_far}).encode()
        head, state, stored = cluster.queries.jobs.result(job_id)  # it ended in between
    if stored is not None:
        return json.dumps(head)[:-1].encode() + b', "result": ' + stored + b"}"
    detail = f"the job is {state}; its result comes with state done. Ask with partial=true for what is there"
    raise errors.Conflict(detail, field="state")


@routes.get("/jobs/{job_id}/{question}.json", tags=["jobs"], **_QUESTION)
async def ask(
    request: Request,
    job_id: http.JobId,
    question: Annotated[str, Path(max_length=64, description="Such as trace, for a job of kind thread.")],
    cluster: http.ClusterDep,
) -> Response:
    """Answer that a worker computes about a job on demand. 202 with Location while it is still being computed."""
    answering = await run_in_threadpool(cluster.ask, job_id, question, dict(request.query_params))
    state, stored = await _answered(cluster, answering)
    return Response(stored, media_type="application/json") if stored else _not_yet(answering, state)


@routes.get("/jobs/{job_id}/{binary}.bin", tags=["jobs"], description=_BINARIES, **_PACKED)
async def get_binary(
    request: Request,
    job_id: http.JobId,
    binary: Annotated[str, Path(max_length=64, description="Such as columns, for a job of kind collatz.")],
    cluster: http.ClusterDep,
) -> Response:
    """Numbers about a job as packed columns. 202 with Location while a worker still computes their source."""
    choice = dict(request.query_params)
    kind, what = await run_in_threadpool(cluster.binary, job_id, binary)
    own = {name: choice.pop(name) for name in what.choices if name in choice}
    if choice and not what.question:
        raise errors.InvalidRequest(f"{binary} takes no {', '.join(choice)}", field=next(iter(choice)))
    source = await run_in_threadpool(cluster.ask, job_id, what.question, choice) if what.question else job_id
    packer = cluster.packer(source, binary)
    if packer is None:
        state, stored = await (_answered(cluster, source) if what.question else _stored(cluster, source))
        if stored is None:
            return _not_yet(source, state)
        packer = await run_in_threadpool(cluster.prepare, kind, binary, source, stored)
    data = await run_in_threadpool(packer, own)
    return Response(data, media_type="application/octet-stream", headers={"Cache-Control": "private, max-age=600"})


async def _stored(cluster: Cluster, job_id: str) -> tuple[str, bytes]:
    """Return a job's state and its result; Conflict while there is none."""
    _, state, stored = await run_in_threadpool(cluster.queries.jobs.result, job_id)
    if stored is None:
        raise errors.Conflict(f"the job is {state}; its numbers come with state done", field="state")
    return state, stored


async def _answered(cluster: Cluster, answering: str) -> tuple[str, bytes | None]:
    """Return the state of the job that answers a question, and its answer if it came within QUESTION_WAIT_SECONDS."""
    await _waited(cluster, answering, QUESTION_WAIT_SECONDS)
    _, state, stored = await run_in_threadpool(cluster.queries.jobs.result, answering)
    if stored is None and state in TERMINAL:
        job = await run_in_threadpool(cluster.queries.jobs.job, answering)
        raise errors.ClusterError(f"job {answering} was to answer and is {state}: {job['error']}")
    return state, stored


def _not_yet(answering: str, state: str) -> Response:
    answer = shown({"job_id": answering, "status": state}, 202)
    answer.headers.update({"Location": f"/api/jobs/{answering}/result", "Retry-After": "1"})
    return answer


class Verb(StringConvertor):
    """Part of a path: one of the commands that a job takes. Any other word there is a 404, not a 405."""

    regex = "cancel|pause|resume|retry"


register_url_convertor("verb", Verb())


@routes.post("/jobs/{job_id}/{verb:verb}", tags=["jobs"], **http.answers(schemas.Job))
def steer(
    job_id: http.JobId, verb: Annotated[str, Path(pattern="^(cancel|pause|resume|retry)$")], cluster: http.ClusterDep
) -> Response:
    """Cancel, pause, resume or retry a job. 409 naming the state when it does not allow that.

    A call that was carried out before changes nothing and answers 200, so that it can be repeated when its answer was
    lost: cancel of a cancelled job, pause of a paused one, resume or retry of one that waits or runs.
    """
    cluster.steer(job_id, verb)
    return shown(cluster.queries.jobs.job(job_id))


@routes.delete("/jobs/{job_id}", status_code=204, tags=["jobs"])
def delete(job_id: http.JobId, cluster: http.ClusterDep) -> Response:
    """Remove a finished job and its result."""
    cluster.steer(job_id, "delete")
    return Response(status_code=204)


# -- marks ----------------------------------------------------------------------------------------------------------


@routes.get("/kinds/{kind}/marks/{mark}", tags=["jobs"], **http.answers(schemas.Mark))
def get_mark(
    kind: Annotated[str, Path(max_length=64, description="A type of job, such as collatz.")],
    mark: Annotated[str, Path(max_length=64, description="One of its marks, such as verified.")],
    cluster: http.ClusterDep,
) -> Response:
    """Ranges that finished jobs of a kind proved: how far they reach from the origin without a hole, and the rest."""
    return shown(cluster.queries.jobs.mark(kind, mark))


_OLD = "Old name of /api/kinds/{kind}/marks/{mark}; another path of two parts comes before it."
routes.add_api_route(
    "/{kind}/{mark}", get_mark, methods=["GET"], tags=["jobs"], name="get_mark_by_old_name", deprecated=True,
    description=_OLD, route_class_override=http.Alias, **http.answers(schemas.Mark),
)  # fmt: skip
