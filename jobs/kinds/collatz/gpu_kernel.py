"""GPU kernel of the kind `collatz`: statistics without columns, verification and mode `frontier`."""

from __future__ import annotations

from typing import Any

from jobs.kinds.collatz import frontier_gpu, statistics_gpu, verify_gpu
from jobs.kinds.contract import Tick
from jobs.models import Partial, Spec

_MODES: dict[str, Any] = {"statistics": statistics_gpu.run, "verify": verify_gpu.run, "frontier": frontier_gpu.run}

SOURCES = (statistics_gpu.SOURCE, verify_gpu.SOURCE, frontier_gpu.SOURCE)


def run(spec: Spec, lo: int, hi: int, tick: Tick) -> tuple[int, Partial]:
    """Compute units lo..hi-1 and return (upto, partial result of units lo..upto-1).

    Stops soon after `tick` returns False.
    """
    upto, partial = _MODES[spec["mode"]](spec, lo, hi, tick)
    return upto, partial


def warm() -> None:
    """Compile all kernels and copy the tables to the GPU."""
    statistics_gpu.warm()
    verify_gpu.warm()
    frontier_gpu.warm()
