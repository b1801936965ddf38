"""Calculate the number of workers that the work needs. No I/O.

`count_needed_workers` returns how many workers would finish the current work within `Limits.seconds`. `next_scale`
raises the desired number at once, but lowers it only after a calm period, so that workers are not started and stopped
repeatedly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from jobs.models import Device

#: Devices for which workers are counted.
DEVICES = (Device.CPU, Device.GPU)
#: Minimum time in seconds in which the number of workers can double.
RAISE_SECONDS = 15.0


@dataclass(frozen=True, kw_only=True)
class Work:
    """Group of similar jobs that need workers."""

    #: Number of jobs, which can be a fraction if only a sample of the jobs was read.
    jobs: float = 1.0
    #: Estimated seconds of work of each job on one lane.
    seconds: float
    #: Speed of a lane relative to the kind's estimate, for each device that can compute the jobs.
    paces: Mapping[Device, float]
    #: Maximum number of lanes that can compute one job at once.
    most_lanes: float = math.inf
    tenant: str = ""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Minimum and maximum number of workers of one device, and the target time for their work."""

    least: int
    most: int
    #: Target time in seconds to finish the current work.
    seconds: float = 60.0

    def within(self, workers: int) -> int:
        """Return the nearest allowed number of workers."""
        return max(self.least, min(self.most, workers))


@dataclass(frozen=True, kw_only=True)
class Workers:
    """Live workers of one device."""

    live: int = 0
    #: Average number of lanes per live worker, or the last known average if no worker is live.
    lanes: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Desired number of workers of one device, with the state for the next calculation. Times are in seconds."""

    workers: int
    #: Start of the period in which fewer workers would have sufficed, or None if all workers are needed.
    calm_since: float | None = None
    #: Maximum number of workers needed in the period that starts at `calm_since`.
    peak: int = 0
    #: Time at which the number was last raised, or None if it was never raised.
    raised_at: float | None = None
    #: Last known average number of lanes per worker.
    lanes: float = 1.0


def count_needed_workers(
    work: Iterable[Work],
    workers: Mapping[Device, Workers],
    limits: Mapping[Device, Limits],
    max_lanes: Mapping[str, int],
) -> dict[Device, int]:
    """Return the number of workers per device that finish the work in the target time, at least one if there is work.

    `max_lanes` contains the lane caps of tenants. `next_scale` applies the limits on the number of workers.
    """
    by_tenant: dict[str, dict[Device, float]] = {}
    potential = {device: max(limits[device].most, workers[device].live) * workers[device].lanes for device in DEVICES}
    for each in work:
        lanes = by_tenant.setdefault(each.tenant, dict.fromkeys(DEVICES, 0.0))
        for device, share in _shares(each, potential).items():
            lanes[device] += each.jobs * _lanes(each, device, share, limits[device].seconds)
    totals = dict.fromkeys(DEVICES, 0.0)
    for tenant, lanes in by_tenant.items():
        used = sum(lanes.values())
        allowed = min(1.0, max_lanes.get(tenant, math.inf) / used) if used else 1.0
        for device in DEVICES:
            totals[device] += lanes[device] * allowed
    return {device: _round_up(totals[device] / workers[device].lanes) for device in DEVICES}


def _shares(work: Work, potential: Mapping[Device, float]) -> dict[Device, float]:
    """Return each device's share of the work, in proportion to the speed of all its potential workers.

    Potential workers count even if they are not running, so that shares do not change when workers start or stop.
    """
    if len(work.paces) == 1:
        return dict.fromkeys(work.paces, 1.0)
    speeds = {device: potential[device] * pace for device, pace in work.paces.items()}
    total = sum(speeds.values())
    return {device: speed / total for device, speed in speeds.items()} if total else {}


def _lanes(work: Work, device: Device, share: float, seconds: float) -> float:
    """Return the number of lanes that one job of the group keeps busy for `seconds`."""
    return min(work.seconds / work.paces[device] / seconds, work.most_lanes) * share


def _round_up(workers: float) -> int:
    """Round up to whole workers, with a tolerance for inexact sums. Any work needs at least one worker."""
    return max(math.ceil(workers - 1e-6), int(workers > 0))


def next_scale(before: Scale, now: float, need: int, limits: Limits, calm_seconds: float) -> Scale:
    """Return the next desired number of workers, from the previous one and the current need.

    The number of workers rises at once, but at most doubles in RAISE_SECONDS. It falls if fewer workers have been
    enough for `calm_seconds` without interruption, to the maximum needed in that time. New limits apply at once. `now`
    need not be monotonic.
    """
    workers, wanted = limits.within(before.workers), limits.within(need)
    steady = replace(before, workers=workers, calm_since=None, peak=0)
    if wanted > workers:
        waits = before.raised_at is not None and 0 <= now - before.raised_at < RAISE_SECONDS
        return steady if waits else replace(steady, workers=min(wanted, max(2 * workers, 1)), raised_at=now)
    if wanted == workers:
        return steady
    if before.calm_since is None or before.calm_since > now:
        return replace(steady, calm_since=now, peak=wanted)
    peak = max(wanted, limits.within(before.peak))
    if now - before.calm_since < calm_seconds:
        return replace(steady, calm_since=before.calm_since, peak=peak)
    return replace(steady, workers=peak)
