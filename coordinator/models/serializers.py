"""Build the API's responses about models and data."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from coordinator import decoding, locations
from coordinator.artifacts.catalog import Model
from jobs.store.artifacts import Artifact
from jobs.store.services import Service
from threads_protocol.answers import models as answers


def serialize_model(model: Model, services: Sequence[Service], loaded: Collection[tuple[str, str]]) -> answers.Model:
    """Serialize a model.

    `services` contains all services of its tenant. `loaded` contains artifacts in GPU memory with their locations.
    """
    artifact = model.artifact
    served = [one.name for one in services if not one.deleted and one.artifact == artifact.id]
    on_gpus = sorted(place for one, place in loaded if one == artifact.id)
    return {
        "model_name": model.name,
        "type": model.type,
        "source": model.source,
        "status": "ready" if model.weights else "registered",
        "bytes": artifact.bytes if model.weights else 0,
        "locations": [*(("disk",) if model.weights else ()), *model.places, *on_gpus],
        "weights": list(model.weights),
        "services": sorted(served),
        "artifact_id": artifact.id,
        "created": decoding.format_ms(artifact.created),
    }


def serialize_chunk(chunk_id: str, artifact: Artifact) -> answers.Chunk:
    """Serialize a chunk of data."""
    there = locations.list_locations(artifact.holders)
    others = [one for one in artifact.holders if one != "kept" and not one.startswith(locations.HOLDER_PREFIX)]
    return {
        "chunk_id": chunk_id,
        "device": there[0] if there else "disk",
        "locations": ["disk", *there],
        "bytes": artifact.bytes,
        "files": artifact.files,
        "references": len(others),
        "artifact_id": artifact.id,
        "created": decoding.format_ms(artifact.created),
    }
