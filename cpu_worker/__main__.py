"""Composes and runs one CPU worker: `python -m cpu_worker`."""

from __future__ import annotations

import logging
import sys

from cpu_worker.lane import ChildLane
from jobs import logs
from jobs.models import Device
from jobs.settings import Settings, load
from jobs.worker.host import Packages
from jobs.worker.lanes import LaneDied
from jobs.worker.life import CannotStart, Worker, refusal, wait_for_redis
from jobs.worker.meter import Meter

log = logging.getLogger("cpu_worker")


def start_lanes(count: int) -> list[ChildLane]:
    """Start the children; return them warm. The first compiles alone: the others find its work in the cache."""
    try:
        first = ChildLane("0")
        log.info("kernels ready", extra={"seconds": first.warm_up()})
        rest = [ChildLane(str(number)) for number in range(1, count)]
        for lane in rest:
            lane.warm_up()
    except LaneDied as error:
        raise CannotStart(f"{error} while its kernels were compiled; see the lines above") from error
    return [first, *rest]


def run(settings: Settings) -> int:
    worker = Worker(settings, Device.CPU, settings.lanes())
    children: list[ChildLane] = []

    def start() -> list[ChildLane]:
        children.extend(start_lanes(settings.lanes()))
        return children

    def close() -> None:
        for child in children:
            child.close()

    return worker.run(wait_for_redis(settings.redis_url), start, close, Meter(energy=Packages().joules))


def main() -> int:
    settings = load()
    logs.configure(settings.log_level, service="cpu-worker", worker=settings.worker_name())
    return refusal(settings) or run(settings)


if __name__ == "__main__":
    sys.exit(main())
