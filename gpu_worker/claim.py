"""Which GPU this worker uses: a free one of its host, claimed by UUID, so that several take different ones."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from gpu_worker.telemetry import HostGpu
from jobs.store.server import connection
from jobs.store.server.functions import GPU_TTL_MS
from jobs.store.work.lease_store import LeaseStore

log = logging.getLogger(__name__)


class NoGpu(Exception):
    """There is none to use; the message says why and what to do."""


def filter_visible(gpus: Sequence[HostGpu], visible: str) -> list[HostGpu]:
    """Those that CUDA_VISIBLE_DEVICES names, by number or UUID (its beginning is enough); all when it is empty."""
    if not visible:
        return list(gpus)
    names = [name.strip() for name in visible.split(",") if name.strip()]
    return [gpu for name in names for gpu in gpus if name == str(gpu.index) or gpu.uuid.startswith(name)]


class Claim:
    """A GPU that is this worker's while it renews the claim, once `take` has found one."""

    def __init__(self, store: LeaseStore, worker: str, gpus: Sequence[HostGpu]) -> None:
        self._store, self._worker, self._gpus = store, worker, gpus
        #: The GPU; None before there is one.
        self.gpu: HostGpu | None = None
        #: Priority of programs that wait for it, as last heard; empty for none.
        self.wanted = ""

    def take(self, priority: str = "") -> bool:
        """Take a free GPU; False while programs have one, or wait for it. NoGpu when other workers have all.

        `priority`: of the work that waits for a GPU; empty for none.
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
        raise NoGpu(f"every GPU of this host is another worker's ({taken}); start no more workers than GPUs")

    def renew(self, priority: str = "") -> bool:
        """False: another worker has it, and this one must end. While the store is away nobody can take it."""
        assert self.gpu is not None
        try:
            answer = self._store.fleet.claim([self.gpu.uuid], self._worker, priority)
        except connection.RedisError:
            return True
        self.wanted = answer.wanted
        return answer.held

    def end(self) -> None:
        """Give back what this worker's name has, also what an earlier process of that name left."""
        try:
            self._store.fleet.give_up([gpu.uuid for gpu in self._gpus], self._worker)
        except connection.RedisError as error:
            log.warning("could not give a GPU back: %s; it is free in %d s", error, GPU_TTL_MS // 1000)
