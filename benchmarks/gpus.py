"""The GPU that benchmarks run on."""

from __future__ import annotations

import sys
from functools import lru_cache

from jobs.kinds import gpu


@lru_cache
def first(goal: str) -> gpu.Device | None:
    """The first GPU, now this process' device; None, and why on stderr, when there is none that CuPy can use."""
    from gpu_worker.cupy_device import CupyDevice

    try:
        device = CupyDevice("bench")
    except gpu.DeviceLost as error:
        print(f"{goal} is left out: {error}", file=sys.stderr)
        return None
    gpu.set_device(device)
    return device
