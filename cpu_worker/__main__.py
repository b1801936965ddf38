"""Composes and runs one CPU worker: `python -m cpu_worker`."""

from __future__ import annotations

import logging
import sys

from cpu_worker.lane import ChildLane
from jobs import logs, settings
from jobs.models import Device
from jobs.worker.host import Packages
from jobs.worker.life import CannotStart, Worker, refusal, wait_for_redis
from jobs.worker.meter import Meter
from jobs.worker.serving import LaneDied

log = logging.getLogger("cpu_worker")


def start_lanes(count: int) -> list[ChildLane]:
    """Children, warm. The first compiles alone, so that the others find its work in the cache."""
    try:
        first = ChildLane("0")
        log.info("kernels ready", extra={"seconds": first.warm_up()})
        rest = [ChildLane(str(number)) for number in range(1, count)]
        for lane in rest:
            lane.warm_up()
    except LaneDied as error:
        raise CannotStart(f"{error} while its kernels were compiled; see the lines above") from error
    return [first, *rest]


def run(chosen: settings.Settings) -> int:
    worker = Worker(chosen, Device.CPU, chosen.lanes())
    children: list[ChildLane] = []

    def start() -> list[ChildLane]:
        children.extend(start_lanes(chosen.lanes()))
        return children

    def close() -> None:
        for child in children:
            child.close()

    return worker.run(wait_for_redis(chosen.redis_url), start, close, Meter(energy=Packages().joules))


def main() -> int:
    chosen = settings.load()
    logs.configure(chosen.log_level, service="cpu-worker", worker=chosen.worker_name())
    return refusal(chosen) or run(chosen)


if __name__ == "__main__":
    sys.exit(main())
