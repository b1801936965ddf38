from __future__ import annotations

from jobs.kinds.contract import Tick
from jobs.models import Partial, Spec

from . import pacing


def warm() -> None: ...


def run(spec: Spec, lo: int, hi: int, tick: Tick) -> tuple[int, Partial]:
    return pacing.run(spec["cpu_seconds_per_unit"], lo, hi, tick)
