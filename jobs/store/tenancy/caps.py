"""Limits on a tenant's daily usage and stored bytes, as stored in Redis, and their current use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jobs.store.server.functions import Functions

#: Names of limits. The name of a limit on units ends with the name of the kind.
GPU_MS, UNITS, STORED_BYTES = "device_ms", "units|", "stored_bytes"


@dataclass(frozen=True, kw_only=True)
class Cap:
    """Limit of a tenant and its current use. For daily limits, only today's use counts."""

    used: int
    most: int

    @property
    def reached(self) -> bool:
        return self.used >= self.most


def encode_caps(most: Mapping[str, int]) -> str:
    """Encode limits for the Redis functions. Limits of 0 are omitted."""
    return ",".join(f"{what}={number}" for what, number in most.items() if number)


def read(functions: Functions, tenants: Sequence[str]) -> tuple[int, list[dict[str, Cap]]]:
    """Return the milliseconds until the next day in UTC, and the limits of each tenant, keyed by name."""
    left, *texts = functions.run_texts("daily", *tenants)
    return int(left), [dict(_cap(item) for item in text.split(",") if item) for text in texts]


def _cap(text: str) -> tuple[str, Cap]:
    what, _, numbers = text.rpartition("=")
    used, _, most = numbers.partition("/")
    return what, Cap(used=int(used), most=int(most))
