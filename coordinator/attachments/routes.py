"""Routes for users of attachments: open a shell, write its input, read its output, and close it.

Bytes have offsets, so a client that misses a response can repeat the call at any replica. Only the principal that
opened an attachment can use it.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request, Response
from starlette.concurrency import run_in_threadpool

from coordinator.access.principal import Scope
from coordinator.attachments import calls, queries, serializers
from coordinator.attachments.calls import AttachmentId
from coordinator.attachments.wakeups import Wakes
from coordinator.server import bodies, http
from coordinator.state import shared_state
from jobs import errors
from jobs.models import MAX_UNITS
from jobs.store.attachments import OF_A_TENANT, OF_A_UNIT, OF_ALL, Chunk, Read
from threads_protocol.answers import attachments as answers

routes = http.router(tag="programs", scope=Scope.RUN)

_PATH = "/jobs/{job_id}/attachments/{attachment}"
Wait = Annotated[float, Query(ge=0, le=calls.MOST_SECONDS, description="Seconds to wait if there is no output.")]
#: Error messages for the limits on attachments.
_BOUNDS = {
    "unit": f"this unit has {OF_A_UNIT} shells",
    "tenant": f"your tenant has {OF_A_TENANT} shells",
    "all": f"the cluster has {OF_ALL} shells",
}


def _missing(attachment: str) -> errors.NotFound:
    return errors.NotFound(
        f"you have no attachment {attachment}; it was never opened, or has ended", field="attachment"
    )


@routes.put(_PATH, **http.describe_response(answers.Attachment, body=calls.NewShell))
async def open_attachment(
    request: Request,
    job_id: http.JobId,
    attachment: AttachmentId,
    cluster: http.ClusterDep,
    principal: http.PrincipalDep,
) -> Response:
    """Open a shell in the environment of a unit, with the same user, folder, variables and limits.

    The shell ends with the unit, or if its output is not read for 30 seconds. If the unit has ended, the response is a
    409.
    """
    asked: calls.NewShell = http.parse(calls.NewShell, await bodies.read_json(request, limit=calls.MOST_BODY))

    def work() -> answers.Attachment:
        found = queries.unit(cluster.store, principal, job_id, asked.unit)
        how = cluster.store.attachments.ask(
            attachment,
            tenant=found.tenant,
            job=job_id,
            unit=asked.unit,
            owner=principal.token,
            about=asked.model_dump(include={"command", "terminal"}),
        )
        if how == "other":
            raise errors.Conflict("another attachment has this ID; choose a random ID", field="attachment")
        if how != "ok":
            detail = f"{_BOUNDS[how]}, the maximum; close one, or wait until one ends"
            raise errors.OverLimit(detail, field="unit", seconds=5)
        return {"attachment_id": attachment, "job_id": job_id, "unit": asked.unit, "unit_state": found.state}

    return http.json_response(await run_in_threadpool(work))


@routes.post(f"{_PATH}/input", **http.describe_response(answers.Input, body=calls.ShellInput))
async def write_attachment(
    request: Request,
    job_id: http.JobId,
    attachment: AttachmentId,
    cluster: http.ClusterDep,
    principal: http.PrincipalDep,
    wait_seconds: Wait = 0,
) -> Response:
    """Write input to a shell, or set the size of its terminal. At most 32 KiB of input are buffered."""
    asked: calls.ShellInput = http.parse(calls.ShellInput, await bodies.read_json(request, limit=calls.MOST_BODY))
    data, size = calls.decode_base64(asked.data), calls.serialize_size(asked)

    def work() -> tuple[str, int]:
        done = cluster.store.attachments.write(
            attachment, "in", principal.token, asked.offset, Chunk("i", data), closed=asked.closed, size=size
        )
        if done is None:
            raise _missing(attachment)
        return done

    def enough(done: tuple[str, int]) -> bool:
        return done[0] == "ended" or not data or done[1] > asked.offset

    wakes: Wakes = shared_state(request).wakes
    state, upto = await wakes.until(request, attachment, wait_seconds, work, enough)
    if asked.offset > upto and state != "ended":
        detail = f"offset: {asked.offset} leaves a gap; {upto} bytes have been received"
        raise errors.InvalidRequest(detail, field="offset")
    return http.json_response({"state": state, "upto": upto})


@routes.get(f"{_PATH}/output", **http.describe_response(answers.Output))
async def read_attachment(
    request: Request,
    job_id: http.JobId,
    attachment: AttachmentId,
    cluster: http.ClusterDep,
    principal: http.PrincipalDep,
    after: Annotated[
        int, Query(ge=0, le=MAX_UNITS, description="Number of bytes already read, which are discarded.")
    ] = 0,
    wait_seconds: Wait = 0,
) -> Response:
    """Read a shell's output after an offset, and its exit status. If 128 KiB are unread, the shell blocks."""
    store = cluster.store

    def look() -> Read:
        found = store.attachments.read(attachment, "out", principal.token, after)
        if found is None:
            raise _missing(attachment)
        return found

    def end_with_unit(found: Read) -> answers.Output:
        """End an attachment whose unit ended before the shell started."""
        unit_state = ""
        if found.state == "asked" and (asked := store.attachments.asked_by(attachment, principal.token)) is not None:
            state = store.outputs.unit(asked.job, asked.unit)
            unit_state = state.state if state else ""
            if state is None or state.ended:
                store.attachments.end(attachment, principal.token, None, "program")
                found = look()
        return serializers.serialize_output(found, unit_state)

    states = list[str]()

    def enough(found: Read) -> bool:
        states.append(found.state)
        return bool(found.chunks) or found.state == "ended" or found.state != states[0]

    wakes: Wakes = shared_state(request).wakes
    found = await wakes.until(request, attachment, wait_seconds, look, enough)
    await cluster.credentials.require_valid(principal)
    return http.json_response(await run_in_threadpool(end_with_unit, found))


@routes.delete(_PATH, status_code=204, response_class=Response)
async def close_attachment(
    job_id: http.JobId, attachment: AttachmentId, cluster: http.ClusterDep, principal: http.PrincipalDep
) -> Response:
    """Close a shell and end all processes that it started. If the shell has already ended, nothing happens."""
    if not await run_in_threadpool(cluster.store.attachments.end, attachment, principal.token, None, "left"):
        raise _missing(attachment)
    return Response(status_code=204)
