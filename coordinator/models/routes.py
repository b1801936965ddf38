"""Routes of models and data, and of the workflows that copy them to other locations."""

from __future__ import annotations

import hashlib
import secrets
from typing import Annotated, Any

from fastapi import Path, Query, Request, Response

from coordinator import locations
from coordinator.access.principal import Principal, Scope
from coordinator.artifacts import threads
from coordinator.artifacts.catalog import CHUNK, Model
from coordinator.cluster import Cluster
from coordinator.models import bodies, queries, tasks
from coordinator.models.bodies import Download, Move, MoveData, NewData, Registration
from coordinator.server import http
from coordinator.server.http import json_response
from jobs import errors
from jobs.store import artifacts
from threads_protocol.answers import models as answers

routes = http.router()

_SUBMIT = [http.require_scope(Scope.SUBMIT)]
_DIGITS = 12
_ID = rf"^{CHUNK}[0-9a-f]{{{_DIGITS}}}$"
Chunk = Annotated[str, Path(pattern=_ID, description="A chunk's id.")]
Name = Annotated[str, Path(pattern=artifacts.NAME, description="A model's name.")]


# -- data: a chunk is an artifact that was read from a source or written by a model ------------------------------------


@routes.get("/v1/data", tags=["models"], **http.describe_response(answers.ChunkList))
async def list_data(
    cluster: http.ClusterDep,
    principal: http.PrincipalDep,
    cursor: Annotated[str, Query(pattern=rf"{_ID}|^$", description="Cursor of the previous page.")] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> Response:
    """List chunks of data, sorted by ID."""
    rows, last = await threads.run(lambda: queries.chunks(cluster, principal.tenant, cursor, limit))
    return json_response({"chunks": rows, **({"cursor": last} if last else {})})


@routes.post("/v1/data", **tasks.describe_route(NewData, answers.ChunkBegun))
async def create_data(
    request: Request, cluster: http.ClusterDep, principal: http.PrincipalDep, key: tasks.Key = None
) -> Response:
    """Create a chunk of data from a source, which a runner reads.

    The response names a workflow that can be followed, cancelled and retried.
    """
    asked = await bodies.parse_body(request, NewData, "source", pickled=True)
    drawn = hashlib.sha256(f"{principal.tenant} {key}".encode()).hexdigest() if key else secrets.token_hex(_DIGITS)
    chunk = f"{CHUNK}{drawn[:_DIGITS]}"
    fields: dict[str, Any] = {"source": asked.source, "target_device": asked.device, "chunk_id": chunk}
    fields |= {} if asked.secrets is None else {"secrets": asked.secrets}
    task = await threads.run(lambda: tasks.begin(cluster, principal, "data_create", chunk, key, fields, "device"))
    return json_response({"chunk_id": chunk, "task_id": task}, 202)


@routes.get("/v1/data/{chunk}", tags=["models"], **http.describe_response(answers.Chunk))
async def get_chunk(chunk: Chunk, cluster: http.ClusterDep, principal: http.PrincipalDep) -> Response:
    """Return a chunk and its locations. Returns 404 until the chunk is complete."""
    return json_response(await threads.run(lambda: queries.chunk(cluster, principal.tenant, chunk)))


@routes.delete("/v1/data/{chunk}", status_code=204, tags=["models"], dependencies=_SUBMIT)
async def delete_chunk(chunk: Chunk, cluster: http.ClusterDep, principal: http.PrincipalDep) -> Response:
    """Delete a chunk. Jobs that use it keep its files until those jobs are deleted."""

    def work() -> None:
        row = queries.chunk(cluster, principal.tenant, chunk)
        cluster.artifacts.delete(principal.tenant, row["artifact_id"], principal.actor, beside_jobs=True, name=chunk)

    await threads.run(work)
    return Response(status_code=204)


@routes.post("/v1/data/{chunk}/move", **tasks.describe_route(MoveData))
async def move_data(
    request: Request, chunk: Chunk, cluster: http.ClusterDep, principal: http.PrincipalDep, key: tasks.Key = None
) -> Response:
    """Start a workflow that moves a chunk to one location outside the cluster's store."""
    return await _begin_move(request, "data_move", chunk, cluster, principal, key)


@routes.post("/v1/data/{chunk}/transfer", **tasks.describe_route(MoveData))
async def transfer_data(
    request: Request, chunk: Chunk, cluster: http.ClusterDep, principal: http.PrincipalDep, key: tasks.Key = None
) -> Response:
    """Start a workflow that copies a chunk to another host."""
    return await _begin_move(request, "data_transfer", chunk, cluster, principal, key)


async def _begin_move(
    request: Request, action: str, chunk: str, cluster: http.ClusterDep, principal: http.PrincipalDep, key: str | None
) -> Response:
    asked = await bodies.parse_body(request, MoveData)
    fields = {"data_id": chunk, "target_device": asked.target_device}
    return await tasks.begin_task(cluster, principal, action, chunk, key, fields, queries.chunk)


# -- models ------------------------------------------------------------------------------------------------------------


@routes.get("/v1/models", tags=["models"], **http.describe_response(answers.ModelPage))
async def list_models(
    cluster: http.ClusterDep,
    principal: http.PrincipalDep,
    cursor: Annotated[str, Query(pattern=rf"{artifacts.NAME}|^$", description="Cursor of the previous page.")] = "",
    limit: Annotated[int, Query(ge=1, le=500, description="Number of artifact names to examine.")] = 200,
) -> Response:
    """List models by name: named artifacts with weights, and registered names."""
    rows, last = await threads.run(lambda: queries.page(cluster, principal.tenant, cursor, limit))
    return json_response({"models": rows, **({"cursor": last} if last else {})})


@routes.post(
    "/v1/models",
    tags=["models"],
    dependencies=_SUBMIT,
    **http.describe_response(answers.Model, 201, body=Registration),
)
async def register_model(request: Request, cluster: http.ClusterDep, principal: http.PrincipalDep) -> Response:
    """Register a model's name and source for later downloads."""
    asked = await bodies.parse_body(request, Registration, "source")
    tenant, name = principal.tenant, asked.model_name

    def work() -> Response:
        cluster.models.register(tenant, name, asked.type, asked.source, principal.actor)
        return json_response(queries.find_model(cluster, tenant, name), 201)

    return await threads.run(work)


@routes.get("/v1/models/{model}", tags=["models"], **http.describe_response(answers.Model))
async def get_model(model: Name, cluster: http.ClusterDep, principal: http.PrincipalDep) -> Response:
    """Return a model and its locations."""
    return json_response(await threads.run(lambda: queries.find_model(cluster, principal.tenant, model)))


@routes.delete("/v1/models/{model}", status_code=204, tags=["models"], dependencies=_SUBMIT)
async def delete_model(
    model: Name,
    cluster: http.ClusterDep,
    principal: http.PrincipalDep,
    device: Annotated[
        str, Query(max_length=100, description="Delete only the copy at this location, such as HOST:disk.")
    ] = "",
) -> Response:
    """Delete a model, or only its copy at the location `device`.

    Returns 409 while a service uses a model without another name.
    """

    def work() -> None:
        found = cluster.models.find(principal.tenant, model).artifact
        if device in ("", str(locations.STORE)):
            _delete(cluster, principal, found, model)
        elif not cluster.store.artifacts.let_go(principal.tenant, found.id, _find_holder(found, device)):
            raise errors.NotFound(f"device: {model} was deleted", field="device")

    await threads.run(work)
    return Response(status_code=204)


def _delete(cluster: Cluster, principal: Principal, row: artifacts.Artifact, model: str) -> None:
    """Delete a model. Raises Conflict, which names the services that use it."""
    try:
        cluster.artifacts.delete(principal.tenant, row.id, principal.actor, beside_jobs=True, name=model)
    except errors.Conflict:
        services = cluster.store.services.all()
        having = [one for one in services if (one.tenant, one.artifact) == (principal.tenant, row.id)]
        if not having:
            raise
        names = sorted(one.name for one in having if not one.deleted)
        first = (
            f"these services use {model}: {', '.join(names)}; first run: cluster service delete {' '.join(names[:1])}"
        )
        ending = f"a replica of a deleted service still uses {model}; try again in a few seconds"
        raise errors.Conflict(f"model_name: {first if names else ending}", field="model_name") from None


def _find_holder(row: artifacts.Artifact, device: str) -> str:
    """Return the holder of an artifact at a location. A location without a host is on the only host with a copy.

    Raises NotFound if the location has no copy, or if several hosts have a copy.
    """
    there = locations.list_locations(row.holders)
    fitting = [place for place in there if device == place or (":" not in device and place.endswith(f":{device}"))]
    if len(fitting) != 1:
        places = ", ".join(("disk", *there))
        which = f"several copies at {device}; add the host, such as {fitting[0]}" if fitting else f"no copy at {device}"
        raise errors.NotFound(f"device: the model has {which}; its locations are {places}", field="device")
    return f"{locations.HOLDER_PREFIX}{fitting[0]}"


@routes.post("/v1/models/{model}/download", **tasks.describe_route(Download))
async def download_model(
    request: Request, model: Name, cluster: http.ClusterDep, principal: http.PrincipalDep, key: tasks.Key = None
) -> Response:
    """Start a workflow that downloads a model on a runner.

    The workflow can be followed, cancelled and retried.
    """
    asked = await bodies.parse_body(request, Download, "source")
    if asked.source is None and not cluster.models.find(principal.tenant, model).source:
        detail = f"source: {model} has no registered source; set source, or register the model with POST /api/v1/models"
        raise errors.InvalidRequest(detail, field="source")
    fields = {"model_name": model, **asked.model_dump(exclude_none=True)}
    return await tasks.begin_task(cluster, principal, "download", model, key, fields)


@routes.post("/v1/models/{model}/copy", **tasks.describe_route(Move))
async def copy_model(
    request: Request, model: Name, cluster: http.ClusterDep, principal: http.PrincipalDep, key: tasks.Key = None
) -> Response:
    """Start a workflow that copies a model to another location."""
    asked = await bodies.parse_body(request, Move)
    fields = {"model_name": model, **asked.model_dump(exclude={"keep_source"})}
    return await tasks.begin_task(cluster, principal, "copy", model, key, fields, _find)


@routes.post("/v1/models/{model}/move", **tasks.describe_route(Move))
async def move_model(
    request: Request, model: Name, cluster: http.ClusterDep, principal: http.PrincipalDep, key: tasks.Key = None
) -> Response:
    """Start a workflow that moves a model to another location. The cluster's store keeps every model."""
    asked = await bodies.parse_body(request, Move, gpus=True)
    fields = {"model_name": model, **asked.model_dump()}
    return await tasks.begin_task(cluster, principal, "move", model, key, fields, _find)


def _find(cluster: Cluster, tenant: str, model: str) -> Model:
    return cluster.models.find(tenant, model)
