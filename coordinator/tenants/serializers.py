"""Serialize tenants."""

from __future__ import annotations

from jobs.store.tenancy.tenants import Tenant, TenantUse
from threads_protocol.answers import tenants as answers
from threads_protocol.numbers import exact


def serialize_tenant(tenant: Tenant, use: TenantUse) -> answers.Tenant:
    """Return the response for a tenant."""
    return {
        "tenant": tenant.name,
        "weight": tenant.weight,
        "max_lanes": tenant.max_lanes or None,
        "max_jobs": tenant.max_jobs or None,
        "lanes": use.lanes,
        "jobs": use.jobs,
        "backlog": use.backlog,
        "max_units": dict(tenant.max_units),
        "units_today": {kind: exact(used) for kind, used in use.units.items()},
        "max_gpu_seconds": tenant.max_gpu_seconds or None,
        "gpu_seconds_today": use.gpu_ms / 1000,
        "max_stored_bytes": tenant.max_stored_bytes or None,
        "stored_bytes": use.stored_bytes,
        "requires": sorted(tenant.requires or ()),
    }
