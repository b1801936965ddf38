"""Health of this worker's GPU. One that is sick stays claimed, so that nobody else uses it, and computes nothing."""

from __future__ import annotations

import logging
import threading

from gpu_worker.telemetry import HostGpu, Provider
from jobs.worker.telemetry.gpu_faults import ADVICE

log = logging.getLogger(__name__)


class Health:
    """Faults of one GPU. Thread-safe; the first one counts until the process ends."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._lock = threading.Lock()
        self._fault = ""

    def why(self) -> str:
        """Return why the GPU gets no work, as last looked; empty: it does. Cheap."""
        return self._fault

    def look(self, gpu: HostGpu | None) -> str:
        """Ask the driver, and return the same."""
        with self._lock:
            if gpu is not None and not self._fault and (fault := self._provider.fault(gpu.uuid)):
                self._fault = f"{gpu.uuid}: {fault}; {ADVICE}"
                log.error("this GPU gets no work: %s", self._fault)
        return self._fault
