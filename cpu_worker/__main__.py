"""Entry point of a CPU worker: `python -m cpu_worker`."""

from __future__ import annotations

import gc

if __name__ == "__main__":
    gc.disable()  # Garbage collection during the imports would take a third of the start; main() enables it.

import logging
import sys

from cpu_worker.kernels import Kernels
from cpu_worker.lane import ChildLane
from jobs import logs
from jobs.hosts import cpu_level
from jobs.kinds import registry
from jobs.models import Device
from jobs.network import exposure
from jobs.settings import Settings, load_for, use_cpu_level
from jobs.worker.api import links
from jobs.worker.api.links import CannotStart
from jobs.worker.lifecycle import Worker, refusal
from jobs.worker.telemetry.host import Packages
from jobs.worker.telemetry.meter import Meter

log = logging.getLogger("cpu_worker")


def run(settings: Settings) -> int:
    try:
        level = use_cpu_level(settings.cpu_level)
    except cpu_level.UnsupportedLevel as error:
        log.error("%s", error)
        return exposure.REFUSED
    compiled = registry.kinds_for_device(Device.CPU)
    worker = Worker(settings, Device.CPU, settings.lanes(), lambda: {"cpu_level": level}, compiled=compiled)
    kernels = Kernels(worker, settings.lanes(), can_fork=sys.platform == "linux")
    lanes: list[ChildLane] = []

    def start() -> list[ChildLane]:
        for number in range(settings.lanes()):
            lanes.append(ChildLane(str(number), kernels))
        kernels.start()
        return lanes

    def close() -> None:
        """Kill the child processes, which ignore SIGINT and SIGTERM."""
        kernels.close()
        for lane in lanes:
            lane.close()

    meter = Meter(energy=Packages().joules)
    try:
        link = links.connect(settings, Device.CPU)
    except CannotStart as error:
        log.error("%s", error)
        return exposure.REFUSED
    return worker.run(link, start, close, meter)


def main() -> int:
    gc.enable()
    settings = load_for("cpu-worker")
    logs.configure(settings.log_level, "cpu-worker", host=settings.host_name(), worker=settings.worker_name())
    return refusal(settings) or run(settings)


if __name__ == "__main__":
    sys.exit(main())
