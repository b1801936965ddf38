"""Checks that hold for the kernel of any kind on any device and with any plan."""

from __future__ import annotations

import json
import random
from functools import reduce
from typing import Any

from jobs.kinds import registry
from jobs.models import Device, Partial, Plan

#: Maximum number of units of a plan that the reference computes.
UNITS = 300


def plan(kind: str, parameters: dict[str, Any] | None = None) -> Plan:
    """Return the plan of some parameters, by default of the kind's example."""
    definition = registry.definition(kind)
    given = definition.example if parameters is None else parameters
    return definition.plan(definition.parameters.model_validate(given))


def through_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


def computed(kind: str, device: Device, job: Plan, lo: int, hi: int) -> Partial:
    """Return the kernel's partial of units lo..hi-1, converted through JSON."""
    upto, partial = registry.kernel(kind, device).run(job.spec, lo, hi, lambda _: True)
    assert upto == hi
    return dict(through_json(partial))


def kernel_equals_reference(kind: str, device: Device, job: Plan) -> None:
    """Check kernel(lo, hi) == reference(lo, hi) exactly, for four cuts of the first UNITS units."""
    units, dice = min(job.total, UNITS), random.Random(kind)
    for _ in range(4):
        lo = dice.randrange(units)
        hi = dice.randrange(lo, units) + 1
        assert computed(kind, device, job, lo, hi) == through_json(registry.reference(kind).run(job.spec, lo, hi))


def any_cut_merges_to_the_whole(kind: str, device: Device, job: Plan) -> None:
    """Check that merge is exact, associative and commutative for any leases, and does not change its arguments."""
    definition, dice = registry.definition(kind), random.Random(7)
    whole = computed(kind, device, job, 0, job.total)

    def merged(left: Partial, right: Partial) -> Partial:
        before = json.dumps([left, right])
        both: Partial = through_json(definition.merge(left, right))
        assert json.dumps([left, right]) == before, "merge changed its arguments"
        return both

    for _ in range(3):
        inner = sorted(dice.randrange(job.total) for _ in range(5))
        pieces = [(lo, hi) for lo, hi in zip([0, *inner], [*inner, job.total], strict=True) if lo < hi]
        parts = [computed(kind, device, job, lo, hi) for lo, hi in pieces]
        dice.shuffle(parts)
        while len(parts) > 1:
            parts.append(merged(parts.pop(dice.randrange(len(parts))), parts.pop()))
        assert definition.result(job.spec, parts[0]) == definition.result(job.spec, whole)


def a_stop_keeps_what_was_computed(kind: str, device: Device, job: Plan) -> None:
    """When tick answers False at once, the partial is that of the units before `upto`, and may be of none."""
    kernel, definition = registry.kernel(kind, device), registry.definition(kind)
    upto, partial = kernel.run(job.spec, 0, job.total, lambda _: False)
    assert 0 <= upto <= job.total
    parts = [through_json(partial)] if upto else []
    if upto < job.total:
        parts.append(computed(kind, device, job, upto, job.total))
    whole = definition.result(job.spec, computed(kind, device, job, 0, job.total))
    assert definition.result(job.spec, reduce(definition.merge, parts)) == whole
