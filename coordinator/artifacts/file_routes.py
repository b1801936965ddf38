"""Routes of the files of artifacts: what is missing, uploads in parts and bundles, downloads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from coordinator import bodies, http
from coordinator.artifacts import bundles, manifest, schemas, transfers
from coordinator.artifacts.routes import gives_octets, takes_octets
from coordinator.asker import Scope
from coordinator.http import shown
from jobs.store.files import MAX_ASKED, PART_BYTES

routes = http.router()

_SUBMIT = [http.needs(Scope.SUBMIT)]
_READ = [http.needs(Scope.READ)]
#: Numbers of missing parts that an answer has at most.
_PARTS_SHOWN = 1000
Sha = Annotated[str, Path(pattern=manifest.SHA256, description="SHA-256 of a file, in hexadecimal digits.")]
Size = Annotated[int, Query(ge=0, le=manifest.MAX_FILE, description="Bytes of the whole file.")]
_BUNDLE = 'A line `[["SHA-256", bytes], ...]`, then the bytes of each file'


class Hashes(BaseModel):
    """Files by their SHA-256."""

    model_config = ConfigDict(extra="forbid")
    hashes: list[Annotated[str, Field(pattern=manifest.SHA256)]] = Field(min_length=1, max_length=MAX_ASKED)


@routes.post(
    "/missing-files", tags=["artifacts"], dependencies=_SUBMIT, openapi_extra=http.describes(Hashes),
    **http.answers(schemas.MissingFiles),
)  # fmt: skip
async def missing_files(request: Request, cluster: http.ClusterDep, asker: http.AskerDep) -> Response:
    """Which of these files one's tenant lacks. Those that it has stay for a day at least."""
    asked: Hashes = http.parsed(Hashes, await bodies.body(request))
    return shown(await run_in_threadpool(_missing, cluster.artifacts, asker.tenant, asked.hashes))


def _missing(trees: Any, tenant: str, hashes: list[str]) -> dict[str, Any]:
    wanted = trees.transfers.wanted(tenant, hashes)
    return {
        "missing": wanted.missing, "parts": wanted.parts, "part_bytes": PART_BYTES,
        "bundle_files": bundles.MAX_FILES, "bundle_bytes": bundles.MAX_BYTES,
    }  # fmt: skip


@routes.put(
    "/file-bundle", tags=["artifacts"], dependencies=_SUBMIT, openapi_extra=takes_octets(_BUNDLE),
    **http.answers(schemas.StoredFiles),
)  # fmt: skip
async def put_bundle(request: Request, cluster: http.ClusterDep, asker: http.AskerDep) -> Response:
    """Upload many small files in one request. All of them are stored, or none."""
    async with bodies.octets(request, bundles.MAX_BODY) as body:
        count, size = await run_in_threadpool(_put_bundle, cluster.artifacts, asker.tenant, body)
    return shown({"files": count, "bytes": size})


def _put_bundle(trees: Any, tenant: str, body: bytes) -> tuple[int, int]:
    stored: tuple[int, int] = trees.transfers.put_bundle(tenant, body)
    return stored


@routes.post(
    "/file-bundle", tags=["artifacts"], dependencies=_READ, openapi_extra=http.describes(Hashes),
    **gives_octets(_BUNDLE),
)  # fmt: skip
async def get_bundle(request: Request, cluster: http.ClusterDep, asker: http.AskerDep) -> Response:
    """Download many small files in one request: as many of the first as fit into a bundle, at least one."""
    asked: Hashes = http.parsed(Hashes, await bodies.body(request))
    wanted = asked.hashes[: bundles.MAX_FILES]
    packed = await run_in_threadpool(lambda: cluster.artifacts.transfers.get_bundle(asker.tenant, wanted))
    return Response(packed, media_type="application/octet-stream")


@routes.put(
    "/files/{sha256}/parts/{part}", tags=["artifacts"], dependencies=_SUBMIT,
    openapi_extra=takes_octets("The bytes of this part"), **http.answers(schemas.StoredPart),
)  # fmt: skip
async def put_part(
    request: Request, sha256: Sha, part: Annotated[int, Path(ge=0, le=manifest.MAX_FILE // PART_BYTES)], size: Size,
    cluster: http.ClusterDep, asker: http.AskerDep,
) -> Response:  # fmt: skip
    """Upload one part of a file, 8 MiB but for the last. A file of one part is stored at once, others by complete."""
    async with bodies.octets(request, PART_BYTES) as data:
        missing = await run_in_threadpool(
            lambda: cluster.artifacts.transfers.put_part(asker.tenant, sha256, size, part, data)
        )
    return shown({"missing": missing[:_PARTS_SHOWN]})


@routes.post(
    "/files/{sha256}/complete", tags=["artifacts"], dependencies=_SUBMIT, **http.answers(schemas.StoredPart)
)  # fmt: skip
def complete(sha256: Sha, cluster: http.ClusterDep, asker: http.AskerDep) -> Response:
    """Store a file whose parts are there. Its bytes are read and verified, which takes seconds for each GB."""
    cluster.artifacts.transfers.complete(asker.tenant, sha256)
    return shown({"missing": []})


@routes.get("/files/{sha256}", tags=["artifacts"], **gives_octets("The bytes of the file", 206))
def get_file(request: Request, sha256: Sha, cluster: http.ClusterDep, asker: http.AskerDep) -> Response:
    """Download a file of one's tenant, or one range of it."""
    found = cluster.artifacts.transfers
    file = found.find(asker.tenant, sha256)
    asked = transfers.span(request.headers.get("range", ""), file.size)
    start, end = asked or (0, file.size)
    pieces: Iterator[bytes] = found.read(asker.tenant, sha256, file, start, end)
    headers = {"Content-Length": str(end - start), "Accept-Ranges": "bytes", "ETag": f'"{sha256}"'}
    if asked:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{file.size}"
    return StreamingResponse(pieces, 206 if asked else 200, headers, "application/octet-stream")
