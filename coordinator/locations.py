"""Locations of models and data.

`disk` is the cluster's artifact store. `HOST:disk`, `HOST:dram`, `HOST:gpu0` and `HOST:cpu` are devices of a host.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from jobs.store.artifacts import Artifact, Artifacts
from threads_protocol.numbers import short

_PATTERN = re.compile(r"(?:(?P<host>[A-Za-z0-9][A-Za-z0-9._-]{0,47}):)?(?P<device>disk|dram|cpu|gpu(?:0|[1-9][0-9]?))")
#: Device kinds that store files.
#: Device kinds on which engines compute.
STORAGE_DEVICES, COMPUTE_DEVICES = ("disk", "dram"), ("gpu", "cpu")
#: Name prefix of holders that keep an artifact at a location.
HOLDER_PREFIX = "place:"


@dataclass(frozen=True)
class Location:
    """A device of a host. If `host` is empty, `disk` is the cluster's store, and other devices have no host yet."""

    host: str
    device: str

    def __str__(self) -> str:
        """Return the location as users write it."""
        return f"{self.host}:{self.device}" if self.host else self.device

    @property
    def kind(self) -> str:
        """Return the device kind: disk, dram, cpu or gpu."""
        return self.device.rstrip("0123456789")

    @property
    def is_store(self) -> bool:
        """Return True if this is the cluster's artifact store."""
        return not self.host and self.device == "disk"


STORE = Location("", "disk")


def parse(text: Any, devices: Collection[str], *, any_host: bool = False) -> Location:
    """Parse a location. Raise ValueError unless its device kind is in `devices`.

    With `any_host`, a device needs no host name.
    """
    match = _PATTERN.fullmatch(text) if isinstance(text, str) else None
    location = Location(match["host"] or "", match["device"]) if match else None
    if location is None or location.kind not in devices:
        kinds = ", ".join(f"HOST:{'gpu0' if each == 'gpu' else each}" for each in devices)
        store = "disk (the cluster's store) or " if "disk" in devices else ""
        raise ValueError(f"must be {store}one of {kinds}; got {short(text)}")
    if not (location.host or location.is_store or any_host):
        raise ValueError(
            f"must include a host, such as HOST:{location.device}; list hosts with `cluster hosts`; got {short(text)}"
        )
    return location


def list_locations(holders: Collection[str]) -> list[str]:
    """Return the locations of an artifact, from the names of its holders."""
    return sorted(name.removeprefix(HOLDER_PREFIX) for name in holders if name.startswith(HOLDER_PREFIX))


def holder_name(location: Location) -> str:
    """Return the name of the holder that represents a location."""
    return f"{HOLDER_PREFIX}{location}"


def release_all(store: Artifacts, tenant: str, artifact: Artifact) -> None:
    """Release an artifact at all locations on hosts, so that only the cluster's store keeps it."""
    for name in list_locations(artifact.holders):
        store.let_go(tenant, artifact.id, f"{HOLDER_PREFIX}{name}")
