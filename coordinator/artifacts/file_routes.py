"""Routes for files of artifacts: list missing files, upload parts and bundles, and download."""

from __future__ import annotations

from fastapi import Depends, Request, Response

from coordinator.access.principal import Scope
from coordinator.artifacts import answers, threads, upload_routes
from coordinator.artifacts.answers import Hashes, Sha
from coordinator.artifacts.routes import binary_response
from coordinator.server import bodies, http

routes = http.router(tag="artifacts")

_SUBMIT = [http.require_scope(Scope.SUBMIT)]
_READ = [http.require_scope(Scope.READ)]


async def _tenant(principal: http.PrincipalDep) -> str:
    return principal.tenant


upload_routes.add(routes, "", "your tenant", Depends(_tenant), dependencies=_SUBMIT)


@routes.post(
    "/file-bundle",
    dependencies=_READ,
    openapi_extra=http.describe_body(Hashes),
    **binary_response(upload_routes.BUNDLE),
)
async def get_bundle(request: Request, cluster: http.ClusterDep, principal: http.PrincipalDep) -> Response:
    """Download many small files in one request.

    The bundle contains the first of the requested files that fit, and at least one file.
    """
    asked: Hashes = http.parse(Hashes, await bodies.read_json(request))
    return await threads.run(lambda: answers.bundle_response(cluster.artifacts, principal.tenant, asked.hashes))


@routes.get("/files/{sha256}", **binary_response("Contents of the file", 206))
async def get_file(request: Request, sha256: Sha, cluster: http.ClusterDep, principal: http.PrincipalDep) -> Response:
    """Download a file of your tenant, or one byte range of the file."""
    return await answers.file_response(request, cluster.artifacts, principal.tenant, sha256)
