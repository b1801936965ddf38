from __future__ import annotations

import os
import time
from pathlib import Path

from jobs.kinds.contract import Tick
from jobs.models import Partial, Spec


def warm() -> None: ...


def _misbehave(spec: Spec) -> None:
    if spec["once"]:
        marker = Path(spec["once"])
        if marker.exists():
            return
        marker.touch()
    if spec["fault"] == "crash":
        os.abort()
    if spec["fault"] == "hang":
        time.sleep(3600)
    if spec["fault"] == "raise":
        raise ZeroDivisionError("asked to")


def _come(spec: Spec, unit: int, tick: Tick) -> bool:
    """Wait until there is the file; False when the work is to end before."""
    while not Path(spec["once"]).exists():
        time.sleep(0.02)
        if not tick(unit):
            return False
    return True


def run(spec: Spec, lo: int, hi: int, tick: Tick) -> tuple[int, Partial]:
    total, unit, last = 0, lo, time.monotonic()
    while unit < hi:
        if spec["fault"] == "wait":
            if unit >= spec["at"] and not _come(spec, unit, tick):
                break
        elif unit == spec["at"]:
            _misbehave(spec)
        if spec["seconds_per_unit"]:
            time.sleep(spec["seconds_per_unit"])
        total += unit
        unit += 1
        if time.monotonic() - last > 0.05:
            last = time.monotonic()
            if not tick(unit):
                break
    return unit, {"sum": total, "count": unit - lo}
