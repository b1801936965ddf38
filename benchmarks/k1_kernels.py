"""K1: units/s of each kind's kernel on one core over its reference, on its example, where it has one for CPUs."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.measure import Row, in_turns
from jobs.kinds import registry
from jobs.models import Device, Plan

ROUNDS = 3
#: Seconds that a side's turn takes at least, and units that the slow side gets at most.
TURN_SECONDS, UNITS = 0.3, 300


def example(kind: str) -> Plan:
    """The plan of the kind's example."""
    definition = registry.definition(kind)
    return definition.plan(definition.parameters.model_validate(definition.example))


def rate(units: int, compute: Callable[[], object]) -> float:
    """Return units/s of a call that computes `units`, called until TURN_SECONDS are over."""
    began, calls = time.perf_counter(), 0
    while time.perf_counter() - began < TURN_SECONDS:
        compute()
        calls += 1
    return units * calls / (time.perf_counter() - began)


def row(kind: str) -> Row:
    """The kernel of one kind beside its reference, in units/s."""
    registry.warm(kind, Device.CPU)
    plan, kernel, reference = example(kind), registry.kernel(kind, Device.CPU), registry.reference(kind)
    few = min(plan.total, UNITS)
    kernel.run(plan.spec, 0, plan.total, lambda _: True)
    ours, peer = in_turns(
        lambda: rate(plan.total, lambda: kernel.run(plan.spec, 0, plan.total, lambda _: True)),
        lambda: rate(few, lambda: reference.run(plan.spec, 0, few)),
        ROUNDS,
        f"K1@{kind}",
    )
    return Row(id=f"K1@{kind}", ours=ours, peer=peer, unit="units/s", peer_name="the reference")


def run() -> list[Row]:
    return [row(kind) for kind in registry.kinds_for_device(Device.CPU)]
