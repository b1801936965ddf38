from __future__ import annotations

from jobs.models import Partial, Spec


def run(spec: Spec, lo: int, hi: int) -> Partial:
    return {"sum": sum(range(lo, hi))}
