"""Entry point of a GPU worker: `python -m gpu_worker`."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpu_worker import selftest
from gpu_worker.claim import Claim, NoGpu, filter_visible
from gpu_worker.cupy_device import CupyDevice
from gpu_worker.health import Health
from gpu_worker.lane import StreamLane, watch
from gpu_worker.sharing import GpuSharing, rank
from jobs import logs, queues
from jobs.kinds import code_sets, gpu
from jobs.models import Device, Priority
from jobs.network import exposure
from jobs.settings import Settings, hide_other_gpus, load_for, restart_process
from jobs.store.server.connection import RedisError
from jobs.store.work.lease_store import Row
from jobs.worker.api import links
from jobs.worker.api.links import CannotStart, Link
from jobs.worker.lifecycle import Worker, refusal
from jobs.worker.serving import Server
from jobs.worker.telemetry.gpus import HostGpu, NoTelemetry, Provider, describe_gpu
from jobs.worker.telemetry.meter import Meter
from jobs.worker.telemetry.nvml import Nvml
from jobs.worker.telemetry.profiler import Sampled

log = logging.getLogger("gpu_worker")

#: Number of leases in flight: while one result is merged and the next lease requested, the other lease is computed.
LANES = 2
#: Maximum length in characters of the reason why a GPU gets no work.
_MOST_WORDS = 300
#: Interval in seconds at which a parked worker tries to claim a GPU.
PARKED_SECONDS = 1.0


@dataclass(frozen=True)
class Machine:
    """Access to a host's GPUs: telemetry, and a function that opens a GPU. Tests provide a fake."""

    telemetry: Callable[[], Provider] = Nvml
    open: Callable[[str, int], gpu.Device] = CupyDevice


def find_gpus(settings: Settings, machine: Machine) -> tuple[Provider, list[HostGpu]]:
    """Return the GPUs that this worker may claim. Raises NoGpu with the reason if there are none."""
    if settings.gpu_enabled == "false":
        raise NoGpu("GPU_ENABLED=false")
    try:
        provider = machine.telemetry()
    except NoTelemetry as error:
        raise NoGpu(f"no GPU was found. {error}") from error
    gpus = filter_visible(provider.gpus(), settings.cuda_visible_devices)
    if not gpus:
        hidden = f" that CUDA_VISIBLE_DEVICES={settings.cuda_visible_devices} allows" * bool(
            settings.cuda_visible_devices
        )
        raise NoGpu(f"this host has no GPU{hidden}; see nvidia-smi")
    return provider, gpus


def run(settings: Settings, machine: Machine = Machine()) -> int:
    try:
        provider, gpus = find_gpus(settings, machine)
    except NoGpu as error:
        return _exit_without_gpu(settings, error)
    try:
        link = links.connect(settings, Device.GPU)
    except CannotStart as error:
        log.error("%s", error)
        return exposure.REFUSED
    claim = Claim(link.store, link.worker, gpus)
    claim.end()
    work = WorkerProcess(settings, machine, provider, claim, link)
    try:
        claim.take()
        code = work.serve()
    except NoGpu as error:
        log.error("%s", error)
        return 1
    finally:
        if not work.gave_way:  # After a restart, the new process releases the claim.
            claim.end()
        provider.close()
    if work.gave_way and not code:
        restart_process(settings.cuda_visible_devices)
    return code


def _exit_without_gpu(settings: Settings, error: NoGpu) -> int:
    if settings.gpu_enabled == "true":
        log.error("%s. GPU_ENABLED=true requires a GPU: fix the problem, or set GPU_ENABLED=auto", error)
        return 1
    log.warning("this worker exits without work: %s. CPU workers are not affected: python -m cpu_worker", error)
    return 0


class WorkerProcess:
    """Lifetime of one worker process: waits for a GPU if programs use it, computes, then exits or yields the GPU."""

    def __init__(self, settings: Settings, machine: Machine, provider: Provider, claim: Claim, link: Link) -> None:
        self._settings, self._machine, self._provider = settings, machine, provider
        self._claim, self._link = claim, link
        self._sharing, self._health = GpuSharing(), Health(provider)
        self._ended = threading.Event()
        self._worker = Worker(
            settings,
            Device.GPU,
            LANES,
            self._heartbeat_fields,
            compiled=selftest.kinds(),
            sampled=Sampled(module="gpu_worker.sampler", gpus=self._claimed_gpu),
        )
        #: Whether this process yields the GPU to a waiting program.
        self.gave_way = False

    def serve(self) -> int:
        threading.Thread(target=self._watch, name="watch", daemon=True).start()
        return self._worker.run(self._link, self._start, self._ended.set, Meter(energy=self._joules))

    def _claimed_gpu(self) -> list[dict[str, Any]]:
        """Return the claimed GPU in the format of profiles, or an empty list if no GPU is claimed."""
        gpu = self._claim.gpu
        return [] if gpu is None else [{"uuid": gpu.uuid, "name": gpu.name, "index": gpu.index}]

    def _joules(self) -> float | None:
        return self._provider.joules(self._claim.gpu.uuid) if self._claim.gpu else None

    def _heartbeat_fields(self) -> Row:
        """Return the GPU fields of the heartbeat.

        Also renew the claim, and yield the GPU if a waiting program has priority.
        """
        gpu = self._claim.gpu
        if gpu is None:
            return {}
        server = self._worker.server
        slot = server.slot if server else None
        priority = slot.facts.priority if slot else ""
        busy = bool(slot or (server and server.busy()))
        if not self._claim.renew(priority or (Priority.NORMAL if busy else "")):
            self._worker.retire(f"another worker has claimed GPU {gpu.uuid}")
        elif why := self._health.look(gpu):  # The worker keeps its claim, because a program would fail on this GPU too.
            return {**self._describe_gpu(gpu), "cordoned": why[:_MOST_WORDS], **self._service_state(busy)}
        elif self._sharing.gives_way(self._claim.wanted, busy, priority) and server and not server.stopping:
            self._give_way(server)
        return {**self._describe_gpu(gpu), "cordoned": ""}

    def _describe_gpu(self, gpu: HostGpu) -> Row:
        return {"gpus": json.dumps([describe_gpu(gpu, self._provider.sample(gpu.uuid))])}

    def _service_state(self, busy: bool) -> Row:
        """Return the state fields of a worker whose GPU is faulty; empty if the worker is stopping."""
        server = self._worker.server
        return {} if server is None or server.stopping else {"state": "draining" if busy else "drained"}

    def _give_way(self, server: Server) -> None:
        log.info(
            "a program waits for the GPU: committing finished work, then restarting without the GPU",
            extra={"wanted": self._claim.wanted},
        )
        self.gave_way = True
        server.stop()
        os.kill(os.getpid(), signal.SIGINT)  # Use SIGINT, because SIGTERM means that somebody else stops the worker.

    # -- start ------------------------------------------------------------------------------------------------------

    def _start(self) -> list[StreamLane]:
        if self._claim.gpu is None:
            self._wait_for_programs()
        gpu = self._claim.gpu
        assert gpu is not None
        log.info("claimed a GPU", extra={"gpu": gpu.uuid, "index": gpu.index, "name_": gpu.name})
        if not self._health.look(gpu):  # Creating a CUDA context on a faulty GPU can hang.
            open_device(self._settings, self._machine, gpu.uuid)
            threading.Thread(target=self._prepare_kernels, args=(gpu.uuid,), name="kernels", daemon=True).start()
        self._sharing = GpuSharing()
        most, known = self._settings.gpu_batch_size, self._health.why
        return [StreamLane(str(number), most, self._retire, self._check_health, known) for number in range(LANES)]

    def _prepare_kernels(self, uuid: str) -> None:
        """Compile and test the kernel of each kind, and offer the kind. Stop the worker if a self-test fails."""
        worker, seconds = self._worker, dict[str, float]()
        while worker.compiling and not self._ended.is_set():
            worker.read_waiting_kinds()
            kind = worker.waiting_first(worker.compiling)[0]
            try:
                seconds[kind] = selftest.run(kind)
            except selftest.SelfTestFailed as error:
                self._retire(f"the GPU {uuid} failed its self-test and gets no work: {error}")
                return
            except gpu.DeviceLost as error:
                self._retire(f"the GPU {uuid} cannot be used: {error}")
                return
            except Exception as error:  # An error of the CUDA compiler excludes only this kind.
                log.exception("cannot compile a kernel", extra={"kind": kind})
                worker.refuse(kind, f"{type(error).__name__}: {error}")
            else:
                worker.offer(kind)
        if not seconds and not self._ended.is_set():
            self._retire(f"the GPU {uuid} cannot be used: no kernel could be compiled: {worker.refused}")
            return
        log.info("self-test passed", extra={"seconds": seconds})
        if unkept := code_sets.unsaved_kinds():
            log.warning("cannot store compiled code; the next start compiles it again", extra={"unkept": unkept})

    def _check_health(self) -> str:
        return self._health.look(self._claim.gpu)

    def _wait_for_programs(self) -> None:
        """Wait, without a CUDA context, until a GPU is free and no program is waiting for it."""
        log.info("programs use the GPU or wait for it: parked until the GPU is free")
        self._worker.phase = "parked"
        while self._claim.gpu is None:
            time.sleep(PARKED_SECONDS)
            with contextlib.suppress(RedisError, NoGpu):
                self._claim.take(self._waiting_priority())
        self._worker.phase = "starting"

    def _waiting_priority(self) -> str:
        """Return the highest priority of jobs in GPU-only queues, or an empty string."""
        listened = queues.for_worker(Device.GPU)
        counts = self._link.store.slots.waiting(listened)
        names = [queue for queue, count in zip(listened, counts, strict=True) if count]
        return min((queues.priority_of(name) for name in names if name.startswith("gpu.")), key=rank, default="")

    # -- stop -------------------------------------------------------------------------------------------------------

    def _retire(self, why: str) -> None:
        log.error("%s; this worker returns its leases and exits", why)
        self._worker.retire(why)

    @staticmethod
    def _exit_hung(why: str) -> None:
        log.error("%s; this process exits immediately", why)
        os._exit(1)

    def _watch(self) -> None:
        while self._worker.server is None and not self._ended.wait(0.5):
            pass
        if self._worker.server is not None:
            watch(self._worker.server, self._exit_hung, self._ended)


def open_device(settings: Settings, machine: Machine, uuid: str) -> None:
    """Open the GPU. Raises CannotStart."""
    hide_other_gpus(uuid)
    try:
        gpu.set_device(machine.open(uuid, settings.gpu_memory_limit * 2**20))
    except Exception as error:  # After an error of CuPy, this worker must not take work.
        raise CannotStart(f"the GPU {uuid} cannot be used: {type(error).__name__}: {error}") from error


def main() -> int:
    settings = load_for("gpu-worker")
    logs.configure(settings.log_level, "gpu-worker", host=settings.host_name(), worker=settings.worker_name())
    return refusal(settings) or run(settings)


if __name__ == "__main__":
    sys.exit(main())
