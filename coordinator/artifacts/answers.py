"""Build responses about files, for users and for workers."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from coordinator.artifacts import threads
from coordinator.artifacts.trees import Trees
from jobs.store.files import MAX_ASKED, PART_BYTES
from threads_protocol import bundles, manifest

#: Maximum number of missing parts listed in a response.
_PARTS_SHOWN = 1000
Sha = Annotated[str, Path(pattern=manifest.SHA256, description="SHA-256 of a file, in hexadecimal digits.")]
Number = Annotated[int, Path(ge=0, le=manifest.MAX_FILE // PART_BYTES)]
Size = Annotated[int, Query(ge=0, le=manifest.MAX_FILE, description="Size of the whole file in bytes.")]


class Hashes(BaseModel):
    """Request body that identifies files by their SHA-256."""

    model_config = ConfigDict(extra="forbid")
    hashes: list[Annotated[str, Field(pattern=manifest.SHA256)]] = Field(min_length=1, max_length=MAX_ASKED)


def list_missing(trees: Trees, tenant: str, hashes: list[str]) -> dict[str, Any]:
    """Return the files and parts that a tenant has not uploaded, and the upload limits."""
    missing = trees.transfers.find_missing(tenant, hashes)
    return {
        "missing": missing.missing,
        "parts": missing.parts,
        "part_bytes": PART_BYTES,
        "bundle_files": bundles.MAX_FILES,
        "bundle_bytes": bundles.MAX_BYTES,
    }


def put_bundle(trees: Trees, tenant: str, body: bytes) -> dict[str, Any]:
    """Store the files of a bundle. Return the number of new files and their size in bytes."""
    count, size = trees.transfers.put_bundle(tenant, body)
    return {"files": count, "bytes": size}


def put_part(trees: Trees, tenant: str, sha: str, size: int, part: int, data: bytes) -> dict[str, Any]:
    """Store a part of a file. Return the numbers of the first missing parts."""
    return {"missing": trees.transfers.put_part(tenant, sha, size, part, data)[:_PARTS_SHOWN]}


def bundle_response(trees: Trees, tenant: str, hashes: list[str]) -> Response:
    """Return a bundle of the requested files, up to the maximum size of a bundle."""
    packed = trees.transfers.get_bundle(tenant, hashes[: bundles.MAX_FILES])
    return Response(packed, media_type="application/octet-stream")


async def file_response(request: Request, trees: Trees, tenant: str, sha: str) -> Response:
    """Stream a file, or the byte range that the request asks for."""
    asked = request.headers.get("range", "")
    opened = await threads.run(lambda: trees.transfers.open(tenant, sha, asked))
    start, end = opened.span or (0, opened.size)
    headers = {"Content-Length": str(end - start), "Accept-Ranges": "bytes", "ETag": f'"{sha}"'}
    if opened.span:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{opened.size}"
    status = 206 if opened.span else 200
    return StreamingResponse(threads.pieces(opened.pieces), status, headers, "application/octet-stream")
