"""Reference implementation of the thread simulation, with which the kernels are compared.

`reference_replica.py` contains the model. `python -m jobs.kinds.thread.reference PARAMETERS...` prints entries for
golden.json.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import pairwise
from multiprocessing import Pool
from typing import Any

from jobs.kinds.thread import rows, trace_recorder
from jobs.kinds.thread.definition import KIND
from jobs.kinds.thread.partials import merge
from jobs.kinds.thread.reference_replica import Replica
from jobs.models import Partial, Spec


def run(spec: Spec, lo: int, hi: int) -> Partial:
    """Return the partial result of units lo..hi-1."""
    if spec["trace"] is not None:
        return {"trace": trace_recorder.trace(spec)} if lo < hi else {}
    partial: Partial = {}
    for unit in range(lo, hi):
        cell, replica = divmod(unit, spec["replicas"])
        partial = merge(partial, {"cells": {str(cell): Replica(spec, cell, replica).partial()}})
    return partial


def golden(parameters: dict[str, Any], processes: int = 1) -> dict[str, Any]:
    """Compute one entry of golden.json. The default model takes minutes."""
    plan = KIND.plan(KIND.parameters.model_validate(parameters))
    edges = [plan.total * part // (16 * processes) for part in range(16 * processes + 1)]
    with Pool(processes) as pool:
        parts = pool.starmap(run, [(plan.spec, lo, hi) for lo, hi in pairwise(edges)])
    total: Partial = {}
    for part in parts:
        total = merge(total, part)
    return {
        "parameters": parameters,
        "cells": [_summary(total["cells"][key]) for key in sorted(total["cells"], key=int)],
    }


def _summary(cell: dict[str, Any]) -> dict[str, Any]:
    kept = ("makespan_ns", "span_ns", "threads", "attempts", "sum_wait_ns")
    sums = {name: cell["sum"][rows.COLUMNS.index(name)] for name in kept}
    return {"digest": f"{cell['digest']:016x}", "sum": sums}


def _entries(arguments: list[str]) -> Iterator[dict[str, Any]]:
    for text in arguments:
        yield golden(json.loads(text), processes=2)


if __name__ == "__main__":
    for entry in _entries(sys.argv[1:]):
        print(json.dumps(entry))
