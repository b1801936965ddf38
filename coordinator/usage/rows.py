"""Rows of usage as they are sent; a test compares them with the schemas."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TypedDict

from jobs.store.usage import Used
from threads_protocol.numbers import exact


class TenantUsageRow(TypedDict):
    tenant: str
    day: str
    lane_seconds: dict[str, float]
    units: dict[str, int | str]
    jobs: dict[str, int | str]
    device_seconds: float
    joules: float | None
    requests: dict[str, int | str]
    prompt_tokens: dict[str, int | str]
    answer_tokens: dict[str, int | str]


def shown(tenant: str, day: int, used: Used) -> TenantUsageRow:
    """Return the row of a tenant and a day, a number since 1970."""
    return {
        "tenant": tenant,
        "day": datetime.fromtimestamp(day * 86400, UTC).date().isoformat(),
        "lane_seconds": {device: ms / 1000 for device, ms in sorted(used.lane_ms.items())},
        "units": _exact(used.units),
        "jobs": _exact(used.jobs),
        "device_seconds": used.device_ms / 1000,
        "joules": None if used.millijoules is None else used.millijoules / 1000,
        "requests": _exact(used.requests),
        "prompt_tokens": _exact(used.prompt_tokens),
        "answer_tokens": _exact(used.answer_tokens),
    }


def _exact(counts: Mapping[str, int]) -> dict[str, int | str]:
    return {name: exact(count) for name, count in sorted(counts.items())}
