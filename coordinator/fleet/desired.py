"""Choice of the number of workers that the work needs. Pure: work, limits, what was chosen last, time in; numbers out.

`needed` says how many would do the present work within `Limits.seconds`. `follow` turns that into a number that grows
at once and shrinks only after calm, so that workers are not started and stopped in turn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from jobs.models import Device

#: Devices that workers have.
DEVICES = (Device.CPU, Device.GPU)
#: The number at most doubles in this many seconds: an estimate that is far too high is corrected by then.
RAISE_SECONDS = 15.0


@dataclass(frozen=True, kw_only=True)
class Work:
    """Jobs alike in all that decides how many lanes they can use."""

    #: Number of these jobs; a fraction where they stand for many that were not read.
    jobs: float = 1.0
    #: Seconds of one lane by the kind's estimate, of each job.
    seconds: float
    #: Speed of a lane of each device over the kind's estimate; the devices that compute it.
    paces: Mapping[Device, float]
    #: Most lanes that can compute one of these jobs at once.
    most_lanes: float = math.inf
    tenant: str = ""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds on the workers of one device, and the time in which they should do the work."""

    least: int
    most: int
    #: Seconds in which the present work should be done.
    seconds: float = 60.0

    def within(self, workers: int) -> int:
        """Return the nearest number of workers that is allowed."""
        return max(self.least, min(self.most, workers))


@dataclass(frozen=True, kw_only=True)
class Workers:
    """Live workers of one device."""

    live: int = 0
    #: Lanes of one of them, averaged; where none lives, as it was last.
    lanes: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Workers that are desired of one device, and what the next choice needs of this one. Times in seconds."""

    workers: int
    #: Since when fewer would have done all the time; None: fewer would not do.
    calm_since: float | None = None
    #: Most workers that were needed since then.
    peak: int = 0
    #: When the number was raised last; None: never.
    raised_at: float | None = None
    #: Lanes of a worker when one was last seen.
    lanes: float = 1.0


def count_needed_workers(
    work: Iterable[Work],
    workers: Mapping[Device, Workers],
    limits: Mapping[Device, Limits],
    max_lanes: Mapping[str, int],
) -> dict[Device, int]:
    """Return the workers of each device that do the work in the time of its limits; at least one for any work at all.

    `max_lanes`: most lanes of tenants that have such a cap. The limits on workers are `follow`'s.
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
    """Return the part of the work that falls to each device: as fast as all its workers would be, were they there.

    What is not there now counts, so that the parts do not change when workers come and go.
    """
    if len(work.paces) == 1:
        return dict.fromkeys(work.paces, 1.0)
    speeds = {device: potential[device] * pace for device, pace in work.paces.items()}
    total = sum(speeds.values())
    return {device: speed / total for device, speed in speeds.items()} if total else {}


def _lanes(work: Work, device: Device, share: float, seconds: float) -> float:
    """Return the lanes that one of these jobs keeps busy for `seconds`."""
    return min(work.seconds / work.paces[device] / seconds, work.most_lanes) * share


def _round_up(workers: float) -> int:
    """Return the workers as a whole number, not less, where sums of floats are not exact; none only for none."""
    return max(math.ceil(workers - 1e-6), int(workers > 0))


def follow(before: Scale, now: float, need: int, limits: Limits, calm_seconds: float) -> Scale:
    """Return the next scale.

    It rises at once, to at most twice as many in RAISE_SECONDS. It falls when fewer would have done for `calm_seconds`
    without a break, to the most that were needed in that time. New limits hold at once. `now` need not be monotonic.
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
