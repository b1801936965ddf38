"""Tests that the Collatz kernel finds exactly the reference's records for any cuts, and the columns of statistics."""

from __future__ import annotations

import json
import random
from functools import reduce
from itertools import pairwise
from math import log
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from jobs.kinds import registry
from jobs.kinds.collatz import records, statistics
from jobs.kinds.collatz import records_published as published
from jobs.kinds.collatz import statistics_columns as columns
from jobs.kinds.collatz.parameters import END
from jobs.models import Device

definition: Any = registry.definition("collatz")
reference: Any = registry.reference("collatz")
kernel: Any = registry.kernel("collatz", Device.CPU)
GOLDEN = json.loads((registry.folder("collatz") / "golden.json").read_text())
ROWS = [(name, n, value) for name in ("delay", "path") for n, value in GOLDEN["records"][name]]


def go_on(_: int) -> bool:
    return True


def planned(start: int, count: int, **more: Any) -> dict[str, Any]:
    given = {"mode": "records", "start_number": start, "number_count": count} | more
    return dict(definition.plan(definition.parameters.model_validate(given)).spec)


def found(start: int, count: int, **more: Any) -> Any:
    job = planned(start, count, **more)
    upto, partial = kernel.run(job, 0, count, go_on)
    assert upto == partial["count"] == count
    return partial


@pytest.fixture(params=statistics.all_tails(), ids=lambda module: module.__name__.rpartition("_")[2])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Return every set of tails that this CPU supports, in both modules that use them."""
    for module in (statistics, records):
        monkeypatch.setattr(module, "tails", lambda: request.param)


def test_the_published_records_are_those_of_the_golden_answers() -> None:
    assert [list(row) for row in published.DELAYS] == GOLDEN["records"]["delay"]
    assert [list(row) for row in published.PATHS] == GOLDEN["records"]["path"]


@pytest.mark.parametrize(("name", "n", "value"), ROWS, ids=str)
def test_every_published_record_is_found_by_a_job_that_contains_it(name: str, n: int, value: int) -> None:
    start = max(1, n // 2**22 * 2**22 - 100) if n > 2**25 else max(1, n - 500)
    partial = found(start, n + 70 - start)
    assert [row for row in partial[name] if row[0] <= n][-1] == [n, value]


@pytest.mark.usefixtures("path")
def test_from_one_on_they_are_the_published_ones_in_any_order_of_merging() -> None:
    count = 320_000_000
    cuts = [0, 1, 77_777_777, 2**27, 2**27 + 12_345, 3 * 2**26, count]
    job = planned(1, count)
    parts = [kernel.run(job, lo, hi, go_on)[1] for lo, hi in pairwise(cuts)]
    random.Random(1).shuffle(parts)
    result = definition.result(job, json.loads(json.dumps(reduce(definition.merge, parts))))
    assert result["count"] == count
    for name in ("delay", "path"):
        expected = [[n, value] for n, value in GOLDEN["records"][name] if n <= count]
        assert [[row["n"], int(row["value"])] for row in result["records"][name]] == expected


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("start", [2**25 - 70_000, 2**32 - 2**23 - 5, 10**12, 2**44 - 2**22 - 9, 10**15, 2**64, 2**90])
def test_they_are_those_of_statistics(start: int) -> None:
    count = 3 * 2**22
    whole = kernel.run({"mode": "statistics", "start": str(start), "count": count, "batch_size": None}, 0, count, go_on)
    records_of = {name: whole[1][name] for name in ("delay", "path")}
    usual = found(start, count)
    least = {
        "delay": published.maximum_below(published.DELAYS, start),
        "path": published.maximum_below(published.PATHS, start),
    }
    assert all(usual[name] == [row for row in records_of[name] if row[1] > least[name]] for name in least)
    for take in (-1, len(records_of["delay"]) // 2):
        delay = max(records_of["delay"][take][1] - 1, published.maximum_below(published.DELAYS, start))
        peak = max(records_of["path"][min(take, 1)][1] - 1, published.maximum_below(published.PATHS, start))
        partial = found(start, count, known={"delay": delay, "path": str(peak)})
        assert partial["delay"] == [row for row in records_of["delay"] if row[1] > delay]
        assert partial["path"] == [row for row in records_of["path"] if row[1] > peak]


@settings(max_examples=60, deadline=None)
@given(st.one_of(st.integers(1, END - 3000), st.integers(1, 2**20)), st.integers(1, 2500))
def test_small_jobs_are_the_reference(start: int, count: int) -> None:
    job = planned(start, count)
    assert kernel.run(job, 0, count, go_on)[1] == reference.run(job, 0, count)


@settings(max_examples=30, deadline=None)
@given(st.integers(2**25, 2**60), st.integers(0, 400), st.integers(0, 1800))
def test_a_floor_bounds_every_delay_below_it(n: int, steps: int, record: int) -> None:
    """x at a floor, with as many odd steps as can have led there, has a delay that is no record."""
    floor = records.delay_floor(n, steps, record)
    assert floor <= published.DELAYS[-1][0]
    for x in {floor, floor // 2, floor - 1, *(m for m, _ in published.DELAYS if m <= floor)} - {0, -1}:
        odd = int(log(x, 3) + steps * log(2, 3) - log(n, 3) + 1e-9)
        delay = max(value for m, value in published.DELAYS if m <= x)
        assert steps + odd + delay <= record


def test_what_is_known_is_shown_and_checked() -> None:
    def result(**given: Any) -> Any:
        job = planned(**given)
        return definition.result(job, kernel.run(job, 0, 5, go_on)[1])["known"]

    nothing = result(start=1, count=5)
    assert nothing["source"].startswith("nothing") and nothing["delay"] is nothing["path"] is None
    assert result(start=28, count=5) == {"source": "published", "delay": 111, "path": 9232}
    assert "complete up to 12327829503 only" in result(start=10**12, count=5)["source"]
    known = {"delay": 1348, "path": str(2**70)}
    assert result(start=10**12, count=5, known=known) == {"source": "given"} | known
    with pytest.raises(ValidationError, match="delay 1213"):
        planned(10**12, 5, known={"delay": 1212, "path": 2**70})
    with pytest.raises(ValidationError, match="not permitted"):
        planned(10**12, 5, known={"delay": 1300, "path": 2**70, "other": 1})


# Columns


def drawn(start: int, count: int, most: int, density: bool = True) -> dict[str, Any]:
    given = {"start_number": start, "number_count": count, "columns": most, "density": density}
    return dict(definition.plan(definition.parameters.model_validate(given)).spec)


@pytest.mark.usefixtures("path")
@settings(max_examples=40, deadline=None)
@given(
    st.one_of(st.integers(1, 10**6), st.integers(1, END - 20_000)),
    st.integers(1, 6000),
    st.integers(1, 300),
    st.lists(st.integers(1, 5999), max_size=4),
    st.randoms(use_true_random=False),
)
def test_columns_are_the_reference_whatever_the_cuts(
    start: int, count: int, most: int, inner: list[int], shuffler: random.Random
) -> None:
    job = drawn(start, count, most)
    expected = reference.run(job, 0, count)
    cuts = [0, *sorted({cut for cut in inner if cut < count}), count]
    parts = [kernel.run(job, lo, hi, go_on)[1] for lo, hi in pairwise(cuts)]
    shuffler.shuffle(parts)
    assert reduce(definition.merge, parts) == expected
    assert len(expected["columns"]) <= most


@pytest.mark.usefixtures("path")
def test_columns_of_many_blocks_add_up() -> None:
    start, count = 10**9, 3 * 10**7
    job = drawn(start, count, 37)
    partial = kernel.run(job, 0, count, go_on)[1]
    cuts = [0, 777_777, 2**24, 2**24 + 5, count]
    assert reduce(definition.merge, [kernel.run(job, a, b, go_on)[1] for a, b in pairwise(cuts)]) == partial
    result = definition.result(job, json.loads(json.dumps(partial)))
    assert 30 <= len(result["columns"]["start"]) <= 37
    assert sum(result["columns"]["count"]) == count and sum(result["columns"]["sum"]) == result["delay"]["sum"]
    top = result["columns"]["max"].index(max(result["columns"]["max"]))
    assert result["columns"]["argmax"][top] == result["delay"]["max"]["n"]
    for at, histogram in enumerate(result["columns"]["density"]):
        assert sum(times for _, times in histogram) == result["columns"]["count"][at]
        assert histogram[0][0] == result["columns"]["min"][at] and histogram[-1][0] == result["columns"]["max"][at]
        mean = sum(delay * times for delay, times in histogram) / result["columns"]["count"][at]
        assert result["columns"]["mean"][at] == pytest.approx(mean, rel=1e-15)


@given(st.integers(1, 2**95), st.integers(1, 2**52), st.integers(1, 4096))
def test_there_are_no_more_columns_than_asked_and_hardly_fewer(start: int, count: int, most: int) -> None:
    layout = columns.layout(start, count, most)
    assert layout.base <= start
    used = -(-(start + count - layout.base) // layout.width)
    assert used <= most
    assert count < 64 * most or used >= 0.9 * most - 1


def test_density_needs_columns() -> None:
    for wrong in ({"density": True}, {"density": True, "columns": 1025}, {"density": True, "columns": 0}):
        with pytest.raises(ValidationError, match="density requires columns"):
            definition.parameters.model_validate({"start_number": 1, "number_count": 9} | wrong)
    with pytest.raises(ValidationError, match=r"0\.\.4096"):
        definition.parameters.model_validate({"start_number": 1, "number_count": 9, "columns": 4097})
    again = definition.plan(definition.parameters(start_number=1, number_count=99, columns=4)).parameters
    assert definition.plan(definition.parameters.model_validate(again)).parameters == again
