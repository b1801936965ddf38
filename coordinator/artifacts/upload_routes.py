"""Routes for file uploads. Users and workers have the same routes at different paths."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from coordinator.artifacts import answers, threads
from coordinator.artifacts.answers import Hashes, Number, Sha, Size
from coordinator.artifacts.routes import binary_body
from coordinator.server import bodies, http
from coordinator.server.http import json_response
from jobs.store.files import PART_BYTES
from threads_protocol import bundles
from threads_protocol.answers import artifacts as artifact_answers

BUNDLE = 'A line `[["SHA-256", size], ...]`, then the contents of each file'

_PART = "Upload one part of a file: 8 MiB, or less for the last part. After the last of several parts, call `complete`."


def add(routes: APIRouter, below: str, whose: str, owner: Any, **more: Any) -> None:
    """Add the upload routes below a path.

    `owner` is the dependency that returns the tenant, and `whose` names the files' owner in descriptions.
    """

    @routes.post(
        f"{below}/missing-files",
        description=f"Return the files that {whose} does not have. Existing files are kept for at least one day.",
        **http.describe_response(artifact_answers.MissingFiles, body=Hashes),
        **more,
    )
    async def find_missing_files(request: Request, cluster: http.ClusterDep, tenant: str = owner) -> Response:
        asked: Hashes = http.parse(Hashes, await bodies.read_json(request))
        return json_response(await threads.run(lambda: answers.list_missing(cluster.artifacts, tenant, asked.hashes)))

    @routes.put(
        f"{below}/file-bundle",
        openapi_extra=binary_body(BUNDLE),
        **http.describe_response(artifact_answers.StoredFiles),
        **more,
    )
    async def put_bundle(request: Request, cluster: http.ClusterDep, tenant: str = owner) -> Response:
        """Upload many small files in one request. Either all files are stored, or none."""
        async with bodies.open_bytes(request, bundles.MAX_BODY) as body:
            return json_response(await threads.run(lambda: answers.put_bundle(cluster.artifacts, tenant, body)))

    @routes.put(
        f"{below}/files/{{sha256}}/parts/{{part}}",
        description=_PART,
        openapi_extra=binary_body("The bytes of this part"),
        **http.describe_response(artifact_answers.StoredPart),
        **more,
    )
    async def put_part(
        request: Request, sha256: Sha, part: Number, size: Size, cluster: http.ClusterDep, tenant: str = owner
    ) -> Response:
        async with bodies.open_bytes(request, PART_BYTES) as data:
            missing = await threads.run(lambda: answers.put_part(cluster.artifacts, tenant, sha256, size, part, data))
        return json_response(missing)

    @routes.post(f"{below}/files/{{sha256}}/complete", **http.describe_response(artifact_answers.StoredPart), **more)
    async def complete_file(sha256: Sha, cluster: http.ClusterDep, tenant: str = owner) -> Response:
        """Verify the uploaded parts of a file and store it. Verification takes seconds per GB."""
        await threads.run_long(lambda: cluster.artifacts.transfers.complete(tenant, sha256))
        return json_response({"missing": []})
