"""CPU kernel of the kind `collatz`."""

from __future__ import annotations

from typing import Any

from jobs.kinds.collatz import frontier, records, statistics, trajectory, verify
from jobs.kinds.contract import Tick
from jobs.models import Partial, Spec

_MODES: dict[str, Any] = {
    "statistics": statistics.run,
    "verify": verify.run,
    "records": records.run,
    "trajectory": trajectory.run,
    "frontier": frontier.run,
}


def run(spec: Spec, lo: int, hi: int, tick: Tick) -> tuple[int, Partial]:
    """Compute units lo..hi-1 and return (upto, partial result of units lo..upto-1).

    Stops soon after `tick` returns False.
    """
    upto, partial = _MODES[spec["mode"]](spec, lo, hi, tick)
    return upto, partial


def warm() -> None:
    """Compile all functions and build all tables."""
    statistics.warm()
    records.warm()
    verify.warm()
    frontier.warm()
