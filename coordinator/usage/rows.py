"""Rows of usage as they are sent; a test compares them with the schemas."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TypedDict

from jobs.numbers import exact
from jobs.store.usage import Used


class TenantUsageRow(TypedDict):
    tenant: str
    day: str
    lane_seconds: dict[str, float]
    units: dict[str, int | str]
    jobs: dict[str, int | str]
    device_seconds: float
    joules: float | None


def shown(tenant: str, day: int, used: Used) -> TenantUsageRow:
    """Return the row of a tenant and a day, a number since 1970."""
    return {
        "tenant": tenant,
        "day": datetime.fromtimestamp(day * 86400, UTC).date().isoformat(),
        "lane_seconds": {device: ms / 1000 for device, ms in sorted(used.lane_ms.items())},
        "units": {kind: exact(count) for kind, count in sorted(used.units.items())},
        "jobs": {kind: exact(count) for kind, count in sorted(used.jobs.items())},
        "device_seconds": used.device_ms / 1000,
        "joules": None if used.millijoules is None else used.millijoules / 1000,
    }
