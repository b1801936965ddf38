"""Rows of artifacts, as the API shows them; `schemas.py` describes the same to clients."""

from __future__ import annotations

from typing import TypedDict

from coordinator import decoding
from jobs.store.artifacts import Artifact


class ArtifactRow(TypedDict):
    artifact_id: str
    tenant: str
    names: list[str]
    files: int
    bytes: int
    manifest_bytes: int
    created: str
    held_by: list[str]


def artifact_row(tenant: str, row: Artifact) -> ArtifactRow:
    """Return an artifact."""
    return {
        "artifact_id": row.id, "tenant": tenant, "names": list(row.names), "files": row.files, "bytes": row.bytes,
        "manifest_bytes": row.manifest_bytes, "created": decoding.moment_ms(str(row.created)),
        "held_by": [holder for holder in row.holders if holder != "kept"],
    }  # fmt: skip
