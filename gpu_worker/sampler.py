"""Samples a host and a GPU of it for a profile: `python -m gpu_worker.sampler`, as `jobs.worker.telemetry.sampler`."""

from __future__ import annotations

import sys

from gpu_worker.nvml import Nvml
from gpu_worker.telemetry import NoTelemetry
from jobs.worker.telemetry import sampler


def gpus() -> sampler.Gpus | None:
    """Return NVML; None where it cannot be had, and the host alone is sampled."""
    try:
        return Nvml()
    except NoTelemetry:
        return None


if __name__ == "__main__":
    sys.exit(sampler.main(gpus))
