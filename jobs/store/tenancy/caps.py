"""Caps on a tenant's daily usage and stored bytes: their stored form, and how much of them is used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jobs.store.server.functions import Functions

#: Names of caps. Daily ones are named as `usage` counts what they limit. UNITS is followed by a kind.
GPU_MS, UNITS, STORED_BYTES = "device_ms", "units|", "stored_bytes"


@dataclass(frozen=True, kw_only=True)
class Cap:
    """A cap, and how much of it is used. For daily caps, today."""

    used: int
    most: int

    @property
    def reached(self) -> bool:
        return self.used >= self.most


def written(most: Mapping[str, int]) -> str:
    """Return caps as functions read them. A cap of 0 is omitted."""
    return ",".join(f"{what}={number}" for what, number in most.items() if number)


def read(functions: Functions, tenants: Sequence[str]) -> tuple[int, list[dict[str, Cap]]]:
    """Return the milliseconds until the next day by Redis' clock (UTC), and the caps of each tenant by name."""
    left, *texts = functions.run_texts("daily", *tenants)
    return int(left), [dict(_cap(item) for item in text.split(",") if item) for text in texts]


def _cap(text: str) -> tuple[str, Cap]:
    what, _, numbers = text.rpartition("=")
    used, _, most = numbers.partition("/")
    return what, Cap(used=int(used), most=int(most))
