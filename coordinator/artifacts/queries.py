"""Artifacts as rows. Reads only."""

from __future__ import annotations

from coordinator.artifacts import rows
from coordinator.artifacts.rows import ArtifactRow
from jobs.store.artifacts import Artifacts


def page(store: Artifacts, tenant: str, after: str | None, limit: int) -> list[ArtifactRow]:
    """Return at most `limit` of a tenant's artifacts, newest first, those behind the one with the id `after`."""
    ids = store.ids(tenant)
    start = ids.index(after) + 1 if after in ids else 0
    return [rows.artifact_row(tenant, row) for row in store.read(tenant, ids[start : start + limit]) if row]
