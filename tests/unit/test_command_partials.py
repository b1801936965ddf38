"""Tests that partials of programs count every unit once, in any order."""

from __future__ import annotations

import itertools
import json
from functools import reduce
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from jobs.kinds import program_partials as partials
from jobs.kinds import programs as program
from jobs.kinds.program_result import SCHEMA
from jobs.models import Partial

UNITS = 40
WORKERS = ("runner-1", "runner-2")


def row(unit: int, worker: str) -> tuple[int, int, Any]:
    """Return time, attempts and value of a unit, which depend on the unit to reveal lost and repeated ones."""
    return unit * 7 + 1, unit % 3 + 1, {"unit": unit} if worker == WORKERS[0] and unit % 2 else None


@st.composite
def leases(draw: st.DrawFn) -> list[Partial]:
    """Return the partials of leases that cover units 0 to UNITS-1, in any order."""
    cuts = sorted({0, UNITS, *draw(st.lists(st.integers(1, UNITS - 1), max_size=8))})
    found = []
    for lo, hi in itertools.pairwise(cuts):
        worker = draw(st.sampled_from(WORKERS))
        ms, attempts, values = zip(*(row(unit, worker) for unit in range(lo, hi)), strict=True)
        files = [f"{unit:03}.txt" for unit in range(lo, hi) if unit % 5 == 2]
        found.append(program.finished_partial(lo, worker, ms, attempts, values, files))
    return draw(st.permutations(found))


@given(leases(), st.randoms())
def test_merge_is_associative_and_order_does_not_matter(parts: list[Partial], dice: Any) -> None:
    whole = reduce(partials.merge, parts)
    before = json.dumps(parts)
    left = list(parts)
    while len(left) > 1:
        left.append(partials.merge(left.pop(dice.randrange(len(left))), left.pop(dice.randrange(len(left)))))
    assert json.dumps(left[0]) == json.dumps(whole)
    assert json.dumps(parts) == before


@given(leases())
def test_every_unit_is_counted_once(parts: list[Partial]) -> None:
    whole = json.loads(json.dumps(reduce(partials.merge, parts)))
    found = list(partials.finished_units(whole, 0, UNITS))
    assert [unit.unit for unit in found] == list(range(UNITS))
    for unit in found:
        assert (round(unit.seconds * 1000), unit.attempts, unit.value) == row(unit.unit, unit.worker)
    assert sum(hi - lo for lo, hi in partials.finished_ranges(whole)) == UNITS
    result = partials.result(whole)
    files = [f"{unit:03}.txt" for unit in range(UNITS) if unit % 5 == 2]
    assert result["new_files"] == {"count": len(files), "names": files[:3]}
    assert result["units"] == sum(result["workers"].values()) == UNITS
    assert result["attempts"] == sum(row(unit, "")[1] for unit in range(UNITS))
    assert result["seconds"] == {
        "sum": sum(n * 7 + 1 for n in range(UNITS)) / 1000,
        "least": 0.001,
        "most": 0.274,
        "median": 0.134,
    }


def test_runs_that_touch_are_one_where_one_worker_ran_them() -> None:
    first, second = (
        program.finished_partial(0, "a", [5], [1]),
        program.finished_partial(1, "a", [6, 7], [1, 2], [None, "x"]),
    )
    assert partials.merge(second, first) == {
        "runs": [{"lo": 0, "worker": "a", "ms": [5, 6, 7], "attempts": [1, 1, 2], "values": [None, None, "x"]}]
    }
    assert len(partials.merge(first, program.finished_partial(1, "b", [1], [1]))["runs"]) == 2
    assert len(partials.merge(first, program.finished_partial(2, "a", [1], [1]))["runs"]) == 2


def test_values_of_units_without_any_are_left_out() -> None:
    assert "values" not in program.finished_partial(0, "a", [1, 2], [1, 1], [None, None])["runs"][0]


def test_a_unit_that_would_count_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="unit 1 would be counted twice"):
        partials.merge(program.finished_partial(0, "a", [1, 1], [1, 1]), program.finished_partial(1, "b", [1], [1]))


def test_a_result_of_nothing_has_no_times() -> None:
    assert partials.result({}) == {
        "units": 0,
        "seconds": {"sum": 0, "least": None, "most": None, "median": None},
        "attempts": 0,
        "workers": {},
    }
    assert set(partials.result({})) == set(SCHEMA["required"])
    assert list(partials.finished_units({}, 0, 5)) == []
