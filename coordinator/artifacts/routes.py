"""Routes for artifacts: commit, list, read and delete."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Query, Request, Response

from coordinator.access.principal import Scope
from coordinator.artifacts import queries, serializers, threads
from coordinator.server import bodies, http, patterns
from coordinator.server.http import json_response
from jobs.store import artifacts
from threads_protocol import manifest
from threads_protocol.answers import artifacts as answers

routes = http.router(tag="artifacts")

#: Cursor of a page: creation time and ID of the last artifact on the previous page.
_CURSOR = r"^[0-9]{1,16}-[0-9a-f]{64}$"
_SUBMIT = [http.require_scope(Scope.SUBMIT)]
#: OpenAPI description of binary request and response bodies.
OCTETS: dict[str, Any] = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
Asked = Annotated[
    str,
    Path(
        pattern=r"^[A-Za-z0-9._-]{1,64}$", description="Artifact ID, at least its first 8 digits, or an artifact name."
    ),
]
Name = Annotated[
    str,
    Query(
        pattern=rf"{artifacts.NAME}|^$", description="Name for the artifact, which is kept as long as it has a name."
    ),
]


def binary_body(what: str) -> dict[str, Any]:
    """Return the OpenAPI description of a binary body."""
    return {"requestBody": {"required": True, "description": what, "content": OCTETS}}


def binary_response(what: str, *statuses: int) -> dict[str, Any]:
    """Return the route arguments for a binary response."""
    answers = {status: {"description": what, "content": OCTETS} for status in (200, *statuses)}
    return {"response_model": None, "response_class": Response, "responses": answers}


@routes.get("/artifacts", **http.describe_response(answers.ArtifactList))
def list_artifacts(
    cluster: http.ClusterDep,
    principal: http.PrincipalDep,
    cursor: Annotated[str | None, Query(pattern=_CURSOR, description="Cursor from the previous page.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """List the artifacts of your tenant, newest first."""
    page, more = queries.page(cluster.store.artifacts, principal.tenant, cursor, limit)
    return json_response({"artifacts": page, **({"cursor": more} if more else {})})


@routes.post(
    "/artifacts",
    dependencies=_SUBMIT,
    openapi_extra=binary_body("Manifest in the format of docs/artifacts.md"),
    **http.describe_response(answers.Committed),
)
async def commit_artifact(
    request: Request, cluster: http.ClusterDep, principal: http.PrincipalDep, name: Name = ""
) -> Response:
    """Create an artifact from a manifest. Upload all files of the artifact first.

    If files are missing, the response is a 409. Equal manifests create the same artifact.
    """
    async with bodies.open_bytes(request, manifest.MAX_BYTES) as text:
        how, row = await threads.run(lambda: cluster.artifacts.commit(principal.tenant, text, name, principal.actor))
    return json_response({"artifact": serializers.serialize_artifact(principal.tenant, row), "new": how == "new"})


@routes.get("/artifacts/{artifact}", **http.describe_response(answers.Artifact))
def get_artifact(artifact: Asked, cluster: http.ClusterDep, principal: http.PrincipalDep) -> Response:
    """Return an artifact without its manifest."""
    return json_response(
        serializers.serialize_artifact(principal.tenant, cluster.artifacts.find(principal.tenant, artifact))
    )


@routes.get("/artifacts/{artifact}/manifest", **binary_response("Manifest in the format of docs/artifacts.md"))
async def get_manifest(artifact: Asked, cluster: http.ClusterDep, principal: http.PrincipalDep) -> Response:
    """Return an artifact's manifest: paths, sizes and SHA-256 of its files. The manifest's SHA-256 is the artifact's
    ID.
    """

    def text() -> bytes:
        return cluster.artifacts.manifest(principal.tenant, cluster.artifacts.find(principal.tenant, artifact))

    return Response(await threads.run(text), media_type="application/octet-stream")


@routes.delete("/artifacts/{artifact}", status_code=204, dependencies=_SUBMIT)
async def delete_artifact(
    artifact: Asked,
    cluster: http.ClusterDep,
    principal: http.PrincipalDep,
    job: Annotated[
        str | None, Query(pattern=patterns.JOB_ID, description="Job that can hold the artifact until the job ends.")
    ] = None,
) -> Response:
    """Delete an artifact and its names. If another job than `job` holds the artifact, the response is a 409.

    If `job` has ended, it no longer holds the artifact. Otherwise, the artifact loses only its names.

    The artifact's files are deleted ten minutes later, unless other artifacts contain them.
    """
    await threads.run(lambda: cluster.artifacts.delete(principal.tenant, artifact, principal.actor, job=job or ""))
    return Response(status_code=204)
