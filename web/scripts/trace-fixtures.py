"""Writes web/test/timeline/fixtures/replicas.json: small traces, with the figures that the reference measured.

Run from the top of the repository: .venv/bin/python web/scripts/trace-fixtures.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP))

from jobs.kinds.thread import trace_recorder  # noqa: E402
from jobs.kinds.thread.definition import KIND  # noqa: E402
from jobs.kinds.thread.reference_replica import Replica  # noqa: E402

BINOMIAL = {"distribution": "binomial", "children": 3, "probability": 0.6}
CASES: dict[str, dict[str, Any]] = {
    "stealing": {"thread_count": 3, "max_depth": 4, "cores": 4, "spawn": BINOMIAL},
    "turns": {
        "thread_count": 5,
        "max_depth": 3,
        "cores": 2,
        "scheduler": "round_robin",
        "quantum_us": 20,
        "join_cost_us": 5,
    },
    "deadlock": {
        "thread_count": 8,
        "max_depth": 3,
        "cores": 12,
        "scheduler": "fifo",
        "join": "block",
        "spawn": {"distribution": "binomial", "children": 3, "probability": 0.5},
    },
    "detached": {
        "thread_count": 6,
        "max_depth": 3,
        "cores": 3,
        "scheduler": "lifo",
        "join": "none",
        "spawn": BINOMIAL,
        "arrival": {"process": "poisson", "rate_per_ms": 5},
    },
    "cut": {
        "thread_count": 3,
        "max_depth": 4,
        "cores": 4,
        "spawn": BINOMIAL,
        "trace": {"replica": 0, "max_events": 60},
    },
}


def case(parameters: dict[str, Any]) -> dict[str, Any]:
    given = {"seed": 1, "replicas": 4, "trace": {"replica": 0}, **parameters}
    spec = KIND.plan(KIND.parameters.model_validate(given)).spec
    replica = Replica(spec, 0, 0)
    return {"trace": trace_recorder.trace(spec), "row": replica.row(), "by_depth": replica.by_depth()}


if __name__ == "__main__":
    cases = {name: case(parameters) for name, parameters in CASES.items()}
    target = TOP / "web/test/timeline/fixtures/replicas.json"
    target.write_text(json.dumps(cases, separators=(",", ":")) + "\n")
    print(target, target.stat().st_size, {name: len(each["trace"]["traceEvents"]) for name, each in cases.items()})
