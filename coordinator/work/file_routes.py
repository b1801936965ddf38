"""Routes of a job's files, for the worker that holds a lease of it: those that it was given, and what its units left.

Files that are uploaded become the job's tenant's.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query, Request, Response

from coordinator import bodies, http
from coordinator.artifacts import answers, file_routes, threads
from coordinator.artifacts import schemas as artifact_schemas
from coordinator.artifacts.answers import Hashes, Number, Sha, Size
from coordinator.artifacts.routes import gives_octets, takes_octets
from coordinator.asker import Scope
from coordinator.http import shown
from coordinator.state import shared_state
from coordinator.work import outputs, schemas
from coordinator.work.inputs import Inputs, Which
from coordinator.work.leased import LeasedDep
from jobs.store.files import PART_BYTES
from jobs.trees import bundles, manifest

routes = http.router()

_WORKER = [http.needs(Scope.WORKER)]


async def _inputs(request: Request) -> Inputs:
    inputs: Inputs = shared_state(request).inputs
    return inputs


InputsDep = Annotated[Inputs, Depends(_inputs)]
Units = Annotated[
    str, Query(pattern=outputs.UNITS, max_length=8000, description="Units of the lease, such as 3-17,20.")
]  # fmt: skip


@routes.get(
    "/worker/jobs/{job}/manifest", tags=["worker"], dependencies=_WORKER,
    **gives_octets("A manifest: docs/artifacts.md"),
)  # fmt: skip
async def get_manifest(lease: LeasedDep, inputs: InputsDep, which: Which = "files") -> Response:
    """The manifest of the files that the job was given, or of its items. 404 where it was given none."""
    text = await threads.run(lambda: inputs.manifest(lease, which))
    return Response(text, media_type="application/octet-stream")


@routes.post(
    "/worker/jobs/{job}/file-bundle", tags=["worker"], dependencies=_WORKER, openapi_extra=http.describes(Hashes),
    **gives_octets(file_routes.BUNDLE),
)  # fmt: skip
async def get_bundle(request: Request, lease: LeasedDep, inputs: InputsDep, cluster: http.ClusterDep) -> Response:
    """Download files that the job was given: as many of the first as fit into a bundle. 403 for any other file."""
    asked: Hashes = http.parsed(Hashes, await bodies.body(request))

    def work() -> Response:
        inputs.check(lease, asked.hashes[: bundles.MAX_FILES], "hashes")
        return answers.bundle(cluster.artifacts, lease.tenant, asked.hashes)

    return await threads.run(work)


@routes.get(
    "/worker/jobs/{job}/files/{sha256}", tags=["worker"], dependencies=_WORKER,
    **gives_octets("The bytes of the file", 206),
)  # fmt: skip
async def get_file(
    request: Request, sha256: Sha, lease: LeasedDep, inputs: InputsDep, cluster: http.ClusterDep
) -> Response:
    """Download a file that the job was given, or one range of it. 403 for any other file."""

    await threads.run(lambda: inputs.check(lease, [sha256], "sha256"))
    return await answers.file(request, cluster.artifacts, lease.tenant, sha256)


@routes.post(
    "/worker/jobs/{job}/missing-files", tags=["worker"], dependencies=_WORKER, openapi_extra=http.describes(Hashes),
    **http.answers(artifact_schemas.MissingFiles),
)  # fmt: skip
async def missing_files(request: Request, lease: LeasedDep, cluster: http.ClusterDep) -> Response:
    """Which of these files the job's tenant lacks. Those that it has stay for a day at least."""
    asked: Hashes = http.parsed(Hashes, await bodies.body(request))
    return shown(await threads.run(lambda: answers.missing(cluster.artifacts, lease.tenant, asked.hashes)))


@routes.put(
    "/worker/jobs/{job}/file-bundle", tags=["worker"], dependencies=_WORKER,
    openapi_extra=takes_octets(file_routes.BUNDLE), **http.answers(artifact_schemas.StoredFiles),
)  # fmt: skip
async def put_bundle(request: Request, lease: LeasedDep, cluster: http.ClusterDep) -> Response:
    """Upload many small files in one request. All of them are stored, or none."""
    async with bodies.octets(request, bundles.MAX_BODY) as body:
        return shown(await threads.run(lambda: answers.put_bundle(cluster.artifacts, lease.tenant, body)))


@routes.put(
    "/worker/jobs/{job}/files/{sha256}/parts/{part}", tags=["worker"], dependencies=_WORKER,
    openapi_extra=takes_octets("The bytes of this part"), **http.answers(artifact_schemas.StoredPart),
)  # fmt: skip
async def put_part(
    request: Request, sha256: Sha, part: Number, size: Size, lease: LeasedDep, cluster: http.ClusterDep
) -> Response:
    """Upload one part of a file, 8 MiB but for the last. A file of one part is stored at once, others by complete."""
    async with bodies.octets(request, PART_BYTES) as data:
        return shown(
            await threads.run(lambda: answers.put_part(cluster.artifacts, lease.tenant, sha256, size, part, data))
        )


@routes.post(
    "/worker/jobs/{job}/files/{sha256}/complete", tags=["worker"], dependencies=_WORKER,
    **http.answers(artifact_schemas.StoredPart),
)  # fmt: skip
async def complete(sha256: Sha, lease: LeasedDep, cluster: http.ClusterDep) -> Response:
    """Store a file whose parts are there. Its bytes are read and verified, which takes seconds for each GB."""
    await threads.run_long(lambda: cluster.artifacts.transfers.complete(lease.tenant, sha256))
    return shown({"missing": []})


@routes.post(
    "/worker/jobs/{job}/artifacts", tags=["worker"], dependencies=_WORKER,
    openapi_extra=takes_octets("A manifest: docs/artifacts.md"), **http.answers(schemas.Kept),
)  # fmt: skip
async def keep(request: Request, lease: LeasedDep, units: Units, cluster: http.ClusterDep) -> Response:
    """Keep what these units of the lease left, as an artifact that the job holds. 409 where files are missing."""
    async with bodies.octets(request, manifest.MAX_BYTES) as text:
        kept = await threads.run(lambda: outputs.keep(cluster.artifacts, cluster.store.outputs, lease, units, text))
    return shown({"artifact_id": kept})
