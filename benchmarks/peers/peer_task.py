"""The work of P7's peers: the same trivial job, from its parameters to its result, in a worker of theirs."""

from __future__ import annotations

from typing import Any

from jobs.kinds import registry
from jobs.models import Device


def warm() -> None:
    """Load the kernel, as our workers do before they are ready."""
    registry.warm("collatz", Device.CPU)


def compute(parameters: dict[str, Any]) -> dict[str, Any]:
    """Validate, plan, compute and derive the result."""
    definition = registry.definition("collatz")
    plan = definition.plan(definition.parameters.model_validate(parameters))
    _, partial = registry.kernel("collatz", Device.CPU).run(plan.spec, 0, plan.total, lambda upto: True)
    return definition.result(plan.spec, partial)
