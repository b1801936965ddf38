"""Read artifacts for the API."""

from __future__ import annotations

from coordinator.artifacts import serializers
from jobs.store.artifacts import Artifacts
from threads_protocol.answers import artifacts as answers


def page(store: Artifacts, tenant: str, cursor: str | None, limit: int) -> tuple[list[answers.Artifact], str | None]:
    """Return one page of a tenant's artifacts, newest first, and the cursor of the next page (None at the end)."""
    created, _, artifact_id = (cursor or "").partition("-")
    found = store.page(tenant, (int(created), artifact_id) if cursor else None, limit)
    shown = [
        serializers.serialize_artifact(tenant, row) for row in store.read(tenant, [each for _, each in found]) if row
    ]
    return shown, f"{found[-1][0]}-{found[-1][1]}" if len(found) == limit else None
