"""The Collatz kind on a GPU: statistics without columns, and verification. `plan` sends the rest to CPUs."""

from __future__ import annotations

from typing import Any

from jobs.kinds.collatz import gpu_statistics, gpu_verify
from jobs.kinds.contract import Tick
from jobs.models import Partial, Spec

_MODES: dict[str, Any] = {"statistics": gpu_statistics.run, "verify": gpu_verify.run}

SOURCES = (gpu_statistics.SOURCE, gpu_verify.SOURCE)


def run(spec: Spec, lo: int, hi: int, tick: Tick) -> tuple[int, Partial]:
    """(upto, partial of units lo..upto-1); stops soon after tick said so."""
    upto, partial = _MODES[spec["mode"]](spec, lo, hi, tick)
    return upto, partial


def warm() -> None:
    """Compiles every kernel and brings the tables to the device."""
    gpu_statistics.warm()
    gpu_verify.warm()
