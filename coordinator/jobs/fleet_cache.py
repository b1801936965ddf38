"""The fleet as decisions see it, read from Redis at most every FLEET_SECONDS."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from statistics import median

from coordinator import decoding
from coordinator.jobs import scheduler
from jobs.models import Device
from jobs.store import Store, skipped

#: Submissions, waits and alerts are decided on a fleet read at most this long ago: reading it takes longer than all
#: else in a submission.
FLEET_SECONDS = 0.25


class FleetCache:
    """The one copy of the fleet that a replica keeps. Each thread that sees it too old reads it anew."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen: tuple[float, scheduler.Fleet] | None = None

    def get(self) -> scheduler.Fleet:
        """Return the fleet as it was at most FLEET_SECONDS ago."""
        now = time.monotonic()  # the age counts from before it was read
        seen = self._seen
        if seen is None or now - seen[0] >= FLEET_SECONDS:
            seen = self._seen = now, _read(self._store)
        return seen[1]

    def forget(self) -> None:
        """Read the fleet anew when it is asked for next."""
        self._seen = None


def _read(store: Store) -> scheduler.Fleet:
    load, paces, workers = store.fleet_reads.capacity()
    lanes: dict[Device, int] = {}
    kinds: dict[Device, list[dict[str, int]]] = {}
    for device, count, versions in skipped.readable("worker", workers, _alive):
        if versions is not None:
            lanes[device] = lanes.get(device, 0) + count
            kinds.setdefault(device, []).append(versions)
    waiting = skipped.readable("figure", load.items(), lambda queue, ms: (queue.decode(), int(ms) / 1000))
    speeds = skipped.readable("figure", paces.items(), _pace)
    load_seconds = {queue: max(0.0, seconds) for queue, seconds in waiting}
    return scheduler.Fleet(lanes=lanes, load_seconds=load_seconds, speeds=_lane_speeds(dict(speeds)), kinds=kinds)


def _alive(worker: tuple[Device, bytes], row: Sequence[bytes | None]) -> tuple[Device, int, dict[str, int] | None]:
    """Return a live worker's device, lanes and versions of kinds; None for these when it takes nothing new."""
    count, drain, kinds = row
    versions = {name: int(version) for name, version in decoding.parsed(kinds or b"{}").items()}
    return worker[0], int(count or 0), None if drain == b"1" else versions


def _pace(field: bytes, stored: bytes) -> tuple[str, str]:
    Device(field.decode().rpartition("|")[2])
    if decoding.finite(stored.decode()) <= 0:
        raise ValueError("it is no speed")
    return field.decode(), stored.decode()


def _lane_speeds(paces: Mapping[str, str]) -> dict[Device, float]:
    """Return the speed of a lane of each device over the kinds' estimates: the median of what was measured."""
    measured: dict[Device, list[float]] = {}
    for field, pace in paces.items():
        measured.setdefault(Device(field.rpartition("|")[2]), []).append(float(pace))
    return {device: median(values) for device, values in measured.items()}
