"""Serialize artifacts."""

from __future__ import annotations

from coordinator import decoding
from jobs.store.artifacts import Artifact
from threads_protocol.answers import artifacts as answers


def serialize_artifact(tenant: str, row: Artifact) -> answers.Artifact:
    """Return the response for an artifact."""
    return {
        "artifact_id": row.id,
        "tenant": tenant,
        "names": list(row.names),
        "files": row.files,
        "bytes": row.bytes,
        "manifest_bytes": row.manifest_bytes,
        "created": decoding.format_ms(row.created),
        "held_by": [holder for holder in row.holders if holder != "kept"],
    }
