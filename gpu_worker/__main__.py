"""Composes and runs one GPU worker: `python -m gpu_worker`."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass

from gpu_worker import selftest, telemetry
from gpu_worker.claim import Claim, NoGpu, allowed
from gpu_worker.cupy_device import CupyDevice
from gpu_worker.lane import StreamLane, watch
from gpu_worker.nvml import Nvml
from jobs import exposure, logs
from jobs.kinds import gpu
from jobs.models import Device
from jobs.settings import Settings, load, show_one_gpu
from jobs.store.lease_store import Row
from jobs.worker import links
from jobs.worker.life import Worker, refusal
from jobs.worker.links import CannotStart, Link
from jobs.worker.meter import Meter

log = logging.getLogger("gpu_worker")

#: Leases in flight: while one's result is merged and the next is asked for, the other computes.
LANES = 2


@dataclass(frozen=True)
class Machine:
    """A host: its telemetry, and a way to open a GPU. Tests bring a pretended one."""

    telemetry: Callable[[], telemetry.Provider] = Nvml
    open: Callable[[str, int], gpu.Device] = CupyDevice


def find(settings: Settings, machine: Machine) -> tuple[telemetry.Provider, list[telemetry.HostGpu]]:
    """The GPUs that this worker may claim. NoGpu says why there is none."""
    if settings.gpu_enabled == "false":
        raise NoGpu("GPU_ENABLED=false")
    try:
        provider = machine.telemetry()
    except telemetry.NoTelemetry as error:
        raise NoGpu(f"no GPU was found. {error}") from error
    gpus = allowed(provider.gpus(), settings.cuda_visible_devices)
    if not gpus:
        hidden = f" that CUDA_VISIBLE_DEVICES={settings.cuda_visible_devices} allows" * bool(
            settings.cuda_visible_devices
        )
        raise NoGpu(f"this host has no GPU{hidden}; see nvidia-smi")
    return provider, gpus


def run(settings: Settings, machine: Machine = Machine()) -> int:
    try:
        provider, gpus = find(settings, machine)
    except NoGpu as error:
        return _without(settings, error)
    try:
        link = links.connect(settings, Device.GPU)
    except CannotStart as error:
        log.error("%s", error)
        return exposure.REFUSED
    try:
        claim = Claim(link.store, link.worker, gpus)
    except NoGpu as error:
        log.error("%s", error)
        return 1
    log.info("claimed a GPU", extra={"gpu": claim.gpu.uuid, "index": claim.gpu.index, "name_": claim.gpu.name})
    try:
        return _serve(settings, machine, provider, claim, link)
    finally:
        claim.end()
        provider.close()


def _without(settings: Settings, error: NoGpu) -> int:
    if settings.gpu_enabled == "true":
        log.error("%s. GPU_ENABLED=true needs one: mend that, or set GPU_ENABLED=auto", error)
        return 1
    log.warning("this worker ends without work: %s. CPU workers go on: python -m cpu_worker", error)
    return 0


def _serve(settings: Settings, machine: Machine, provider: telemetry.Provider, claim: Claim,
           link: Link) -> int:  # fmt: skip
    claimed = claim.gpu

    def more() -> Row:
        if not claim.renew():
            worker.retire(f"another worker has claimed {claimed.uuid}")
        return {"gpus": json.dumps([telemetry.row(claimed, provider.sample(claimed.uuid))])}

    worker = Worker(settings, Device.GPU, LANES, more)
    ended = threading.Event()

    def start() -> list[StreamLane]:
        opened = open_device(settings, machine, claimed.uuid)
        log.info("self-test passed", extra={"seconds": opened})
        return [StreamLane(str(number), settings.gpu_batch_size, retire) for number in range(LANES)]

    def retire(why: str) -> None:
        log.error("%s; this worker gives its leases back and ends", why)
        worker.retire(why)

    def hung(why: str) -> None:
        log.error("%s; this process ends at once", why)
        os._exit(1)

    def watching() -> None:
        while worker.server is None and not ended.wait(0.5):
            pass
        if worker.server is not None:
            watch(worker.server, hung, ended)

    threading.Thread(target=watching, name="watch", daemon=True).start()
    return worker.run(link, start, ended.set, Meter(energy=lambda: provider.joules(claimed.uuid)))


def open_device(settings: Settings, machine: Machine, uuid: str) -> dict[str, float]:
    """Makes the GPU this process' device and has it answer what is known; seconds by kind. Raises CannotStart."""
    show_one_gpu(uuid)
    try:
        gpu.use(machine.open(uuid, settings.gpu_memory_limit * 2**20))
        return selftest.run()
    except selftest.Failed as error:
        raise CannotStart(f"the GPU {uuid} failed its self-test and gets no work: {error}") from error
    except Exception as error:  # of CUDA's compiler, of CuPy: whatever it is, this worker must not take work
        raise CannotStart(f"the GPU {uuid} cannot be used: {type(error).__name__}: {error}") from error


def main() -> int:
    settings = load()
    logs.configure(settings.log_level, "gpu-worker", host=settings.host_name(), worker=settings.worker_name())
    return refusal(settings) or run(settings)


if __name__ == "__main__":
    sys.exit(main())
