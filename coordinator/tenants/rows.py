"""Tenants as the API shows them. `schemas.py` describes the same rows to clients; a test compares them."""

from __future__ import annotations

from typing import TypedDict

from jobs.store.tenants import Tenant, Use


class TenantRow(TypedDict):
    tenant: str
    weight: int
    max_lanes: int | None
    max_jobs: int | None
    lanes: int
    jobs: int
    backlog: int


def shown(tenant: Tenant, use: Use) -> TenantRow:
    """Return the row of a tenant."""
    return {
        "tenant": tenant.name,
        "weight": tenant.weight,
        "max_lanes": tenant.max_lanes or None,
        "max_jobs": tenant.max_jobs or None,
        "lanes": use.lanes,
        "jobs": use.jobs,
        "backlog": use.backlog,
    }
