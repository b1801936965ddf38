"""Calculate the desired number of workers on the leader, and store it. `autoscaling.py` contains the algorithm."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict

from coordinator import decoding
from coordinator.fleet import autoscaling, demand
from coordinator.fleet.autoscaling import DEVICES, Limits, Scale, Workers
from jobs.models import Device
from jobs.settings import Settings
from jobs.store import Store, unreadable_entries
from threads_protocol.answers import fleet as answers

#: Seconds after which a stored number of workers expires, unless the leader renews it.
_KEPT_SECONDS = 60


class Scaler:
    """Calculates the desired numbers of workers, and stores them in Redis for all replicas."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._calm_seconds = settings.autoscale_calm_seconds
        #: Labels of the workers that the autoscaler would start.
        self._labels = frozenset(settings.host_labels())
        seconds = settings.autoscale_seconds
        self._limits = {
            Device.CPU: Limits(least=settings.autoscale_min, most=settings.autoscale_max, seconds=seconds),
            Device.GPU: Limits(least=settings.autoscale_gpu_min, most=settings.autoscale_gpu_max, seconds=seconds),
        }

    def update(self, workers: Iterable[answers.Worker]) -> dict[Device, int]:
        """Calculate the desired numbers for the current work, store them and return them."""
        read = self._store.demand.read()
        live = [worker for worker in workers if worker["live"] and not worker["draining"]]
        before = scales(self._store)
        fleet = {device: _workers(device, live, before.get(device)) for device in DEVICES}
        need = autoscaling.count_needed_workers(
            demand.work(read, self._labels), fleet, self._limits, demand.max_lanes(read)
        )
        chosen = {
            device: autoscaling.next_scale(
                before.get(device) or Scale(workers=fleet[device].live),
                read.now,
                need[device],
                self._limits[device],
                self._calm_seconds,
            )
            for device in DEVICES
        }
        written = {device: asdict(scale) | {"lanes": fleet[device].lanes} for device, scale in chosen.items()}
        self._store.demand.write_scales(json.dumps(written), _KEPT_SECONDS)
        return {device: scale.workers for device, scale in chosen.items()}


def scales(store: Store) -> Mapping[Device, Scale]:
    """Return the last desired number of workers by device, or an empty mapping if no valid one is stored."""
    stored = store.demand.scales()
    read = unreadable_entries.readable("figure", [("desired", stored)] if stored else [], _scales)
    return read[0] if read else {}


def _scales(_name: str, stored: bytes) -> dict[Device, Scale]:
    return {Device(device): _scale(fields) for device, fields in decoding.parse_json(stored).items()}


def _scale(fields: Mapping[str, float | None]) -> Scale:
    calm_since, raised_at = fields["calm_since"], fields["raised_at"]
    return Scale(
        workers=int(fields["workers"] or 0),
        peak=int(fields["peak"] or 0),
        lanes=max(1.0, float(fields["lanes"] or 1)),
        calm_since=None if calm_since is None else float(calm_since),
        raised_at=None if raised_at is None else float(raised_at),
    )


def _workers(device: Device, live: Iterable[answers.Worker], before: Scale | None) -> Workers:
    """Return the workers of a device that take new work, with their current or last known number of lanes."""
    lanes = [worker["lanes"] for worker in live if worker["device"] == device]
    if sum(lanes):
        return Workers(live=len(lanes), lanes=sum(lanes) / len(lanes))
    return Workers(live=len(lanes), lanes=before.lanes if before else 1.0)
