"""Routes of the files of artifacts: what is missing, uploads in parts and bundles, downloads."""

from __future__ import annotations

from fastapi import Request, Response

from coordinator import bodies, http
from coordinator.artifacts import answers, threads
from coordinator.artifacts.answers import Hashes, Number, Sha, Size
from coordinator.artifacts.routes import gives_octets, takes_octets
from coordinator.asker import Scope
from coordinator.http import shown
from jobs.store.files import PART_BYTES
from threads_protocol import bundles
from threads_protocol.answers import artifacts as artifact_answers

routes = http.router(tag="artifacts")

_SUBMIT = [http.needs(Scope.SUBMIT)]
_READ = [http.needs(Scope.READ)]
BUNDLE = 'A line `[["SHA-256", bytes], ...]`, then the bytes of each file'


@routes.post("/missing-files", dependencies=_SUBMIT, **http.answers(artifact_answers.MissingFiles, takes=Hashes))
async def missing_files(request: Request, cluster: http.ClusterDep, asker: http.AskerDep) -> Response:
    """Which of these files one's tenant lacks. Those that it has stay for a day at least."""
    asked: Hashes = http.parsed(Hashes, await bodies.body(request))
    return shown(await threads.run(lambda: answers.missing(cluster.artifacts, asker.tenant, asked.hashes)))


@routes.put(
    "/file-bundle",
    dependencies=_SUBMIT,
    openapi_extra=takes_octets(BUNDLE),
    **http.answers(artifact_answers.StoredFiles),
)
async def put_bundle(request: Request, cluster: http.ClusterDep, asker: http.AskerDep) -> Response:
    """Upload many small files in one request. All of them are stored, or none."""
    async with bodies.octets(request, bundles.MAX_BODY) as body:
        return shown(await threads.run(lambda: answers.put_bundle(cluster.artifacts, asker.tenant, body)))


@routes.post("/file-bundle", dependencies=_READ, openapi_extra=http.describes(Hashes), **gives_octets(BUNDLE))
async def get_bundle(request: Request, cluster: http.ClusterDep, asker: http.AskerDep) -> Response:
    """Download many small files in one request: as many of the first as fit into a bundle, at least one."""
    asked: Hashes = http.parsed(Hashes, await bodies.body(request))
    return await threads.run(lambda: answers.bundle(cluster.artifacts, asker.tenant, asked.hashes))


@routes.put(
    "/files/{sha256}/parts/{part}",
    dependencies=_SUBMIT,
    openapi_extra=takes_octets("The bytes of this part"),
    **http.answers(artifact_answers.StoredPart),
)
async def put_part(
    request: Request, sha256: Sha, part: Number, size: Size, cluster: http.ClusterDep, asker: http.AskerDep
) -> Response:
    """Upload one part of a file, 8 MiB but for the last. A file of one part is stored at once, others by complete."""
    async with bodies.octets(request, PART_BYTES) as data:
        return shown(
            await threads.run(lambda: answers.put_part(cluster.artifacts, asker.tenant, sha256, size, part, data))
        )


@routes.post("/files/{sha256}/complete", dependencies=_SUBMIT, **http.answers(artifact_answers.StoredPart))
async def complete(sha256: Sha, cluster: http.ClusterDep, asker: http.AskerDep) -> Response:
    """Store a file whose parts are there. Its bytes are read and verified, which takes seconds for each GB."""
    await threads.run_long(lambda: cluster.artifacts.transfers.complete(asker.tenant, sha256))
    return shown({"missing": []})


@routes.get("/files/{sha256}", **gives_octets("The bytes of the file", 206))
async def get_file(request: Request, sha256: Sha, cluster: http.ClusterDep, asker: http.AskerDep) -> Response:
    """Download a file of one's tenant, or one range of it."""
    return await answers.file(request, cluster.artifacts, asker.tenant, sha256)
