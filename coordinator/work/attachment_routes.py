"""Routes of attachments for the runner that runs their units: begin, read what is typed, write, end.

The lease under which one was begun names it; what its shell wrote last may come after that lease has ended.
"""

from __future__ import annotations

from typing import Any

from fastapi import Request, Response
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from coordinator.access.principal import Scope
from coordinator.attachments import calls as attachment_calls
from coordinator.attachments import serializers
from coordinator.attachments.calls import MOST_BODY, MOST_SECONDS, AttachmentId
from coordinator.attachments.wakes import Wakes
from coordinator.server import bodies, http
from coordinator.state import shared_state
from coordinator.work import leased, schemas
from coordinator.work.identity import WorkerDep, owned
from coordinator.work.leased import Job, LeasedCall
from jobs.store.attachments import MAX_BYTES, Chunk, Read
from jobs.store.work.bounds import Units

routes = http.router(tag="worker", scope=Scope.WORKER)

_PATH = "/worker/jobs/{job}/attachments/{attachment}"
_GONE = Read(state="ended", exit=None, reason="", size="", closed=True, worker="", upto=0, chunks=())


class Take(LeasedCall):
    """A runner begins an attachment beside a unit of its lease."""

    unit: Units


class ReadInput(LeasedCall):
    """A runner reads what was typed after a place."""

    after: Units
    size: str = Field("", max_length=20, description="Of the terminal as the runner knows it.")
    closed: bool = Field(False, description="It knows that nothing comes any more.")
    wait_seconds: float = Field(0.0, ge=0, le=MOST_SECONDS)


class WriteOutput(LeasedCall):
    """A shell has written something."""

    offset: Units
    stream: str = Field(pattern="^[oe]$", description="o: stdout or the terminal; e: stderr.")
    data: str = Field(max_length=2 * MAX_BYTES, description=f"At most {MAX_BYTES} bytes in base64.")
    wait_seconds: float = Field(0.0, ge=0, le=MOST_SECONDS)


class End(LeasedCall):
    """A shell has ended."""

    exit: int | None = Field(ge=0, le=255)
    reason: str = Field("", max_length=500, description="Why, where it did not end by itself.")


async def _body(request: Request, model: type[Any]) -> Any:
    return http.parse(model, await bodies.read_json(request, limit=MOST_BODY))


@routes.post(f"{_PATH}/take", **http.describe_response(schemas.TakenAttachment, body=Take))
async def take(
    request: Request, worker: WorkerDep, job: Job, attachment: AttachmentId, cluster: http.ClusterDep
) -> Response:
    """Begin a shell that somebody has asked for, beside a unit of the lease. `about` null: it is over."""
    asked: Take = await _body(request, Take)

    def work() -> dict[str, Any]:
        leased.require(cluster.store, worker, job, asked.lease)
        return {"about": cluster.store.attachments.take(attachment, job, owned(worker, asked.lease), asked.unit)}

    return http.json_response(await run_in_threadpool(work))


@routes.post(f"{_PATH}/input", **http.describe_response(schemas.AttachmentInput, body=ReadInput))
async def read(
    request: Request,
    worker: WorkerDep,
    job: Job,
    attachment: AttachmentId,
    cluster: http.ClusterDep,
    principal: http.PrincipalDep,
) -> Response:
    """Read what was typed after a place, which lets go of what is before. ended: the shell must end."""
    asked: ReadInput = await _body(request, ReadInput)
    who = owned(worker, asked.lease)

    def look() -> Read:
        return cluster.store.attachments.read(attachment, "in", who, asked.after) or _GONE

    def enough(found: Read) -> bool:
        news = found.closed != asked.closed or found.size != asked.size
        return bool(found.chunks) or found.state == "ended" or news

    wakes: Wakes = shared_state(request).wakes
    found = await wakes.until(request, attachment, asked.wait_seconds, look, enough)
    await cluster.credentials.require_valid(principal)
    row = {"state": found.state, "size": found.size, "closed": found.closed, "upto": found.upto}
    return http.json_response({**row, "chunks": serializers.serialize_chunks(found.chunks)})


@routes.post(f"{_PATH}/output", **http.describe_response(schemas.AttachmentOutput, body=WriteOutput))
async def write(
    request: Request, worker: WorkerDep, job: Job, attachment: AttachmentId, cluster: http.ClusterDep
) -> Response:
    """Pass on what a shell wrote, from a place on; where its reader is slow, nothing is taken until it has read."""
    asked: WriteOutput = await _body(request, WriteOutput)
    chunk, who = Chunk(asked.stream, attachment_calls.decode_base64(asked.data)), owned(worker, asked.lease)

    def work() -> tuple[str, int]:
        done = cluster.store.attachments.write(attachment, "out", who, asked.offset, chunk)
        return done or ("ended", asked.offset)

    wakes: Wakes = shared_state(request).wakes
    state, upto = await wakes.until(
        request, attachment, asked.wait_seconds, work, lambda done: done[0] == "ended" or done[1] > asked.offset
    )
    return http.json_response({"state": state, "upto": upto})


@routes.post(f"{_PATH}/end", **http.describe_response(schemas.Ended, body=End))
async def end(
    request: Request, worker: WorkerDep, job: Job, attachment: AttachmentId, cluster: http.ClusterDep
) -> Response:
    """Say that a shell has ended, with nothing left of it."""
    asked: End = await _body(request, End)
    who = owned(worker, asked.lease)
    done = await run_in_threadpool(cluster.store.attachments.end, attachment, who, asked.exit, asked.reason)
    return http.json_response({"ended": done})
