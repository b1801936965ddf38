"""Places of models and data: `disk`, the cluster's own store; `HOST:disk`, `HOST:dram`, `HOST:gpu0`, `HOST:cpu`."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from jobs.store.artifacts import Artifact, Artifacts
from threads_protocol.numbers import short

_PLACE = re.compile(r"(?:(?P<host>[A-Za-z0-9][A-Za-z0-9._-]{0,47}):)?(?P<device>disk|dram|cpu|gpu(?:0|[1-9][0-9]?))")
#: Devices that keep files, and devices on which an engine computes.
KEEPS, COMPUTES = ("disk", "dram"), ("gpu", "cpu")
#: Beginning of what holds an artifact that lies at a place.
HOLDER = "place:"


@dataclass(frozen=True)
class Place:
    """Device of a host; without a host the cluster's store, or any host that has such a device."""

    host: str
    device: str

    def __str__(self) -> str:
        """Return it as people write it."""
        return f"{self.host}:{self.device}" if self.host else self.device

    @property
    def kind(self) -> str:
        """disk, dram, cpu or gpu."""
        return self.device.rstrip("0123456789")

    @property
    def is_store(self) -> bool:
        """True for the cluster's own store."""
        return not self.host and self.device == "disk"


STORE = Place("", "disk")


def read(text: Any, devices: Collection[str], *, any_host: bool = False) -> Place:
    """Return the place that a text names, of one of these kinds of devices.

    ValueError for any other. `any_host`: devices that compute may stand without a host.
    """
    match = _PLACE.fullmatch(text) if isinstance(text, str) else None
    place = Place(match["host"] or "", match["device"]) if match else None
    if place is None or place.kind not in devices:
        kinds = ", ".join(f"HOST:{'gpu0' if each == 'gpu' else each}" for each in devices)
        store = "disk (the cluster's store) or " if "disk" in devices else ""
        raise ValueError(f"must be {store}one of {kinds}; got {short(text)}")
    if not (place.host or place.is_store or (any_host and place.kind in COMPUTES)):
        raise ValueError(f"must name the host, as HOST:{place.device}: cluster hosts lists them; got {short(text)}")
    return place


def held(holders: Collection[str]) -> list[str]:
    """Return the places among what holds an artifact."""
    return sorted(one.removeprefix(HOLDER) for one in holders if one.startswith(HOLDER))


def holder(place: Place) -> str:
    """Return what holds an artifact that lies at a place."""
    return f"{HOLDER}{place}"


def leave(store: Artifacts, tenant: str, row: Artifact) -> None:
    """Let an artifact lie in the cluster's store alone."""
    for one in held(row.holders):
        store.let_go(tenant, row.id, f"{HOLDER}{one}")
