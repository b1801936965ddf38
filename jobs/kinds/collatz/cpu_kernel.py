"""The Collatz kind on a CPU core."""

from __future__ import annotations

from typing import Any

from jobs.kinds.collatz import records, statistics, trajectory, verify
from jobs.kinds.contract import Tick
from jobs.models import Partial, Spec

_MODES: dict[str, Any] = {
    "statistics": statistics.run,
    "verify": verify.run,
    "records": records.run,
    "trajectory": trajectory.run,
}


def run(spec: Spec, lo: int, hi: int, tick: Tick) -> tuple[int, Partial]:
    """(upto, partial of units lo..upto-1); stops soon after tick answers False."""
    upto, partial = _MODES[spec["mode"]](spec, lo, hi, tick)
    return upto, partial


def warm() -> None:
    """Compiles every function and builds every table."""
    statistics.warm()
    records.warm()
    verify.warm()
