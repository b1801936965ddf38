"""HTTP in, models out; no decisions. Bodies are read by hand so that NaN, depth and size are refused in our words."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.concurrency import run_in_threadpool

from coordinator import submissions, views
from coordinator.cluster import Cluster
from coordinator.events import Event, after, merged
from jobs import errors, registry
from jobs.models import TERMINAL, JobState
from jobs.numbers import short

#: Largest bodies, in bytes: one submission, and a batch.
MAX_BODY = 1 << 20
MAX_BATCH_BODY = 16 << 20
#: Bodies under this are parsed where they arrive: a thread would cost more.
_SHORT = 1 << 16
#: A body over the limit is read on and thrown away up to here, so that its sender hears the answer.
_SWALLOW = 256 << 20
MAX_WAIT_SECONDS = 30.0
#: A question that takes longer is answered with 202.
QUESTION_WAIT_SECONDS = 2.0

JobId = Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{1,64}$", description="A job's id.")]
Wait = Annotated[float, Query(ge=0, le=MAX_WAIT_SECONDS, description="Seconds to wait for the job's end.")]


def _cluster(request: Request) -> Cluster:
    cluster: Cluster = request.app.state.cluster
    return cluster


_bearer = HTTPBearer(auto_error=False, description="CLUSTER_TOKEN, where the cluster has one")


def _owner(request: Request, given: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]) -> str:
    """Who submits; with CLUSTER_TOKEN set, only who knows it."""
    return _cluster(request).owner(given.credentials if given else "")


The = Annotated[Cluster, Depends(_cluster)]
Owner = Annotated[str, Depends(_owner)]


class Problem(BaseModel):
    """RFC 9457: what went wrong, why, and which field of the request it is about."""

    type: str
    title: str
    status: int
    detail: str
    field: str | None = None


_PROBLEMS: dict[int | str, dict[str, Any]] = {
    code: {"description": text, "content": {"application/problem+json": {"schema": Problem.model_json_schema()}}}
    for code, text in (("4XX", "What was asked cannot be done"), ("5XX", "It cannot be done now"))
}
open_routes = APIRouter(responses=_PROBLEMS)
routes = APIRouter(prefix="/api", dependencies=[Depends(_owner)], responses=_PROBLEMS)


async def _body(request: Request, limit: int, empty: Any = None) -> Any:
    """The parsed body, or `empty` for none. TooLarge over the limit; MalformedBody when it is not JSON."""
    kept, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size <= limit:
            kept.append(piece)
        elif size > _SWALLOW:
            break
    if size > limit:
        raise errors.TooLarge(f"the body has over {limit} bytes; split the batch or shorten it", field="body")
    text = b"".join(kept)
    if not text and empty is not None:
        return empty
    return _parsed(text) if size < _SHORT else await run_in_threadpool(_parsed, text)


def _parsed(text: bytes) -> Any:
    def refuse(name: str) -> None:
        raise errors.MalformedBody(f"{name} is not JSON; give a number", field="body")

    try:
        return json.loads(text, parse_constant=refuse)
    except errors.MalformedBody:
        raise
    except RecursionError:
        raise errors.MalformedBody("the body is nested too deeply", field="body") from None
    except ValueError as error:
        raise errors.MalformedBody(f"the body is not JSON: {error}", field="body") from None


def _describes(model: type[BaseModel]) -> dict[str, Any]:
    """For OpenAPI: the body that a route reads by hand."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": model.model_json_schema()}}}}


def _model(model: type[Any], body: Any) -> Any:
    if not isinstance(body, dict):
        raise errors.InvalidRequest(f"the body must be an object; got {short(body)}", field="body")
    try:
        return model.model_validate(body)
    except ValidationError as error:
        raise submissions.problems(error, model) from None


# -- health ---------------------------------------------------------------------------------------------------------


@open_routes.get("/health", tags=["health"])
async def health() -> dict[str, str]:
    """The process answers; says nothing of Redis."""
    return {"status": "ok", "version": views.VERSION}


@open_routes.get("/ready", tags=["health"])
def ready(cluster: The) -> dict[str, str]:
    """Redis answers too. 503 otherwise."""
    cluster.book.client.ping()
    return {"status": "ready"}


# -- submitting -----------------------------------------------------------------------------------------------------


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
    wait_seconds: float = Field(0, ge=0, le=MAX_WAIT_SECONDS, allow_inf_nan=False)


class Drain(BaseModel):
    """Whether a worker finishes what it has and takes nothing new."""

    model_config = ConfigDict(extra="forbid", strict=True)
    on: bool = True


@routes.post("/submit", status_code=202, tags=["jobs"], openapi_extra=_describes(submissions.Submission))
async def submit(
    request: Request, cluster: The, owner: Owner, idempotency_key: Annotated[str | None, Header(max_length=200)] = None
) -> dict[str, Any]:
    """Writes one job and rings its bell."""
    body = await _body(request, MAX_BODY)
    if isinstance(body, dict) and idempotency_key and "idempotency_key" not in body:
        body["idempotency_key"] = idempotency_key
    [answer] = await run_in_threadpool(cluster.submit, [body], owner)
    if isinstance(answer, errors.ClusterError):
        raise answer
    return answer


@routes.post("/submit-batch", tags=["jobs"], openapi_extra=_describes(Batch))
async def submit_batch(request: Request, cluster: The, owner: Owner) -> dict[str, Any]:
    """Writes up to 1,000 jobs; a bad one does not hold the others up."""
    batch = _model(Batch, await _body(request, MAX_BATCH_BODY))
    answers = await run_in_threadpool(cluster.submit, batch.jobs, owner)
    return {"answers": [_told(answer) for answer in answers]}


def _told(answer: dict[str, Any] | errors.ClusterError) -> dict[str, Any]:
    return {"error": problem(answer)} if isinstance(answer, errors.ClusterError) else answer


def problem(error: errors.ClusterError) -> dict[str, Any]:
    """RFC 9457: what, why and which field."""
    kind = type(error)
    body = {"type": f"urn:threads-cluster:{kind.__name__}", "title": kind.title(), "status": kind.status}
    told = {**body, "detail": error.detail}
    return {**told, "field": error.field} if error.field else told


# -- jobs -----------------------------------------------------------------------------------------------------------


@routes.get("/jobs", tags=["jobs"])
def list_jobs(
    cluster: The,
    state: JobState | None = None,
    type: Annotated[str | None, Query(max_length=64)] = None,
    cursor: Annotated[int | None, Query(ge=0, le=2**53)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> dict[str, Any]:
    """Jobs, newest first; `cursor` of one page asks for the next."""
    if type is not None:
        registry.definition(type)
    return cluster.views.jobs(state, type, cursor, limit)


@routes.post("/results", tags=["jobs"], openapi_extra=_describes(Ids))
async def results(request: Request, cluster: The) -> dict[str, Any]:
    """States and results of many jobs, once all have ended or the time is over."""
    asked = _model(Ids, await _body(request, MAX_BODY))
    if asked.wait_seconds:
        await cluster.hub.until_ended(asked.job_ids, lambda: cluster.views.states(asked.job_ids), asked.wait_seconds)
    return {"answers": await run_in_threadpool(cluster.views.results, asked.job_ids)}


async def _waited(cluster: Cluster, job_id: str, seconds: float) -> None:
    if seconds:
        await cluster.hub.until_ended([job_id], lambda: cluster.views.states([job_id]), seconds)


@routes.get("/jobs/{job_id}", tags=["jobs"])
async def get_job(job_id: JobId, cluster: The, wait_seconds: Wait = 0) -> dict[str, Any]:
    """One job; with `wait_seconds`, once it has ended or the time is over."""
    await _waited(cluster, job_id, wait_seconds)
    return await run_in_threadpool(cluster.views.job, job_id)


@routes.get("/jobs/{job_id}/result", tags=["jobs"])
async def get_result(job_id: JobId, cluster: The, wait_seconds: Wait = 0, partial: bool = False) -> Response:
    """The result; 409 naming the state before the end. `partial` gives what is committed so far."""
    await _waited(cluster, job_id, wait_seconds)
    return Response(await run_in_threadpool(_result, cluster, job_id, partial), media_type="application/json")


def _result(cluster: Cluster, job_id: str, partial: bool) -> bytes:
    head, state, stored = cluster.views.result(job_id)
    if stored is None and partial:
        if so_far := cluster.so_far(job_id, head["type"]):
            return json.dumps({**head, "partial": True, **so_far}).encode()
        head, state, stored = cluster.views.result(job_id)  # it ended in between
    if stored is not None:
        return json.dumps(head)[:-1].encode() + b', "result": ' + stored + b"}"
    detail = f"the job is {state}; its result comes with state done. Ask with partial=true for what is there"
    raise errors.Conflict(detail, field="state")


@routes.get("/jobs/{job_id}/{question}.json", tags=["jobs"])
async def ask(
    request: Request,
    job_id: JobId,
    question: Annotated[str, Path(max_length=64, description="Such as trace, for a job of kind thread.")],
    cluster: The,
) -> Response:
    """What a worker computes about a job when it is asked. 202 with Location while it still does."""
    answering = await run_in_threadpool(cluster.ask, job_id, question, dict(request.query_params))
    await _waited(cluster, answering, QUESTION_WAIT_SECONDS)
    _, state, stored = await run_in_threadpool(cluster.views.result, answering)
    if stored is not None:
        return Response(stored, media_type="application/json")
    if state in TERMINAL:
        job = await run_in_threadpool(cluster.views.job, answering)
        raise errors.ClusterError(f"job {answering} was to answer and is {state}: {job['error']}")
    where = {"Location": f"/api/jobs/{answering}/result", "Retry-After": "1"}
    return Response(json.dumps({"job_id": answering, "status": state}), 202, where, "application/json")


@routes.post("/jobs/{job_id}/{verb}", tags=["jobs"])
def steer(
    job_id: JobId, verb: Annotated[str, Path(pattern="^(cancel|pause|resume|retry)$")], cluster: The
) -> dict[str, Any]:
    """cancel, pause, resume or retry. 409 naming the state when it does not allow that."""
    cluster.steer(job_id, verb)
    return cluster.views.job(job_id)


@routes.delete("/jobs/{job_id}", status_code=204, tags=["jobs"])
def delete(job_id: JobId, cluster: The) -> Response:
    """Removes a finished job and its result."""
    cluster.steer(job_id, "delete")
    return Response(status_code=204)


# -- the fleet ------------------------------------------------------------------------------------------------------


@routes.get("/status", tags=["cluster"])
def status(cluster: The) -> dict[str, Any]:
    """Workers, queues and jobs in numbers."""
    return cluster.views.status()


@routes.get("/nodes", tags=["cluster"])
def nodes(cluster: The) -> dict[str, Any]:
    """Workers that live, and those lost within the hour."""
    return {"nodes": cluster.views.nodes()}


@routes.post("/nodes/{node_id}/drain", tags=["cluster"], openapi_extra=_describes(Drain))
async def drain(
    request: Request, node_id: Annotated[str, Path(pattern=r"^[A-Za-z0-9._-]{1,64}$")], cluster: The
) -> dict[str, Any]:
    """A drained worker ends its leases and takes nothing new; {"on": false} lets it work again."""
    asked = _model(Drain, await _body(request, MAX_BODY, empty={}))
    if not await run_in_threadpool(cluster.book.drain, node_id, asked.on):
        raise errors.NotFound(f"no worker {node_id}; list them with GET /api/nodes", field="node_id")
    return {"id": node_id, "draining": asked.on}


@routes.get("/job-types", tags=["cluster"])
def job_types(cluster: The) -> dict[str, Any]:
    """Every kind: summary, JSON Schema of its parameters, an example."""
    return {"kinds": cluster.kinds()}


@routes.get("/snapshot", tags=["cluster"])
def snapshot(cluster: The) -> dict[str, Any]:
    """The fleet at one moment and the stream's position from which /api/events goes on without a gap."""
    return {"stream": cluster.hub.last, "status": cluster.views.status(), "nodes": cluster.views.nodes(),
            **cluster.views.jobs(None, None, None, 100)}  # fmt: skip


@routes.get("/{kind}/{mark}", tags=["jobs"])
def get_mark(
    kind: Annotated[str, Path(max_length=64, description="A type of job, such as collatz.")],
    mark: Annotated[str, Path(max_length=64, description="One of its marks, such as verified.")],
    cluster: The,
) -> dict[str, Any]:
    """What finished jobs of a kind proved together, for good: how far from its origin without a hole, and the rest."""
    return cluster.views.mark(kind, mark)


# -- events ---------------------------------------------------------------------------------------------------------

_STREAMED: dict[int | str, dict[str, Any]] = {
    200: {"description": "Server-sent events", "content": {"text/event-stream": {"schema": {"type": "string"}}}}
}
_RESYNC = "event: resync\ndata: {}\n\n"
_SSE = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
LastId = Annotated[str | None, Header(alias="Last-Event-ID", pattern=r"^\d{1,20}-\d{1,20}$")]


def _frame(event: Event) -> str:
    return f"id: {event.id}\nevent: {event.fields.get('type', 'message')}\ndata: {json.dumps(event.data())}\n\n"


@routes.get("/jobs/{job_id}/events", tags=["events"], response_class=StreamingResponse, responses=_STREAMED)
async def job_events(job_id: JobId, cluster: The, last_event_id: LastId = None) -> StreamingResponse:
    """Server-sent events of one job: its state (or what came after Last-Event-ID), then what happens, to its end."""
    await run_in_threadpool(cluster.views.job, job_id)
    return StreamingResponse(_job_frames(cluster, job_id, last_event_id), media_type="text/event-stream", headers=_SSE)


async def _job_frames(cluster: Cluster, job_id: str, since: str | None) -> AsyncIterator[str]:
    yield "retry: 2000\n\n"
    with cluster.hub.subscribe(lambda event: event.job == job_id) as subscription:
        at = cluster.hub.last
        for event in await run_in_threadpool(cluster.hub.history, job_id, since) if since else []:
            at = event.id
            yield _frame(event)
        job = await run_in_threadpool(cluster.views.job, job_id)
        fields = {"job": job_id, "kind": job["type"], "type": job["state"], "state": job["state"],
                  "done": str(job["done"]), "total": str(job["total"])}  # fmt: skip
        present = Event(id=at, fields={**fields, **({"error": job["error"]} if job["error"] else {})})
        yield _frame(present)
        if job["state"] in TERMINAL:
            return
        async for found in merged(subscription, at):
            if found and not found.ends and int(found.fields["done"]) < int(job["done"]):
                continue  # the job was read after this happened
            yield _frame(found) if found else ": ping\n\n"
            if found and found.ends:
                return


@routes.get("/events", tags=["events"], response_class=StreamingResponse, responses=_STREAMED)
async def fleet_events(
    cluster: The,
    topics: Annotated[str, Query(pattern=r"^[a-z0-9:,_-]{0,1000}$")] = "jobs,workers",
    last_event_id: LastId = None,
) -> StreamingResponse:
    """Server-sent events of the fleet. Topics: jobs, workers, job:ID. `resync` says: take a new snapshot."""
    wanted = set(topics.split(","))
    return StreamingResponse(
        _fleet_frames(cluster, wanted, last_event_id), media_type="text/event-stream", headers=_SSE
    )


async def _fleet_frames(cluster: Cluster, wanted: set[str], since: str | None) -> AsyncIterator[str]:
    def matches(event: Event) -> bool:
        return ("jobs" if event.job else "workers") in wanted or f"job:{event.job}" in wanted

    yield "retry: 2000\n\n"
    with cluster.hub.subscribe(matches) as subscription:
        at = cluster.hub.last
        if since and after(at, since):
            missed = await run_in_threadpool(cluster.hub.fleet_history, since)
            if missed is None:
                yield _RESYNC
            for event in filter(matches, missed or []):
                at = event.id
                yield _frame(event)
        async for found in merged(subscription, at):
            yield _frame(found) if found else ": ping\n\n"
        yield _RESYNC
