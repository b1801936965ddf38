"""The Collatz kind on a GPU: statistics without columns, and verification. `plan` sends the rest to CPUs."""

from __future__ import annotations

from typing import Any

from jobs.kinds.collatz import statistics_gpu, verify_gpu
from jobs.kinds.contract import Tick
from jobs.models import Partial, Spec

_MODES: dict[str, Any] = {"statistics": statistics_gpu.run, "verify": verify_gpu.run}

SOURCES = (statistics_gpu.SOURCE, verify_gpu.SOURCE)


def run(spec: Spec, lo: int, hi: int, tick: Tick) -> tuple[int, Partial]:
    """(upto, partial of units lo..upto-1); stops soon after tick answers False."""
    upto, partial = _MODES[spec["mode"]](spec, lo, hi, tick)
    return upto, partial


def warm() -> None:
    """Compiles every kernel and brings the tables to the device."""
    statistics_gpu.warm()
    verify_gpu.warm()
