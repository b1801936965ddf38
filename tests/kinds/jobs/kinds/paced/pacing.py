from __future__ import annotations

import time

from jobs.kinds.contract import Tick
from jobs.models import Partial


def run(seconds: float, lo: int, hi: int, tick: Tick) -> tuple[int, Partial]:
    """Sleeps for each unit, in chunks of 50 ms, and never lags behind the clock."""
    began, unit = time.monotonic(), lo
    while unit < hi:
        unit = min(hi, unit + max(1, int(0.05 / seconds)))
        time.sleep(max(0.0, began + (unit - lo) * seconds - time.monotonic()))
        if unit < hi and not tick(unit):
            break
    return unit, {"sum": (lo + unit - 1) * (unit - lo) // 2}
