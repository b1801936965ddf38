"""Tests that mode `frontier` of the kind `collatz` drops no number wrongly, and that all its kernels match."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any

import pytest

from jobs.kinds import registry
from jobs.kinds.collatz import frontier, frontier_plan, frontier_rules, reference
from jobs.kinds.collatz.frontier_rules import BASE_BITS, DOUBLINGS, JOINS, LOG3, NEGATIVE, ONE, Node, join
from tests.exhaustive import frontier_sieves

definition: Any = registry.definition("collatz")


def go_on(_: int) -> bool:
    return True


def known_odd(n: int, bits: int) -> tuple[int, int, int] | None:
    """Return (steps, known odd steps, value) at which a rule drops n, or None if no rule does."""
    leaf = bits - frontier_rules.LEAF_BITS
    x, c, at_leaf = n, 0, 0
    if join(frontier_rules.START_JOINS, n % 3**frontier_rules.START_JOINS) < NEGATIVE:
        return 0, frontier_rules.START_JOINS, n
    for k in range(1, leaf + frontier_rules.WINDOW + 1):
        c, x = c + x % 2, reference.step(x)
        if frontier_rules.drops(c, k, c - at_leaf, x):
            return k, min(c - at_leaf, JOINS), x
        at_leaf = c if k == leaf else at_leaf
    return None


def least_predecessor(value: int, known: int) -> int:
    """Return the number that the least factor of `join` leads back to, by exact steps backward."""
    goal = join(known, value % 3**known)
    before = value
    for doublings in range(DOUBLINGS + 1) if goal else ():
        if before % 3 == 2:
            earlier = (2 * before - 1) // 3
            rest = join(known - 1, earlier % 3 ** (known - 1))
            if (doublings + 1) * ONE - LOG3 + rest == goal:
                return least_predecessor(earlier, known - 1)
        before *= 2
    return value


def test_every_dropped_number_joins_a_smaller_number() -> None:
    dropped = 0
    for n in range(2**BASE_BITS, 2**16):
        if found := known_odd(n, 20):
            _, known, value = found
            smaller = x = least_predecessor(value, known)
            assert 1 <= smaller < n
            for _ in range(200):
                if x == value:
                    break
                x = reference.step(x)
            assert x == value
            dropped += 1
        assert frontier_rules.survives(n, 20) == (found is None)
    assert 0.9 < dropped / (2**16 - 2**BASE_BITS) < 1


def test_logarithms_decide_as_exact_powers_do() -> None:
    for k in range(1, 149):
        for c in range(94):
            is_below = c * LOG3 - k * ONE < NEGATIVE
            assert is_below == (3**c < 2**k)
            if is_below:
                # The added ones increase a value by less than the factor (1 + 1/(3n)) per odd step, for n >= 2^14.
                assert 3**c * (3 * 2**BASE_BITS + 1) ** 110 < 2**k * (3 * 2**BASE_BITS) ** 110


def test_plain_iteration_verifies_the_numbers_below_the_base() -> None:
    frontier.check_base()


def test_the_plan_knows_the_number_of_nodes() -> None:
    level = [Node(0, 0, 0, 0)]
    for depth in range(1, 19):
        level = [child for node in level for child in frontier_rules.children(node)]
        assert frontier_plan.NODES.get(depth, len(level)) == len(level)
    assert len(frontier.root_nodes(22)) == frontier_plan.NODES[22]


@pytest.mark.parametrize("module", frontier.all_sweeps(), ids=lambda module: module.__name__.rpartition("_")[2])
class TestEverySweep:
    @pytest.mark.parametrize(("bits", "lo", "hi"), [(20, 0, 9), (23, 100, 110), (31, 5, 6)])
    def test_it_finds_what_the_reference_finds(self, module: Any, bits: int, lo: int, hi: int) -> None:
        cut = frontier_plan.division(bits)
        upto, partial = frontier.search_units(cut, frontier.Search(bits, module), lo, hi, go_on)
        assert upto == hi
        assert partial == reference.frontier(bits, lo, hi)

    @pytest.mark.parametrize(
        ("bits", "pattern"),
        [(60, "1"), (82, "1"), (82, "1110"), (88, "1"), (88, "1111110"), (66, "11011111"), (50, "110111"), (42, "1")],
    )
    def test_it_follows_numbers_of_any_size(self, module: Any, bits: int, pattern: str) -> None:
        node = Node(0, 0, 0, 0)
        while node.k < bits - 11:
            wanted = pattern[node.k % len(pattern)] == "1"
            found = list(frontier_rules.children(node))
            node = next((child for child in found if bool(child.b >> node.k & 1) == wanted), found[-1])
        search = frontier.Search(bits, module)
        search.start(node)
        sums = search.finish_block()
        numbers = [node.b + (a << node.k) for a in range(2**11)]
        followed = [frontier_rules.follow(n, bits) for n in numbers if frontier_rules.survives(n, bits)]
        assert sums[0] == len(followed) > 0
        assert sums[1:] == [sum(row[0] for row in followed), sum(row[1] for row in followed) % 2**64]
        assert search.largest_bits == reduce(or_, (row[2] for row in followed)).bit_length()

    def test_its_result_does_not_depend_on_the_division(self, module: Any) -> None:
        cut = frontier_plan.division(24)
        _, whole = frontier.search_units(cut, frontier.Search(24, module), 0, cut.units, go_on)
        search, at, parts = frontier.Search(24, module), 0, []
        for end in (1, 77, 300, cut.units):
            _, partial = frontier.search_units(cut, search, at, end, go_on)
            parts.append(partial)
            at = end
        assert reduce(definition.merge, reversed(parts)) == whole


def test_units_of_a_node_are_its_subtrees() -> None:
    cut = frontier_plan.Division(60, 10, 5, 46 << 5)
    whole = {node.b for node in frontier_rules.nodes(15)}
    found = [frontier.find_node(cut, unit) for unit in range(cut.units)]
    assert {node.b for node, _ in found if node} == whole
    for unit, (node, after) in enumerate(found):
        assert all(other is None for other, _ in found[unit:after]) or after == unit + 1
        assert after == unit + 1 or node is None


def test_a_lease_stops_after_any_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontier, "TICK_SECONDS", 0)
    cut = frontier_plan.division(60)
    search = frontier.Search(60, frontier.all_sweeps()[-1])
    empty = next(unit for unit in range(cut.units) if frontier.find_node(cut, unit)[0] is None)
    after = frontier.find_node(cut, empty)[1]
    at, partial = frontier.search_units(cut, search, empty, cut.units, lambda _: False)
    assert at == after
    assert partial == {"units": after - empty, "blocks": [[cut.block(empty), 0, 0, 0]], "largest_bits": 0}


def test_a_finished_search_extends_the_verified_range() -> None:
    plan = definition.plan(definition.parameters(mode="frontier", bits=20))
    result = definition.result(plan.spec, reference.frontier(20, 0, plan.total))
    assert result["verified"] is True
    assert result["survivors"] == sum(row[1] for row in result["certificate"]) == 2654
    assert [(mark.lo, mark.hi) for mark in definition.marks(plan.spec, result)] == [(1, 2**20)]
    partial = reference.frontier(20, 0, plan.total - 1)
    assert definition.marks(plan.spec, definition.result(plan.spec, partial)) == []
    assert definition.title(plan.parameters) == "Collatz below 2²⁰, frontier"


def test_published_rules_leave_as_many_survivors_as_the_published_program() -> None:
    assert frontier_sieves.count_published.py_func(20, True, True, True, True) == 2701
    every = frontier_sieves.count_published.py_func(16, True, True, True, True)
    for off in range(4):
        assert frontier_sieves.count_published.py_func(16, *(rule != off for rule in range(4))) > every
