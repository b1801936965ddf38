"""Routes of a job's files, for the worker that holds a lease of it: those that it was given, and what its units left.

Files that are uploaded become the job's tenant's.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query, Request, Response

from coordinator.access.principal import Scope
from coordinator.artifacts import answers, threads, upload_routes
from coordinator.artifacts.answers import Hashes, Sha
from coordinator.artifacts.routes import binary_body, binary_response
from coordinator.server import bodies, http
from coordinator.server.http import json_response
from coordinator.state import shared_state
from coordinator.work import outputs, schemas
from coordinator.work.inputs import Inputs, Which
from coordinator.work.leased import LeasedDep
from threads_protocol import bundles, manifest

routes = http.router(tag="worker", scope=Scope.WORKER)


async def _inputs(request: Request) -> Inputs:
    inputs: Inputs = shared_state(request).inputs
    return inputs


InputsDep = Annotated[Inputs, Depends(_inputs)]
Units = Annotated[
    str, Query(pattern=outputs.UNITS, max_length=8000, description="Units of the lease, such as 3-17,20.")
]


@routes.get("/worker/jobs/{job}/manifest", **binary_response("A manifest: docs/artifacts.md"))
async def get_manifest(lease: LeasedDep, inputs: InputsDep, which: Which = "files") -> Response:
    """The manifest of the files that the job was given, or of its items. 404 where it was given none."""
    text = await threads.run(lambda: inputs.manifest(lease, which))
    return Response(text, media_type="application/octet-stream")


@routes.post(
    "/worker/jobs/{job}/file-bundle", openapi_extra=http.describe_body(Hashes), **binary_response(upload_routes.BUNDLE)
)
async def get_bundle(request: Request, lease: LeasedDep, inputs: InputsDep, cluster: http.ClusterDep) -> Response:
    """Download files that the job was given: as many of the first as fit into a bundle. 403 for any other file."""
    asked: Hashes = http.parse(Hashes, await bodies.read_json(request))

    def work() -> Response:
        inputs.check(lease, asked.hashes[: bundles.MAX_FILES], "hashes")
        return answers.bundle_response(cluster.artifacts, lease.tenant, asked.hashes)

    return await threads.run(work)


@routes.get("/worker/jobs/{job}/files/{sha256}", **binary_response("The bytes of the file", 206))
async def get_file(
    request: Request, sha256: Sha, lease: LeasedDep, inputs: InputsDep, cluster: http.ClusterDep
) -> Response:
    """Download a file that the job was given, or one range of it. 403 for any other file."""

    await threads.run(lambda: inputs.check(lease, [sha256], "sha256"))
    return await answers.file_response(request, cluster.artifacts, lease.tenant, sha256)


async def _tenant(lease: LeasedDep) -> str:
    return lease.tenant


upload_routes.add(routes, "/worker/jobs/{job}", "the job's tenant", Depends(_tenant))


@routes.post(
    "/worker/jobs/{job}/artifacts",
    openapi_extra=binary_body("A manifest: docs/artifacts.md"),
    **http.describe_response(schemas.Kept),
)
async def keep(request: Request, lease: LeasedDep, units: Units, cluster: http.ClusterDep) -> Response:
    """Keep what these units of the lease left, as an artifact that the job holds. 409 where files are missing."""
    async with bodies.open_bytes(request, manifest.MAX_BYTES) as text:
        kept = await threads.run(lambda: outputs.keep(cluster.artifacts, cluster.store.outputs, lease, units, text))
    return json_response({"artifact_id": kept})
