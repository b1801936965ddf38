"""The contract of a kind, for every kind and device that is found."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from jobs import errors
from jobs.kinds import registry
from jobs.models import Device, Partial, Plan

KINDS = registry.names()
FOLDER = Path(registry.__file__).parent


def _kernels() -> list[tuple[str, Device]]:
    found = []
    for kind in KINDS:
        for device in _plan(kind).devices:
            if device is Device.CPU:
                found.append((kind, device))
    return found


def _plan(kind: str) -> Plan:
    definition = registry.definition(kind)
    return definition.plan(definition.Parameters.model_validate(definition.EXAMPLE))


def _example(kind: str, units: int = 300) -> tuple[Plan, int]:
    plan = _plan(kind)
    return plan, min(plan.total, units)


def _result(kind: str, plan: Plan, partial: Partial) -> dict[str, Any]:
    return registry.definition(kind).result(plan.spec, partial)


def test_there_are_kinds() -> None:
    assert {"collatz", "thread"} <= set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_example_plans_to_json_that_a_lease_can_carry(kind: str) -> None:
    plan = _plan(kind)
    assert 1 <= plan.total <= 2**53
    assert plan.grain >= 1
    assert 0 <= plan.offset < plan.grain
    assert json.loads(json.dumps(plan.spec)) == plan.spec
    assert len(json.dumps(plan.spec)) < 64 * 1024
    assert json.loads(json.dumps(plan.parameters)) == plan.parameters


@pytest.mark.parametrize("kind", KINDS)
def test_recorded_parameters_submit_the_same_job_again(kind: str) -> None:
    definition, plan = registry.definition(kind), _plan(kind)
    again = definition.plan(definition.Parameters.model_validate(plan.parameters))
    assert again.spec == plan.spec


@pytest.mark.parametrize(("kind", "device"), _kernels())
def test_kernel_equals_reference(kind: str, device: Device) -> None:
    """kernel(lo, hi) == reference(lo, hi), to the last key, through JSON."""
    plan, units = _example(kind)
    cuts = random.Random(kind)
    for _ in range(4):
        lo = cuts.randrange(units)
        hi = cuts.randrange(lo, units) + 1
        upto, partial = registry.kernel(kind, device).run(plan.spec, lo, hi, lambda _: True)
        assert upto == hi
        expected = registry.reference(kind).run(plan.spec, lo, hi)
        assert json.loads(json.dumps(partial)) == json.loads(json.dumps(expected))


@pytest.mark.parametrize(("kind", "device"), _kernels())
def test_any_cut_in_any_order_gives_the_same_result(kind: str, device: Device) -> None:
    """merge is associative and commutative over whatever leases there were."""
    plan, kernel = _plan(kind), registry.kernel(kind, device)
    whole = kernel.run(plan.spec, 0, plan.total, lambda _: True)[1]
    dice = random.Random(7)
    for _ in range(3):
        inner = sorted(dice.randrange(plan.total) for _ in range(5))
        pieces = [(lo, hi) for lo, hi in zip([0, *inner], [*inner, plan.total], strict=True) if lo < hi]
        parts = [kernel.run(plan.spec, lo, hi, lambda _: True)[1] for lo, hi in pieces]
        dice.shuffle(parts)
        while len(parts) > 1:
            left, right = parts.pop(dice.randrange(len(parts))), parts.pop()
            before = json.dumps([left, right])
            parts.append(json.loads(json.dumps(registry.definition(kind).merge(left, right))))
            assert json.dumps([left, right]) == before, "merge changed its arguments"
        assert _result(kind, plan, parts[0]) == _result(kind, plan, json.loads(json.dumps(whole)))


@pytest.mark.parametrize("kind", KINDS)
def test_unknown_parameters_are_errors(kind: str) -> None:
    with pytest.raises(ValueError, match="no_such_thing"):
        registry.definition(kind).Parameters.model_validate({"no_such_thing": 1})


@pytest.mark.parametrize("kind", [kind for kind in KINDS if (FOLDER / kind).is_dir()])
def test_a_kind_brings_its_readme_and_published_answers(kind: str) -> None:
    assert len((FOLDER / kind / "README.md").read_text()) > 500
    assert json.loads((FOLDER / kind / "golden.json").read_text())


def test_a_kind_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(errors.UnknownKind, match="collatz, "):
        registry.definition("nosuch")
