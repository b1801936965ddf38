"""Tests the GPU source of mode `frontier` on the host against the reference and the CPU kernel."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Any

import pytest

from jobs.kinds import gpu, registry
from jobs.kinds.collatz import frontier, frontier_gpu, frontier_plan, frontier_rules, frontier_tables, reference
from jobs.kinds.collatz.frontier_plan import Division, division
from jobs.kinds.collatz.frontier_rules import Node
from jobs.models import Device
from tests.gpu import devices

definition: Any = registry.definition("collatz")
on_gpu: Any = registry.kernel("collatz", Device.GPU)


@pytest.fixture(autouse=True, scope="module")
def device() -> Iterator[None]:
    gpu.set_device(devices.device(most_blocks=3, most_threads=64))
    yield
    gpu.set_device(None)


def go_on(_: int) -> bool:
    return True


def on_cpu(cut: Division, lo: int, hi: int) -> Any:
    return frontier.search_units(cut, frontier.Search(cut.bits, frontier.all_sweeps()[-1]), lo, hi, go_on)[1]


@pytest.mark.parametrize(("bits", "lo", "hi"), [(20, 0, 9), (23, 100, 110)])
def test_results_match_the_reference(bits: int, lo: int, hi: int) -> None:
    spec = {"mode": "frontier", "bits": bits}
    assert on_gpu.run(spec, lo, hi, go_on) == (hi, reference.frontier(bits, lo, hi))


@pytest.mark.parametrize(("levels", "divided"), [(2, (4, 2, 2)), (3, (2, 3, 3)), (8, (0, 0, 8))])
def test_results_do_not_depend_on_the_division_of_the_levels(
    levels: int, divided: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = Division(24, 10, 0, frontier_plan.NODES[10])
    monkeypatch.setattr(frontier_gpu, "LEVELS", levels)
    assert frontier_gpu.divide(cut) == divided
    assert frontier_gpu.search_units(cut, 3, 40) == on_cpu(cut, 3, 40)


def test_launches_of_any_size_merge_to_the_same_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = division(20)
    monkeypatch.setattr(frontier_gpu, "batch", lambda bits: gpu.Batch(first=3, most=7))
    stops: list[int] = []

    def stop(unit: int) -> bool:
        stops.append(unit)
        return False

    upto, whole = on_gpu.run({"mode": "frontier", "bits": 20}, 0, cut.units, go_on)
    assert (upto, whole) == (cut.units, on_cpu(cut, 0, cut.units))
    monkeypatch.setattr(frontier, "TICK_SECONDS", 0)
    at, parts = 0, []
    while at < cut.units:
        at, partial = on_gpu.run({"mode": "frontier", "bits": 20}, at, cut.units, stop)
        parts.append(partial)
    assert stops == sorted(set(stops)) and len(parts) == len(stops) + 1 > 6
    assert reduce(definition.merge, reversed(parts)) == whole


def extreme_unit(bits: int, more: int, pattern: str) -> tuple[Division, int, int]:
    """Return a unit of few numbers whose steps are odd if `pattern` has a 1 and the rules allow an odd step.

    The third value is the number of the unit's odd steps.
    """
    roots = frontier.root_nodes(frontier_plan.ROOT)
    cut, node, path = Division(bits, frontier_plan.ROOT, more, len(roots) << more), Node(0, 0, 0, 0), 0
    while node.k < cut.root + more:
        found = list(frontier_rules.children(node))
        is_odd = pattern[node.k % len(pattern)] == "1"
        child = next((child for child in found if (child.c > node.c) == is_odd), found[-1])
        path = path << 1 | (child.b >> node.k & 1)
        node = child
    root = [root.b for root in roots].index(node.b % 2**cut.root)
    index = root * pow(frontier_plan.MULTIPLIER, -1, len(roots)) % len(roots)
    return cut, index << more | path % 2**more, node.c


@pytest.fixture
def least_odd(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Let tables contain windows only for leaves with at least this number of odd steps, which saves seconds."""
    least, fill = [0], frontier_tables.fill_window
    monkeypatch.setattr(frontier_tables, "fill_window", lambda c, *rest: fill(c, *rest) if c >= least[0] else None)
    caches = (frontier.tables, frontier_gpu.tables_on)
    for cache in caches:
        cache.cache_clear()
    yield least
    for cache in caches:
        cache.cache_clear()


@pytest.mark.parametrize(
    ("bits", "more", "pattern"),
    [(82, 47, "1"), (70, 40, "1"), (60, 30, "110111")],
    ids=["128 bits and more", "96 bits and more", "96 bits"],
)
def test_values_of_any_size_are_computed(bits: int, more: int, pattern: str, least_odd: list[int]) -> None:
    cut, unit, least_odd[0] = extreme_unit(bits, more, pattern)
    found = frontier_gpu.search_units(cut, unit, unit + 1)
    assert found == on_cpu(cut, unit, unit + 1)
    assert found["blocks"][0][1] > 100


def test_a_number_that_does_not_fall_fails_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontier_gpu, "PASSES", 5)
    with pytest.raises(ArithmeticError, match="does not fall below its start"):
        frontier_gpu.search_units(division(20), 0, 1)


def test_gpus_support_only_searches_whose_values_fit() -> None:
    plans = [definition.plan(definition.parameters(mode="frontier", bits=bits)) for bits in (20, 82, 83)]
    assert [Device.GPU in plan.devices for plan in plans] == [True, True, False]
