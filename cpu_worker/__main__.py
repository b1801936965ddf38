"""Composes and runs one CPU worker: `python -m cpu_worker`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Mapping, Sequence

from cpu_worker.child import WarmUpResult
from cpu_worker.lane import ChildLane
from jobs import logs
from jobs.hosts import cpu_level
from jobs.models import Device
from jobs.network import exposure
from jobs.settings import Settings, load, use_cpu_level
from jobs.worker.api import links
from jobs.worker.api.links import CannotStart
from jobs.worker.lanes import LaneDied
from jobs.worker.life import Worker, refusal
from jobs.worker.telemetry.host import Packages
from jobs.worker.telemetry.meter import Meter

log = logging.getLogger("cpu_worker")


def start_lanes(worker: Worker, count: int) -> list[ChildLane]:
    """Start the children all at once; return them warm. One compiles: the others find its work in the cache.

    The worker refuses kinds whose kernels give wrong known answers after they are compiled again. Raises CannotStart,
    and leaves no child behind then.
    """
    lanes: list[ChildLane] = []
    try:
        lanes.extend(ChildLane(str(number), worker.refused, worker.retire) for number in range(count))
        warmed = [lane.first_warm_up() for lane in lanes]
        if wrong := all_wrong(warmed):
            warmed = compile_again(lanes, wrong)
        log.info("kernels ready", extra={"seconds": warmed[0].seconds if warmed else {}})
    except BaseException as error:  # including one from a signal that stops the worker
        close(lanes)
        if isinstance(error, LaneDied):
            raise CannotStart(f"{error} while its kernels were compiled; see the lines above") from error
        raise
    for kind, why in all_wrong(warmed).items():
        worker.refuse(kind, why)
    if unkept := all_unkept(warmed):
        log.warning("compiled code cannot be stored; the next start compiles again", extra={"unkept": unkept})
    if removed := [name for one in warmed for name in one.removed]:
        log.info("compiled code that nothing used for a month was removed", extra={"folders": removed})
    return lanes


def all_wrong(warmed: Iterable[WarmUpResult]) -> dict[str, str]:
    """Return why, by kind, for those that are wrong in any lane."""
    return {kind: why for one in warmed for kind, why in one.wrong.items()}


def all_unkept(warmed: Iterable[WarmUpResult]) -> dict[str, str]:
    """Return why compiled code is not stored, by kind, for the kinds whose code no lane has stored."""
    return {kind: why for one in warmed for kind, why in one.unkept.items()}


def compile_again(lanes: Sequence[ChildLane], wrong: Mapping[str, str]) -> list[WarmUpResult]:
    """Have the first lane compile these kinds whatever the cache holds, then the others load them. Raises LaneDied."""
    log.warning("compiled code is wrong and is compiled again", extra={"wrong": wrong})
    first, *others = lanes
    first.replace(wrong)
    warmed = first.warm_up()
    for lane in others:
        lane.replace()
    return [warmed, *[lane.warm_up() for lane in others]]


def close(lanes: list[ChildLane]) -> None:
    """End the children, which would outlive a signal."""
    for lane in lanes:
        lane.close()


def run(settings: Settings) -> int:
    try:
        level = use_cpu_level(settings.cpu_level)
    except cpu_level.Unusable as error:
        log.error("%s", error)
        return exposure.REFUSED
    worker = Worker(settings, Device.CPU, settings.lanes(), lambda: {"cpu_level": level})
    lanes: list[ChildLane] = []

    def start() -> list[ChildLane]:
        lanes.extend(start_lanes(worker, settings.lanes()))
        return lanes

    meter = Meter(energy=Packages().joules)
    try:
        link = links.connect(settings, Device.CPU)
    except CannotStart as error:
        log.error("%s", error)
        return exposure.REFUSED
    return worker.run(link, start, lambda: close(lanes), meter)


def main() -> int:
    settings = load()
    logs.configure(settings.log_level, "cpu-worker", host=settings.host_name(), worker=settings.worker_name())
    return refusal(settings) or run(settings)


if __name__ == "__main__":
    sys.exit(main())
