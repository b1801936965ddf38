"""Routes of models: list, register, download, copy, move, delete."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Query, Request, Response

from coordinator import http, places
from coordinator.artifacts import threads
from coordinator.asker import Asker, Scope
from coordinator.cluster import Cluster
from coordinator.http import shown
from coordinator.models import bodies, queries, schemas, tasks
from coordinator.models.bodies import Download, Move, Registration
from jobs import errors
from jobs.store import artifacts

routes = http.router()

_SUBMIT, _RUN = [http.needs(Scope.SUBMIT)], [http.needs(Scope.RUN)]
Name = Annotated[str, Path(pattern=artifacts.NAME, description="A model's name.")]


@routes.get("/v1/models", tags=["models"], **http.answers(schemas.ModelPage))
async def list_models(
    cluster: http.ClusterDep, asker: http.AskerDep,
    cursor: Annotated[str, Query(pattern=rf"{artifacts.NAME}|^$", description="As the page before said.")] = "",
    limit: Annotated[int, Query(ge=1, le=500, description="Names of artifacts that are looked at.")] = 200,
) -> Response:  # fmt: skip
    """List models: artifacts with a name and weights, and those that are registered, by name."""
    rows, last = await threads.run(lambda: queries.page(cluster, asker.tenant, cursor, limit))
    return shown({"models": rows, **({"cursor": last} if last else {})})


@routes.post(
    "/v1/models", status_code=201, tags=["models"], dependencies=_SUBMIT, openapi_extra=http.describes(Registration),
    **http.answers(schemas.Model, 201),
)  # fmt: skip
async def register_model(request: Request, cluster: http.ClusterDep, asker: http.AskerDep) -> Response:
    """Note where a model comes from, for downloads of its name. It lies nowhere yet."""
    asked = await bodies.read(request, Registration, "source")
    tenant, name = asker.tenant, asked.model_name

    def work() -> Response:
        cluster.models.register(tenant, name, asked.type, asked.source, asker.actor)
        return shown(queries.one(cluster, tenant, name), 201)

    return await threads.run(work)


@routes.get("/v1/models/{model}", tags=["models"], **http.answers(schemas.Model))
async def one_model(model: Name, cluster: http.ClusterDep, asker: http.AskerDep) -> Response:
    """Show a model and where it lies."""
    return shown(await threads.run(lambda: queries.one(cluster, asker.tenant, model)))


@routes.delete("/v1/models/{model}", status_code=204, tags=["models"], dependencies=_SUBMIT)
async def delete_model(
    model: Name, cluster: http.ClusterDep, asker: http.AskerDep,
    device: Annotated[str, Query(max_length=100, description="This place alone, such as HOST:disk.")] = "",
) -> Response:  # fmt: skip
    """Delete a model; with `device`, let it lie there no more. 409 while a service has it that no other name keeps."""

    def work() -> None:
        found = cluster.models.find(asker.tenant, model).artifact
        if device in ("", str(places.STORE)):
            _delete(cluster, asker, found, model)
        elif not cluster.store.artifacts.let_go(asker.tenant, found.id, _held(found, device)):
            raise errors.NotFound(f"device: {model} is gone", field="device")

    await threads.run(work)
    return Response(status_code=204)


def _delete(cluster: Cluster, asker: Asker, row: artifacts.Artifact, model: str) -> None:
    """Delete a model. Conflict names the services that have it."""
    try:
        cluster.artifacts.delete(asker.tenant, row.id, asker.actor, beside_jobs=True, name=model)
    except errors.Conflict:
        services = cluster.store.services.all()
        having = [one for one in services if (one.tenant, one.artifact) == (asker.tenant, row.id)]
        if not having:
            raise
        names = sorted(one.name for one in having if not one.deleted)
        first = f"services have {model}: {', '.join(names)}; first: cluster service delete {' '.join(names[:1])}"
        ending = f"a replica of a service of {model} that was deleted still ends; try again in a few seconds"
        raise errors.Conflict(f"model_name: {first if names else ending}", field="model_name") from None


def _held(row: artifacts.Artifact, device: str) -> str:
    """Return what holds an artifact at a place. NotFound where it does not lie there."""
    there = places.held(row.holders)
    if device not in there:
        lies = ", ".join(("disk", *there))
        raise errors.NotFound(f"device: it does not lie at {device}; it lies at {lies}", field="device")
    return f"{places.HOLDER}{device}"


@routes.post(
    "/v1/models/{model}/download", status_code=202, tags=["models"], dependencies=_RUN,
    openapi_extra=http.describes(Download), **http.answers(schemas.TaskBegun, 202),
)  # fmt: skip
async def download_model(
    request: Request, model: Name, cluster: http.ClusterDep, asker: http.AskerDep, key: tasks.Key = None
) -> Response:  # fmt: skip
    """Have a runner download a model from its source, by a workflow that can be followed, cancelled and retried."""
    asked = await bodies.read(request, Download, "source")
    if asked.source is None and not cluster.models.find(asker.tenant, model).source:
        detail = f"source: no source of {model} is known; give it, or register it with POST /api/v1/models"
        raise errors.InvalidRequest(detail, field="source")
    return await _begun(cluster, asker, "download", model, key, asked.model_dump(exclude_none=True))


@routes.post(
    "/v1/models/{model}/copy", status_code=202, tags=["models"], dependencies=_RUN, openapi_extra=http.describes(Move),
    **http.answers(schemas.TaskBegun, 202),
)  # fmt: skip
async def copy_model(
    request: Request, model: Name, cluster: http.ClusterDep, asker: http.AskerDep, key: tasks.Key = None
) -> Response:  # fmt: skip
    """Bring a model to another place, by a workflow."""
    asked = await bodies.read(request, Move)
    return await _begun(cluster, asker, "copy", model, key, asked.model_dump(exclude={"keep_source"}))


@routes.post(
    "/v1/models/{model}/move", status_code=202, tags=["models"], dependencies=_RUN, openapi_extra=http.describes(Move),
    **http.answers(schemas.TaskBegun, 202),
)  # fmt: skip
async def move_model(
    request: Request, model: Name, cluster: http.ClusterDep, asker: http.AskerDep, key: tasks.Key = None
) -> Response:  # fmt: skip
    """Bring a model to another place and let it leave the one before; the cluster's store keeps every model."""
    asked = await bodies.read(request, Move, gpus=True)
    return await _begun(cluster, asker, "move", model, key, asked.model_dump())


async def _begun(
    cluster: Cluster, asker: Asker, action: str, model: str, key: str | None, fields: dict[str, Any]
) -> Response:  # fmt: skip
    def work() -> str:
        if action != "download":
            cluster.models.find(asker.tenant, model)
        return tasks.begin(cluster, asker, action, model, key, {"model_name": model, **fields})

    return shown({"task_id": await threads.run(work)}, 202)
