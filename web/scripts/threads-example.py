"""Writes web/src/pages/threads/example.json: the simulated run that the Threads page shows on a first visit.

Run from the top of the repository: .venv/bin/python web/scripts/threads-example.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP))

from jobs.kinds.thread import reference, trace_recorder  # noqa: E402
from jobs.kinds.thread.definition import KIND  # noqa: E402

TARGET = TOP / "web/src/pages/threads/example.json"
PARAMETERS: dict[str, Any] = {
    "thread_count": 40,
    "max_depth": 5,
    "replicas": 300,
    "cores": 8,
    "seed": 1,
    "scheduler": "work_stealing",
}
#: Result fields that the Threads page reads. All other fields are dropped to keep the download small.
FIELDS = ("cell", "cores", "scheduler", "replicas", "digest", "outcomes", "deadlock", "examples")
METRICS = ("makespan_us", "speedup", "utilization", "parallelism", "steals", "threads", "peak_live_threads")


def example() -> dict[str, Any]:
    """Return the trimmed result over all replicas and the trace of the first replica."""
    plan = KIND.plan(KIND.parameters.model_validate(PARAMETERS))
    result = KIND.result(plan.spec, reference.run(plan.spec, 0, plan.total))
    cell = result["cells"][0]
    kept = {
        **{name: cell[name] for name in FIELDS},
        "metrics": {name: cell["metrics"][name] for name in METRICS},
        "latency": {},
        "histograms": {"makespan_ns": cell["histograms"]["makespan_ns"]},
    }
    return {"result": {**result, "cells": [kept]}, "trace": trace()}


def trace() -> dict[str, Any]:
    """Return the trace of replica 0."""
    given = {**PARAMETERS, "trace": {"replica": 0}}
    return trace_recorder.trace(KIND.plan(KIND.parameters.model_validate(given)).spec)


if __name__ == "__main__":
    TARGET.write_text(json.dumps(example(), separators=(",", ":")) + "\n")
    print(TARGET, TARGET.stat().st_size)
