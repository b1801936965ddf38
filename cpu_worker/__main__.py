"""Entry point of a CPU worker: `python -m cpu_worker`."""

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
from jobs.worker.lifecycle import Worker, refusal
from jobs.worker.telemetry.host import Packages
from jobs.worker.telemetry.meter import Meter

log = logging.getLogger("cpu_worker")


def start_lanes(worker: Worker, count: int) -> list[ChildLane]:
    """Start one child process per lane and return the lanes once their kernels are compiled. Raises CannotStart.

    One child compiles each kernel; the others load it from the cache. If a kernel returns a wrong known answer even
    after recompilation, the worker refuses its kind. If the start fails, all children are stopped.
    """
    lanes: list[ChildLane] = []
    try:
        lanes.extend(ChildLane(str(number), worker.refused, worker.retire) for number in range(count))
        warmed = [lane.first_warm_up() for lane in lanes]
        if wrong := wrong_kernels(warmed):
            warmed = compile_again(lanes, wrong)
        log.info("kernels ready", extra={"seconds": warmed[0].seconds if warmed else {}})
    except BaseException as error:  # also catches the exception of a signal that stops the worker
        close(lanes)
        if isinstance(error, LaneDied):
            raise CannotStart(f"{error} during kernel compilation; see the log lines above") from error
        raise
    for kind, why in wrong_kernels(warmed).items():
        worker.refuse(kind, why)
    if unkept := unsaved_kernels(warmed):
        log.warning("cannot store compiled code; the next start compiles it again", extra={"unkept": unkept})
    if removed := [name for one in warmed for name in one.removed]:
        log.info("removed compiled code that was unused for a month", extra={"folders": removed})
    return lanes


def wrong_kernels(warmed: Iterable[WarmUpResult]) -> dict[str, str]:
    """Return the kinds whose kernels failed in any lane, mapped to the reason."""
    return {kind: why for one in warmed for kind, why in one.wrong.items()}


def unsaved_kernels(warmed: Iterable[WarmUpResult]) -> dict[str, str]:
    """Return the kinds whose compiled code no lane could store, mapped to the reason."""
    return {kind: why for one in warmed for kind, why in one.unkept.items()}


def compile_again(lanes: Sequence[ChildLane], wrong: Mapping[str, str]) -> list[WarmUpResult]:
    """Recompile these kinds in the first lane, then let the other lanes load the new code. Raises LaneDied."""
    log.warning("compiled code returned wrong answers; compiling it again", extra={"wrong": wrong})
    first, *others = lanes
    first.replace(wrong)
    warmed = first.warm_up()
    for lane in others:
        lane.replace()
    return [warmed, *[lane.warm_up() for lane in others]]


def close(lanes: list[ChildLane]) -> None:
    """Stop the child processes, which ignore SIGINT and SIGTERM."""
    for lane in lanes:
        lane.close()


def run(settings: Settings) -> int:
    try:
        level = use_cpu_level(settings.cpu_level)
    except cpu_level.UnsupportedLevel as error:
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
