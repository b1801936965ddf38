"""Routes of data: chunks are artifacts that a source was read into, or that a model answered."""

from __future__ import annotations

import hashlib
import secrets
from typing import Annotated, Any

from fastapi import Path, Query, Request, Response

from coordinator import http
from coordinator.artifacts import threads
from coordinator.artifacts.catalog import CHUNK
from coordinator.asker import Scope
from coordinator.http import shown
from coordinator.models import bodies, queries, schemas, tasks
from coordinator.models.bodies import MoveData, NewData

routes = http.router()

_SUBMIT, _RUN = [http.needs(Scope.SUBMIT)], [http.needs(Scope.RUN)]
_DIGITS = 12
_ID = rf"^{CHUNK}[0-9a-f]{{{_DIGITS}}}$"
Chunk = Annotated[str, Path(pattern=_ID, description="A chunk's id.")]


@routes.get("/v1/data", tags=["models"], **http.answers(schemas.ChunkList))
async def list_data(
    cluster: http.ClusterDep, asker: http.AskerDep,
    cursor: Annotated[str, Query(pattern=rf"{_ID}|^$", description="As the page before said.")] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> Response:  # fmt: skip
    """List chunks of data by their ids."""
    rows, last = await threads.run(lambda: queries.chunks(cluster, asker.tenant, cursor, limit))
    return shown({"chunks": rows, **({"cursor": last} if last else {})})


@routes.post(
    "/v1/data", status_code=202, tags=["models"], dependencies=_RUN, openapi_extra=http.describes(NewData),
    **http.answers(schemas.ChunkBegun, 202),
)  # fmt: skip
async def create_data(
    request: Request, cluster: http.ClusterDep, asker: http.AskerDep, key: tasks.Key = None
) -> Response:  # fmt: skip
    """Have a runner read a source into a chunk, by a workflow that can be followed, cancelled and retried."""
    asked = await bodies.read(request, NewData, "source", pickled=True)
    drawn = hashlib.sha256(f"{asker.tenant} {key}".encode()).hexdigest() if key else secrets.token_hex(_DIGITS)
    chunk = f"{CHUNK}{drawn[:_DIGITS]}"
    fields: dict[str, Any] = {"source": asked.source, "target_device": asked.device, "chunk_id": chunk}
    fields |= {} if asked.secrets is None else {"secrets": asked.secrets}
    task = await threads.run(lambda: tasks.begin(cluster, asker, "data_create", chunk, key, fields))
    return shown({"chunk_id": chunk, "task_id": task}, 202)


@routes.get("/v1/data/{chunk}", tags=["models"], **http.answers(schemas.Chunk))
async def one_chunk(chunk: Chunk, cluster: http.ClusterDep, asker: http.AskerDep) -> Response:
    """Show a chunk and where it lies. 404 until it is there."""
    return shown(await threads.run(lambda: queries.chunk(cluster, asker.tenant, chunk)))


@routes.delete("/v1/data/{chunk}", status_code=204, tags=["models"], dependencies=_SUBMIT)
async def delete_chunk(chunk: Chunk, cluster: http.ClusterDep, asker: http.AskerDep) -> Response:
    """Delete a chunk; jobs that have it keep its files until they go."""

    def work() -> None:
        row = queries.chunk(cluster, asker.tenant, chunk)
        cluster.artifacts.delete(asker.tenant, row["artifact_id"], asker.actor, beside_jobs=True, name=chunk)

    await threads.run(work)
    return Response(status_code=204)


@routes.post(
    "/v1/data/{chunk}/move", status_code=202, tags=["models"], dependencies=_RUN,
    openapi_extra=http.describes(MoveData), **http.answers(schemas.TaskBegun, 202),
)  # fmt: skip
async def move_data(
    request: Request, chunk: Chunk, cluster: http.ClusterDep, asker: http.AskerDep, key: tasks.Key = None
) -> Response:  # fmt: skip
    """Bring a chunk to another place, and to no other besides the cluster's store, by a workflow."""
    return await _moved(request, "data_move", chunk, cluster, asker, key)


@routes.post(
    "/v1/data/{chunk}/transfer", status_code=202, tags=["models"], dependencies=_RUN,
    openapi_extra=http.describes(MoveData), **http.answers(schemas.TaskBegun, 202),
)  # fmt: skip
async def transfer_data(
    request: Request, chunk: Chunk, cluster: http.ClusterDep, asker: http.AskerDep, key: tasks.Key = None
) -> Response:  # fmt: skip
    """Bring a chunk to another host, as a move does."""
    return await _moved(request, "data_transfer", chunk, cluster, asker, key)


async def _moved(
    request: Request, action: str, chunk: str, cluster: http.ClusterDep, asker: http.AskerDep, key: str | None
) -> Response:  # fmt: skip
    asked = await bodies.read(request, MoveData)

    def work() -> str:
        queries.chunk(cluster, asker.tenant, chunk)
        fields = {"data_id": chunk, "target_device": asked.target_device}
        return tasks.begin(cluster, asker, action, chunk, key, fields)

    return shown({"task_id": await threads.run(work)}, 202)
