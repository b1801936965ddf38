"""Profile sampler for a host and its GPU: `python -m gpu_worker.sampler`. See `jobs.worker.telemetry.sampler`."""

from __future__ import annotations

import sys

from jobs.worker.telemetry import sampler
from jobs.worker.telemetry.gpus import NoTelemetry
from jobs.worker.telemetry.nvml import Nvml


def gpus() -> sampler.Gpus | None:
    """Return NVML, or None if it is not available, so that only the host is sampled."""
    try:
        return Nvml()
    except NoTelemetry:
        return None


if __name__ == "__main__":
    sys.exit(sampler.main(gpus))
