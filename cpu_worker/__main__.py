"""Composes and runs one CPU worker: `python -m cpu_worker`."""

from __future__ import annotations

import logging
import sys

from cpu_worker.lane import ChildLane
from jobs import cpu_level, exposure, logs
from jobs.models import Device
from jobs.settings import Settings, load, use_cpu_level
from jobs.worker import links
from jobs.worker.host import Packages
from jobs.worker.lanes import LaneDied
from jobs.worker.life import Worker, refusal
from jobs.worker.links import CannotStart
from jobs.worker.meter import Meter

log = logging.getLogger("cpu_worker")


def start_lanes(count: int) -> list[ChildLane]:
    """Start the children all at once; return them warm. One compiles: the others find its work in the cache.

    Raises CannotStart, and leaves no child behind then.
    """
    lanes: list[ChildLane] = []
    try:
        lanes.extend(ChildLane(str(number)) for number in range(count))
        seconds = [lane.warm_up() for lane in lanes]
        log.info("kernels ready", extra={"seconds": seconds[0] if seconds else {}})
    except LaneDied as error:
        close(lanes)
        raise CannotStart(f"{error} while its kernels were compiled; see the lines above") from error
    return lanes


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
        lanes.extend(start_lanes(settings.lanes()))
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
