"""Tools of the thread kind's tests: plans, partials and how far they are from theory."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from jobs.kinds import registry
from jobs.kinds.thread import report_estimates as estimates
from jobs.kinds.thread import rows
from jobs.models import Device, Plan

definition: Any = registry.definition("thread")
reference: Any = registry.reference("thread")
kernel: Any = registry.kernel("thread", Device.CPU)

FREE = {"dispatch_cost_us": 0, "spawn_cost_us": 0}
#: Deviations beyond this many standard errors do not happen by chance in the few hundred looks of these tests.
FAR = 4.5
POLICIES = ("fifo", "lifo", "round_robin", "work_stealing")


def law(distribution: str, **numbers: Any) -> dict[str, Any]:
    return {"distribution": distribution, **numbers}


def poisson(rate_per_ms: float, warmup_roots: int = 0) -> dict[str, Any]:
    return {"process": "poisson", "rate_per_ms": rate_per_ms, "warmup_roots": warmup_roots}


def planned(**parameters: Any) -> Plan:
    plan: Plan = definition.plan(definition.parameters.model_validate({"seed": 1, **parameters}))
    return plan


def computed(plan: Plan, lo: int = 0, hi: int | None = None) -> Any:
    hi = plan.total if hi is None else hi
    upto, partial = kernel.run(plan.spec, lo, hi, lambda _: True)
    assert upto == hi
    return partial


def cell(plan: Plan, number: int = 0) -> Any:
    return computed(plan)["cells"][str(number)]


def result(plan: Plan) -> Any:
    return definition.result(plan.spec, computed(plan))


def total(part: Any, column: str, what: str = "sum") -> int:
    return int(part[what][rows.COLUMNS.index(column)])


def replicas(plan: Plan) -> list[dict[str, int]]:
    """The row of every unit, out of its own partial; a replica that deadlocks has none."""
    parts = (computed(plan, unit, unit + 1)["cells"] for unit in range(plan.total))
    return [dict(zip(rows.COLUMNS, part["sum"], strict=True)) for cells in parts for part in cells.values()]


def z_of(part: Any, column: str, expected: Fraction) -> float:
    """Distance of the mean over replicas from what is expected, in standard errors."""
    count, sums, squares = part["replicas"], total(part, column), total(part, column, "sumsq")
    return float(Fraction(sums, count) - expected) / math.sqrt(estimates.variance(count, sums, squares) / count)


def ratio(part: Any, number: int) -> tuple[float, float]:
    """A quotient of sums over replicas (rows.PRODUCTS) and its standard error."""
    over, under = ((total(part, name), total(part, name, "sumsq")) for name in rows.PRODUCTS[number])
    error = estimates.quotient_error(part["replicas"], over, under, part["products"][number])
    return over[0] / under[0], error
