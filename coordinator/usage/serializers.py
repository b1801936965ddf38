"""Serialize usage."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from jobs.store.tenancy.usage import DayUsage
from threads_protocol.answers import usage as answers
from threads_protocol.numbers import exact


def serialize_usage(tenant: str, day: int, used: DayUsage) -> answers.TenantUsage:
    """Return the usage of a tenant on one day. `day` is the number of days since 1970."""
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
