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
from jobs import logs, settings
from jobs.kinds import gpu
from jobs.models import Device
from jobs.store import Store
from jobs.worker.beats import Row
from jobs.worker.life import CannotStart, Worker, refusal, wait_for_redis
from jobs.worker.meter import Meter

log = logging.getLogger("gpu_worker")

#: Leases in flight: while one's result is merged and the next is asked for, the other computes.
LANES = 2


@dataclass(frozen=True)
class Machine:
    """What a host offers: its telemetry, and a way to open a GPU. Tests bring a pretended one."""

    telemetry: Callable[[], telemetry.Provider] = Nvml
    open: Callable[[str, int], gpu.Device] = CupyDevice


def find(chosen: settings.Settings, machine: Machine) -> tuple[telemetry.Provider, list[telemetry.Found]]:
    """The GPUs that this worker may claim. NoGpu says why there is none."""
    if chosen.gpu_enabled == "false":
        raise NoGpu("GPU_ENABLED=false")
    try:
        provider = machine.telemetry()
    except telemetry.NoTelemetry as error:
        raise NoGpu(f"no GPU was found. {error}") from error
    gpus = allowed(provider.found(), chosen.cuda_visible_devices)
    if not gpus:
        hidden = f" that CUDA_VISIBLE_DEVICES={chosen.cuda_visible_devices} allows" * bool(chosen.cuda_visible_devices)
        raise NoGpu(f"this host has no GPU{hidden}; see nvidia-smi")
    return provider, gpus


def run(chosen: settings.Settings, machine: Machine = Machine()) -> int:
    try:
        provider, gpus = find(chosen, machine)
    except NoGpu as error:
        return _without(chosen, error)
    store = wait_for_redis(chosen.redis_url)
    try:
        claim = Claim(store, chosen.worker_name(), gpus)
    except NoGpu as error:
        log.error("%s", error)
        return 1
    log.info("claimed a GPU", extra={"gpu": claim.gpu.uuid, "index": claim.gpu.index, "name_": claim.gpu.name})
    try:
        return _serve(chosen, machine, provider, claim, store)
    finally:
        claim.end()
        provider.close()


def _without(chosen: settings.Settings, error: NoGpu) -> int:
    if chosen.gpu_enabled == "true":
        log.error("%s. GPU_ENABLED=true needs one: mend that, or set GPU_ENABLED=auto", error)
        return 1
    log.warning("this worker ends without work: %s. CPU workers go on: python -m cpu_worker", error)
    return 0


def _serve(chosen: settings.Settings, machine: Machine, provider: telemetry.Provider, claim: Claim,
           store: Store) -> int:  # fmt: skip
    found = claim.gpu

    def more() -> Row:
        if not claim.renew():
            worker.retire(f"another worker has claimed {found.uuid}")
        return {"gpus": json.dumps([telemetry.row(found, provider.sample(found.uuid))])}

    worker = Worker(chosen, Device.GPU, LANES, more)
    ended = threading.Event()

    def start() -> list[StreamLane]:
        opened = open_device(chosen, machine, found.uuid)
        log.info("self-test passed", extra={"seconds": opened})
        return [StreamLane(str(number), chosen.gpu_batch_size, retire) for number in range(LANES)]

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
    return worker.run(store, start, ended.set, Meter(energy=lambda: provider.joules(found.uuid)))


def open_device(chosen: settings.Settings, machine: Machine, uuid: str) -> dict[str, float]:
    """Makes the GPU this process' device and has it answer what is known; seconds by kind. Raises CannotStart."""
    settings.show_one_gpu(uuid)
    try:
        gpu.use(machine.open(uuid, chosen.gpu_memory_limit * 2**20))
        return selftest.run()
    except selftest.Failed as error:
        raise CannotStart(f"the GPU {uuid} failed its self-test and gets no work: {error}") from error
    except Exception as error:  # of CUDA's compiler, of CuPy: whatever it is, this worker must not take work
        raise CannotStart(f"the GPU {uuid} cannot be used: {type(error).__name__}: {error}") from error


def main() -> int:
    chosen = settings.load()
    logs.configure(chosen.log_level, "gpu-worker", host=chosen.host_name(), worker=chosen.worker_name())
    return refusal(chosen) or run(chosen)


if __name__ == "__main__":
    sys.exit(main())
