"""Health of this worker's GPU. The worker keeps its claim to a faulty GPU, so that nothing else uses it."""

from __future__ import annotations

import logging
import threading

from jobs.worker.telemetry.gpu_faults import ADVICE
from jobs.worker.telemetry.gpus import HostGpu, Provider

log = logging.getLogger(__name__)


class Health:
    """Fault detection for one GPU. Thread-safe; the first fault is reported until the process exits."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._lock = threading.Lock()
        self._fault = ""

    def why(self) -> str:
        """Return the GPU's fault as of the last check, or an empty string, without querying the driver."""
        return self._fault

    def look(self, gpu: HostGpu | None) -> str:
        """Query the driver for faults, then return why the GPU gets no work, or an empty string."""
        with self._lock:
            if gpu is not None and not self._fault and (fault := self._provider.fault(gpu.uuid)):
                self._fault = f"{gpu.uuid}: {fault}; {ADVICE}"
                log.error("this GPU gets no work: %s", self._fault)
        return self._fault
