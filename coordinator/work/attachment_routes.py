"""Worker API routes of attachments (shells in running programs): start, read input, write output, end.

The runner names the lease under which the shell started. The last output may arrive after that lease has ended.
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
from coordinator.attachments.wakeups import Wakes
from coordinator.server import bodies, http
from coordinator.state import shared_state
from coordinator.work import lease_check, schemas
from coordinator.work.identity import WorkerDep, worker_lease_token
from coordinator.work.lease_check import Job, LeasedCall
from jobs.store.attachments import MAX_BYTES, Chunk, Read
from jobs.store.work.bounds import Units

routes = http.router(tag="worker", scope=Scope.WORKER)

_PATH = "/worker/jobs/{job}/attachments/{attachment}"
_GONE = Read(state="ended", exit=None, reason="", size="", closed=True, worker="", upto=0, chunks=())


class Take(LeasedCall):
    """Request of a runner to start a shell for the program of a unit of its lease."""

    unit: Units


class ReadInput(LeasedCall):
    """Request of a runner to read the input of a shell after an offset."""

    after: Units
    size: str = Field("", max_length=20, description="Terminal size that the runner knows.")
    closed: bool = Field(False, description="Whether the runner knows that the input has ended.")
    wait_seconds: float = Field(0.0, ge=0, le=MOST_SECONDS)


class WriteOutput(LeasedCall):
    """Output of a shell, sent by its runner."""

    offset: Units
    stream: str = Field(pattern="^[oe]$", description="o for stdout or the terminal, e for stderr.")
    data: str = Field(max_length=2 * MAX_BYTES, description=f"Output in base64, up to {MAX_BYTES} bytes.")
    wait_seconds: float = Field(0.0, ge=0, le=MOST_SECONDS)


class End(LeasedCall):
    """Exit of a shell, reported by its runner."""

    exit: int | None = Field(ge=0, le=255)
    reason: str = Field("", max_length=500, description="Reason if the shell did not exit by itself.")


async def _body(request: Request, model: type[Any]) -> Any:
    return http.parse(model, await bodies.read_json(request, limit=MOST_BODY))


@routes.post(f"{_PATH}/take", **http.describe_response(schemas.TakenAttachment, body=Take))
async def take(
    request: Request, worker: WorkerDep, job: Job, attachment: AttachmentId, cluster: http.ClusterDep
) -> Response:
    """Start a requested shell for a unit of the lease. `about` is null if the request is no longer open."""
    asked: Take = await _body(request, Take)

    def work() -> dict[str, Any]:
        lease_check.require(cluster.store, worker, job, asked.lease)
        return {
            "about": cluster.store.attachments.take(
                attachment, job, worker_lease_token(worker, asked.lease), asked.unit
            )
        }

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
    """Read the shell's input after an offset, and discard earlier input. In state `ended`, the shell must exit."""
    asked: ReadInput = await _body(request, ReadInput)
    who = worker_lease_token(worker, asked.lease)

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
    """Send output of a shell from an offset on. While the client reads slowly, the call accepts no data."""
    asked: WriteOutput = await _body(request, WriteOutput)
    chunk, who = (
        Chunk(asked.stream, attachment_calls.decode_base64(asked.data)),
        worker_lease_token(worker, asked.lease),
    )

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
    """Report the exit of a shell after its last output."""
    asked: End = await _body(request, End)
    who = worker_lease_token(worker, asked.lease)
    done = await run_in_threadpool(cluster.store.attachments.end, attachment, who, asked.exit, asked.reason)
    return http.json_response({"ended": done})
