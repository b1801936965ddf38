"""Which GPU this worker uses: a free one of its host, claimed by UUID, so that several take different ones."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from gpu_worker.telemetry import HostGpu
from jobs.store import connection, fleet
from jobs.store.lease_store import LeaseStore

log = logging.getLogger(__name__)


class NoGpu(Exception):
    """There is none to use; the message says why and what to do."""


def allowed(gpus: Sequence[HostGpu], visible: str) -> list[HostGpu]:
    """Those that CUDA_VISIBLE_DEVICES names, by number or UUID (its beginning is enough); all when it is empty."""
    if not visible:
        return list(gpus)
    names = [name.strip() for name in visible.split(",") if name.strip()]
    return [gpu for name in names for gpu in gpus if name == str(gpu.index) or gpu.uuid.startswith(name)]


class Claim:
    """A GPU that is this worker's while it renews the claim."""

    def __init__(self, store: LeaseStore, worker: str, gpus: Sequence[HostGpu]) -> None:
        for gpu in gpus:
            if store.fleet.claim(gpu.uuid, worker):
                self.gpu = gpu
                break
        else:
            taken = ", ".join(gpu.uuid for gpu in gpus)
            raise NoGpu(f"every GPU of this host is another worker's ({taken}); start no more workers than GPUs")
        self._store, self._worker = store, worker

    def renew(self) -> bool:
        """False: another worker has it, and this one must end. While the store is away nobody can take it."""
        try:
            return self._store.fleet.claim(self.gpu.uuid, self._worker)
        except connection.RedisError:
            return True

    def end(self) -> None:
        try:
            self._store.fleet.give_up(self.gpu.uuid, self._worker)
        except connection.RedisError as error:
            log.warning("could not give %s back: %s; it is free in %d s", self.gpu.uuid, error,
                        fleet.GPU_TTL_MS // 1000)  # fmt: skip
