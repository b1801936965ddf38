"""Worker API routes of a running program: its secrets and its live output. The worker must hold a lease of the job."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any

from fastapi import Request, Response
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from coordinator.access.principal import Scope
from coordinator.server import bodies, http
from coordinator.work import lease_check, schemas
from coordinator.work.identity import WorkerDep, worker_lease_token
from coordinator.work.lease_check import Job, LeasedCall
from jobs import errors
from jobs.store.work.bounds import Units
from jobs.store.work.live_output import MAX_BYTES, MOST_CHUNKS

routes = http.router(tag="worker", scope=Scope.WORKER)

#: Maximum size in bytes of a request body: MAX_BYTES in base64, and the JSON around the chunks.
_MOST_BODY = 2 * MAX_BYTES


class NewOutput(LeasedCall):
    """New output of a unit that a client follows."""

    unit: Units
    attempt: int = Field(ge=1, le=1_000_000)
    offset: Units = Field(description="Offset of the first byte in the attempt's output.")
    chunks: list[Annotated[list[str], Field(min_length=2, max_length=2)]] = Field(
        max_length=MOST_CHUNKS, description='Pairs ["o", stdout in base64] and ["e", stderr in base64], in order.'
    )


@routes.post("/worker/jobs/{job}/secrets", **http.describe_response(schemas.SecretValues, body=LeasedCall))
async def secrets(request: Request, worker: WorkerDep, job: Job, cluster: http.ClusterDep) -> Response:
    """Return the values of the secrets that the job names. If secrets are missing, the response is a 404 that lists
    them.
    """
    asked: LeasedCall = http.parse(LeasedCall, await bodies.read_json(request))

    def work() -> dict[str, str]:
        lease = lease_check.require(cluster.store, worker, job, asked.lease)
        return cluster.secrets.values(lease.tenant, _secret_names(lease.spec.get("secrets")))

    answer = http.json_response({"values": await run_in_threadpool(work)})
    answer.headers["Cache-Control"] = "no-store"
    return answer


def _secret_names(names: Any) -> list[str]:
    """Return the secret names in a specification without duplicates."""
    return list(dict.fromkeys(name for name in names if isinstance(name, str))) if isinstance(names, list) else []


@routes.post("/worker/jobs/{job}/output", **http.describe_response(schemas.Followed, body=NewOutput))
async def output(request: Request, worker: WorkerDep, job: Job, cluster: http.ClusterDep) -> Response:
    """Forward output to the followers of a unit: up to 64 KiB per call, and 64 KiB/s per job.

    Output beyond these limits is dropped. Followers detect gaps by the offsets.
    """
    asked: NewOutput = http.parse(NewOutput, await bodies.read_json(request, limit=_MOST_BODY))
    chunks = _decode_chunks(asked.chunks)

    def work() -> dict[str, bool]:
        live = cluster.store.live_output
        how = live.add(job, worker_lease_token(worker, asked.lease), asked.unit, asked.attempt, asked.offset, chunks)
        if how == "stale":
            raise lease_check.stale(job)
        return {"follow": how != "alone"}

    return http.json_response(await run_in_threadpool(work))


def _decode_chunks(rows: list[list[str]]) -> list[tuple[str, bytes]]:
    """Decode chunks into (stream, bytes) pairs. Raises InvalidRequest, and TooLarge beyond MAX_BYTES."""
    chunks = []
    for stream, text in rows:
        try:
            if stream not in ("o", "e"):
                raise ValueError
            chunks.append((stream, base64.b64decode(text.encode(), validate=True)))
        except (binascii.Error, ValueError):
            detail = 'chunks: each must be a pair of "o" or "e" and bytes in base64'
            raise errors.InvalidRequest(detail, field="chunks") from None
    if sum(len(data) for _, data in chunks) > MAX_BYTES:
        raise errors.TooLarge(
            f"chunks: must have at most {MAX_BYTES} bytes; send the rest in another call", field="chunks"
        )
    return chunks
