"""Claims a free GPU of the host by UUID, so that several workers use different GPUs."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from jobs.store.server import connection
from jobs.store.server.functions import GPU_TTL_MS
from jobs.store.work.lease_store import LeaseStore
from jobs.worker.telemetry.gpus import HostGpu

log = logging.getLogger(__name__)


class NoGpu(Exception):
    """No GPU is available. The message contains the reason and what to do."""


def filter_visible(gpus: Sequence[HostGpu], visible: str) -> list[HostGpu]:
    """Return the GPUs listed in CUDA_VISIBLE_DEVICES by index or UUID prefix; all GPUs if it is empty."""
    if not visible:
        return list(gpus)
    names = [name.strip() for name in visible.split(",") if name.strip()]
    return [gpu for name in names for gpu in gpus if name == str(gpu.index) or gpu.uuid.startswith(name)]


class Claim:
    """A worker's claim to one GPU. `take` acquires the claim, and the worker renews it regularly."""

    def __init__(self, store: LeaseStore, worker: str, gpus: Sequence[HostGpu]) -> None:
        self._store, self._worker, self._gpus = store, worker, gpus
        #: The claimed GPU, or None if no GPU is claimed.
        self.gpu: HostGpu | None = None
        #: Highest priority of programs that wait for the GPU at the last renewal; empty if none wait.
        self.wanted = ""

    def take(self, priority: str = "") -> bool:
        """Claim a free GPU. Return False if programs use or await a GPU.

        Raises NoGpu if other workers have claimed all GPUs. `priority` is the priority of the work that waits for a
        GPU; empty if there is none.
        """
        holders = set()
        for gpu in self._gpus:
            answer = self._store.fleet.claim([gpu.uuid], self._worker, priority)
            if answer.held:
                self.gpu = gpu
                return True
            holders.add(answer.by)
        if holders & {"program", "wanted"}:
            return False
        taken = ", ".join(gpu.uuid for gpu in self._gpus)
        raise NoGpu(f"other workers use every GPU of this host ({taken}); run at most one worker per GPU")

    def renew(self, priority: str = "") -> bool:
        """Renew the claim. Return False if another worker has claimed the GPU, and True if Redis is unreachable."""
        assert self.gpu is not None
        try:
            answer = self._store.fleet.claim([self.gpu.uuid], self._worker, priority)
        except connection.RedisError:
            return True
        self.wanted = answer.wanted
        return answer.held

    def end(self) -> None:
        """Release all claims under this worker's name, including claims of an earlier process with the same name."""
        try:
            self._store.fleet.give_up([gpu.uuid for gpu in self._gpus], self._worker)
        except connection.RedisError as error:
            log.warning("cannot release a GPU: %s; its claim expires in %d s", error, GPU_TTL_MS // 1000)
