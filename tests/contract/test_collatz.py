"""Tests that the Collatz kernel returns exactly the reference's partials for any cuts."""

from __future__ import annotations

import copy
import json
import random
import subprocess
import sys
from collections import defaultdict
from fractions import Fraction
from functools import reduce
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from jobs.kinds import registry
from jobs.kinds.collatz import partials, statistics, tables, trajectory, wide
from jobs.kinds.collatz import statistics_blocks as blocks
from jobs.kinds.collatz.parameters import END, GRAINS, MAX_COUNT
from jobs.kinds.collatz.plans import STEP_LIMIT
from jobs.kinds.collatz.trajectory_curve import FRACTION_BITS, leading, log2
from jobs.models import MAX_UNITS, Device

definition: Any = registry.definition("collatz")
reference: Any = registry.reference("collatz")
kernel: Any = registry.kernel("collatz", Device.CPU)
GOLDEN = json.loads((registry.folder("collatz") / "golden.json").read_text())
#: Numbers at the limits of formats, tables and blocks.
EDGES = [2**16, 2**17, 2**22, 2**31, 2**32, 2**40, 10**12, 8528817511, 12327829503, 2**44, 10**15, 2**53, 2**63, 2**64]
EDGES += [2**70, 2**86, 2**92, END - 400]
NUMBERS = st.one_of(
    st.integers(1, END - 1),
    st.tuples(st.sampled_from(EDGES), st.integers(-400, 200)).map(sum),
    st.tuples(st.integers(1, 95), st.integers(-2, 2)).map(lambda pair: max(1, 2 ** pair[0] + pair[1])),
)


def go_on(_: int) -> bool:
    return True


def spec(start: int, count: int, batch_size: int | None = None) -> dict[str, Any]:
    return {"mode": "statistics", "start": str(start), "count": count, "batch_size": batch_size}


def computed(start: int, count: int, batch_size: int | None = None) -> Any:
    upto, partial = kernel.run(spec(start, count, batch_size), 0, count, go_on)
    assert upto == count
    return partial


def walk_spec(n: int, max_points: int = 4000, step_limit: int = STEP_LIMIT) -> dict[str, Any]:
    return {"mode": "trajectory", "n": str(n), "max_points": max_points, "step_limit": step_limit}


@pytest.fixture(params=statistics.all_tails(), ids=lambda module: module.__name__.rpartition("_")[2])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Return every set of tails that this CPU supports."""
    monkeypatch.setattr(statistics, "tails", lambda: request.param)


# Known answers


@pytest.mark.parametrize("known", GOLDEN["known"], ids=lambda known: str(known["n"]))
def test_reference_and_kernel_know_delays_and_peaks_of_famous_numbers(known: dict[str, int]) -> None:
    n, delay, peak = known["n"], known["delay"], known["peak"]
    expected = {"histogram": [[delay, 1]], "delay": [[n, delay]], "path": [[n, peak]]}
    assert reference.run(spec(n, 1), 0, 1) == expected
    assert computed(n, 1) == expected


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("known", GOLDEN["ranges"], ids=lambda known: known["why"])
def test_kernel_gives_the_whole_partial_of_known_ranges(known: dict[str, Any]) -> None:
    partial = computed(known["start"], known["count"])
    assert partial == known["partial"]
    delay = definition.result(spec(known["start"], known["count"]), partial)["delay"]
    assert (int(delay["sum"]), int(delay["sumsq"])) == (known["sum"], known["sumsq"])


@pytest.mark.parametrize("known", GOLDEN["trajectories"], ids=lambda known: known["n"][:10])
def test_kernel_gives_known_trajectories(known: dict[str, Any]) -> None:
    assert kernel.run(walk_spec(int(known["n"]), known["max_points"]), 0, 1, go_on) == (1, known["partial"])


def test_records_from_one_on_are_the_published_ones_whatever_the_order_of_merging() -> None:
    count = 320_000_000
    cuts = [0, 1, 77_777_777, 2**27, 2**27 + 12_345, 3 * 2**26, count]
    parts = [kernel.run(spec(1, count), lo, hi, go_on)[1] for lo, hi in pairwise(cuts)]
    random.Random(1).shuffle(parts)
    records = definition.result(spec(1, count), reduce(definition.merge, parts))["records"]
    for kind in ("delay", "path"):
        published = [[n, value] for n, value in GOLDEN["records"][kind] if n <= count]
        assert [[int(row["n"]), int(row["value"])] for row in records[kind]] == published
        assert len(published) > 40


# Kernel and reference


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("edge", [1, 2, 2**16, 2**18, 3 * 2**20, *EDGES[3:]])
def test_kernel_is_the_reference_around_edges(edge: int) -> None:
    start = max(1, edge - 350)
    assert computed(start, 700) == reference.run(spec(start, 700), 0, 700)


@settings(max_examples=60)
@given(NUMBERS, st.integers(1, 60), st.integers(0, 60), st.sampled_from([None, 1, 7, 10**6]))
def test_kernel_is_the_reference_wherever_it_starts(start: int, count: int, skip: int, batch_size: int | None) -> None:
    hi = min(skip + count, END - start)
    lo = min(skip, hi - 1)
    job = spec(start, hi, batch_size)
    assert kernel.run(job, lo, hi, go_on) == (hi, reference.run(job, lo, hi))


def test_first_blocks_where_no_peak_bounds_the_rest_are_exact() -> None:
    start, count = 2**16 - 100, 2**17 + 300
    assert computed(start, count) == reference.run(spec(start, count), 0, count)


@settings(max_examples=25)
@given(st.one_of(st.integers(1, 2**37), st.integers(0, 79).map(lambda bits: 2**bits), st.integers(2**36, 2**80 - 1)))
def test_a_block_is_its_numbers_one_by_one(h: int) -> None:
    """Sizes below a block are walked step by step, so two unlike algorithms meet here."""
    assert computed(h << 16, 2**16) == computed(h << 16, 2**16, batch_size=2**10 - 1)


@pytest.mark.parametrize("h", [*range(1, 48), 63, 100, 255])
def test_small_blocks_alone_are_their_numbers_one_by_one(h: int) -> None:
    """With little behind it a lease's greatest peak is small, and what ends in the table of delays may exceed it."""
    assert computed(h << 16, 2**16) == computed(h << 16, 2**16, batch_size=2**10 - 1)


@pytest.mark.parametrize(
    "start", [8, 100, 2**18, 2**22 - 1, 2**22, 2**31, 2**32, 2**42, 2**48, 2**64, 2**73], ids=lambda h: f"h={h}"
)
def test_all_tails_agree_on_greater_blocks(start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    start <<= 22
    usual = computed(start, 2**22)
    assert sum(count for _, count in usual["histogram"]) == 2**22
    for tails in statistics.all_tails():
        monkeypatch.setattr(statistics, "tails", lambda tails=tails: tails)
        for end in (0, 2**48):
            monkeypatch.setattr(statistics, "NARROW_END", end)
            assert computed(start, 2**22) == usual, (tails, end)


@pytest.mark.parametrize("h", [8, 60, 2**16, 2**20 - 1])
def test_the_greatest_blocks_are_four_smaller_ones(h: int, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = computed(h << 24, 2**24)
    assert computed(h << 24, 2**24, 2**22) == usual
    for tails in statistics.all_tails():
        monkeypatch.setattr(statistics, "tails", lambda tails=tails: tails)
        assert computed(h << 24, 2**24) == usual, tails


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("start", [2**20, 3**32, 2**48 - 1], ids=lambda h: f"h={h}")
def test_the_greatest_blocks_of_two_limbs_are_four_smaller_ones(start: int) -> None:
    """The last begins where the form for any CPU goes on, in smaller blocks."""
    assert computed(start << 24, 2**25) == computed(start << 24, 2**25, 2**22)


def test_odd_steps_are_told_from_logarithms_with_room_to_spare() -> None:
    """The README's bound: the fraction lies between 0.3 and 0.7 wherever a lane may end."""
    third = 2**tables.LOG_BITS
    for h in (8, 9, 15, 100, 2**20 + 1):
        for n in random.Random(h).sample(range(h << 16, (h + 1) << 16), 400):
            x, steps, odd = n, 16, 0
            for _ in range(16):
                odd, x = odd + x % 2, reference.step(x)
            while x >= 2**tables.LOW_BITS:
                for _ in range(16):
                    odd, x = odd + x % 2, reference.step(x)
                steps += 16
            offset = blocks.odd_steps_offset(steps, np.log(h << 16) / np.log(3))
            entry = int(tables.lookup().ends[x]) - int(tables.lookup().delays[x]) * third
            assert odd * third + 0.28 * third < entry + offset < odd * third + 0.7 * third


def test_batch_size_never_changes_a_partial() -> None:
    start = (8528817511 >> 24 << 24) - 1000
    count = 2**24 + 2000
    whole = computed(start, count)
    assert max(value for _, value in whole["path"]) == 18144594937356598024
    assert computed(start, count, 2**22) == whole
    assert computed(start, count, 2**16) == whole
    assert computed(start, count, 10_000) == whole


def test_nothing_asked_is_nothing_computed() -> None:
    assert kernel.run(spec(5, 10), 3, 3, go_on) == (3, {})
    assert kernel.run(walk_spec(27), 0, 0, go_on) == (0, {})


# The traps


@pytest.mark.parametrize(("n", "limit"), [(8528817511, 2**63), (12327829503, 2**64)])
def test_peaks_beyond_a_machine_word_are_exact(n: int, limit: int) -> None:
    peak = max(reference.values(n))
    assert peak > limit
    for start, count in ((n, 1), (n - 3, 7), (n >> 16 << 16, 2**16)):
        assert [n, peak] in computed(start, count)["path"]


@settings(max_examples=120)
@given(st.one_of(st.integers(2**16, 2**126), st.integers(16, 126).map(lambda bits: 2**bits - 1)))
@example(2**118 - 1)
@example((2**105 + 12344) * 2**16 + 2**16 - 1)  # 16 steps at once would wrap to something small
@example((2**105 + 98766) * 2**16 + 2**16 - 1)
def test_two_limbs_walk_as_integers_do_or_say_that_they_cannot(n: int) -> None:
    path = list(reference.values(n))
    delay, peak, limbs = len(path) - 1, max(path), (np.uint64(n >> 64), np.uint64(n % 2**64))
    walked, high, low = wide.walk(*limbs)
    assert (walked, (int(high) << 64) + int(low)) == (delay, peak) or (walked == -1 and peak >= 2**126)
    descended, high, low = wide.descend(*limbs, tables.lookup())
    most = (int(high) << 64) + int(low)
    # the peak lies at most 16 steps behind a value met between blocks, or behind the table's end
    bound = max((most + 1) << blocks.GROWTH_BITS, tables.LOW_PEAK)
    assert (descended == delay and n <= most <= peak <= bound) or (descended == -1 and peak >= 2**126)


def test_what_passes_two_limbs_is_said_and_not_wrapped() -> None:
    ones = np.uint64(2**64 - 1)
    assert wide.walk(ones, ones)[0] == -1
    assert wide.descend(ones, ones, tables.lookup())[0] == -1


@pytest.mark.parametrize("peak", [tables.LOW_PEAK, 2**64 - 1, 2**74, 2**75, 2**75 + 2**64 + 12345, 2**100])
def test_the_reach_of_a_peak_is_exact_in_two_limbs(peak: int) -> None:
    notes = blocks.empty_notes()
    notes.by_path[0], notes.sizes[1] = (7, peak >> 64, peak % 2**64), 1
    high, low = blocks.reach(notes, False)
    assert (int(high) << 64) + int(low) == (peak >> blocks.GROWTH_BITS) - 1


@pytest.mark.parametrize("code", [blocks.TOO_LONG, blocks.TOO_MANY_RECORDS, blocks.TOO_MANY_WIDE])
def test_a_failing_launch_raises_and_names_its_numbers(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "singles", lambda *_: code)
    with pytest.raises(OverflowError, match=r"for a number in 5\.\.14"):
        kernel.run(spec(5, 10), 0, 10, go_on)


def test_bounds_of_the_tables_are_true() -> None:
    low = [value for n, value in GOLDEN["records"]["path"] if n < 2**tables.LOW_BITS]
    assert low[-1] == tables.LOW_PEAK
    assert tables.LOW_BITS >= tables.STEP_BITS
    assert 2 ** (16 + blocks.GROWTH_BITS) >= 2 * 3**16
    assert 2**38 * 3**16 + 3**16 < 2**64 and int(wide.SAFE) == 2**54
    assert 3 ** max(statistics.LEVELS) < 2 ** (tables.WEIGHT_SHIFT - tables.D_SHIFT)
    assert tables.LOW_PEAK >> blocks.GROWTH_BITS > 2**tables.LOW_BITS
    assert int(tables.lookup().delays.max()) + 12 < 2 ** (16 - tables.LOG_BITS) and 2**tables.LOW_BITS < 3**12


def test_classes_are_the_residues_that_share_a_tail() -> None:
    members = defaultdict(list)
    for residue in range(2**16):
        c, d = 0, residue
        for _ in range(16):
            c, d = (c + 1, (3 * d + 1) // 2) if d % 2 else (c, d // 2)
        members[c | d << tables.D_SHIFT].append(residue)
    groups = tables.groups(16)
    assert groups.first.tolist() == [residues[0] for residues in members.values()]
    packed = [key + (len(residues) << tables.WEIGHT_SHIFT) for key, residues in members.items()]
    assert groups.packed.tolist() == packed


def test_greater_classes_cover_every_residue_in_order() -> None:
    packed, first = tables.groups(22)
    assert int((packed >> np.uint64(tables.WEIGHT_SHIFT)).sum()) == 2**22
    assert (np.diff(first.astype(np.int64)) > 0).all()
    assert len(np.unique(packed % np.uint64(2**tables.WEIGHT_SHIFT))) == len(packed)


def test_warm_compiles_all_that_runs() -> None:
    kernel.warm()
    functions = [statistics.tails().narrow, statistics.tails().wide, blocks.climb, blocks.singles]
    before = [len(function.signatures) for function in functions]
    assert all(before)
    computed(2**22 - 5, 2**22 + 70_000)
    computed(END - 2**22 - 1, 2**22 + 1)
    assert [len(function.signatures) for function in functions] == before


# Cutting and merging


@settings(max_examples=25)
@given(
    st.sampled_from([1, 3 * 2**20 - 40_000, 2**32 - 90_000, 10**12]),
    st.lists(st.integers(1, 199_999), max_size=6),
    st.randoms(use_true_random=False),
)
def test_any_partition_merges_to_the_same_partial(start: int, inner: list[int], shuffler: random.Random) -> None:
    count = 200_000
    cuts = [0, *sorted(set(inner)), count]
    parts = [kernel.run(spec(start, count), lo, hi, go_on)[1] for lo, hi in pairwise(cuts)]
    while len(parts) > 1:
        shuffler.shuffle(parts)
        parts.append(definition.merge(parts.pop(), parts.pop()))
    assert parts[0] == computed(start, count)


def _runs() -> Any:
    """Three sets of (n, value), in no order and with no n in common."""
    values = st.lists(st.integers(0, 30), min_size=30, max_size=30)
    owners = st.lists(st.integers(0, 3), min_size=30, max_size=30)

    def deal(drawn: tuple[list[int], list[int]]) -> list[list[list[int]]]:
        rows = list(zip(*drawn, strict=True))
        return [[[n, value] for n, (value, owner) in enumerate(rows) if owner == mine] for mine in range(3)]

    return st.tuples(values, owners).map(deal)


@given(_runs())
def test_records_of_parts_make_the_records_of_the_whole(sets: list[list[list[int]]]) -> None:
    def part(rows: list[list[int]]) -> dict[str, Any]:
        kept = [row for row in rows if all(row[1] > other[1] for other in rows if other[0] < row[0])]
        return {"histogram": [], "delay": kept, "path": kept}

    a, b, c = map(part, sets)
    whole = part(sorted(chain(*sets)))
    merge = partials.merge
    assert merge(merge(a, b), c) == merge(a, merge(c, b)) == merge(merge(c, a), b) == whole


def test_merging_changes_neither_side_and_nothing_is_neutral() -> None:
    left, right = computed(1, 50), computed(51, 1000)
    before = copy.deepcopy((left, right))
    merged = definition.merge(left, right)
    merged["histogram"][0][1] += 1
    merged["delay"][0][1] += 1
    assert (left, right) == before
    assert definition.merge({}, left) == definition.merge(left, {}) == left
    assert definition.merge({}, {}) == {}


def test_a_trajectory_has_no_second_part() -> None:
    part = kernel.run(walk_spec(27), 0, 1, go_on)[1]
    with pytest.raises(ValueError, match="single unit"):
        definition.merge(part, part)


@pytest.mark.parametrize("calls", [1, 2, 4])
def test_told_to_stop_a_kernel_keeps_what_it_has(calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "TICK_SECONDS", 0)
    start, lo, hi = 2**22 - 70_000, 500, 2**23 + 200_000
    told: list[int] = []

    def tick(unit: int) -> bool:
        told.append(unit)
        return len(told) < calls

    upto, partial = kernel.run(spec(start, hi), lo, hi, tick)
    assert len(told) == calls and told == sorted(told) and told[-1] == upto
    assert lo < upto < hi
    assert partial == kernel.run(spec(start, hi), lo, upto, go_on)[1]
    assert sum(count for _, count in partial["histogram"]) == upto - lo


def test_blocks_end_where_leases_are_cut() -> None:
    """Between its unaligned ends a lease is made of whole blocks, so units are told at multiples of the grain."""
    start, count = 150_000_000, 120_000_000
    cut = [end for _, end, bits in statistics.pieces(start, start + count, count) if bits == max(statistics.LEVELS)]
    assert len(cut) == 7
    assert all(end % GRAINS["statistics"] == 0 for end in cut)


@given(st.integers(1, 2**23), st.integers(1, 2**23), st.sampled_from([2**17, 2**22, 2**30]))
def test_pieces_cover_the_range_once(start: int, count: int, most: int) -> None:
    at = start
    for low, high, bits in statistics.pieces(start, start + count, most):
        assert low == at < high and high - low <= most
        assert not bits or (high - low == 2**bits and low % 2**bits == 0 and low >= 8 * 2**bits)
        at = high
    assert at == start + count


# Trajectories


@settings(max_examples=60)
@given(
    st.one_of(st.integers(1, 200), st.integers(1, 2**200)),
    st.sampled_from([2, 3, 7, 50, 4000]),
    st.one_of(st.just(10**6), st.integers(0, 300)),
)
def test_a_trajectory_is_that_of_the_reference(n: int, max_points: int, step_limit: int) -> None:
    job = walk_spec(n, max_points, step_limit)
    assert kernel.run(job, 0, 1, go_on) == (1, reference.run(job, 0, 1))


@given(st.integers(1, 2**300))
def test_parities_lead_back_from_one(n: int) -> None:
    job = walk_spec(n)
    result = definition.result(job, kernel.run(job, 0, 1, go_on)[1])
    steps, packed = result["parity"]["shortcut_steps"], bytes.fromhex(result["parity"]["hex"])
    assert len(packed) == -(-steps // 8)
    value = 1
    for at in reversed(range(steps)):
        odd = packed[at // 8] >> at % 8 & 1
        value = (2 * value - 1) // 3 if odd else 2 * value
    assert value == n
    assert result["delay"] == steps + result["odd_steps"] and result["ended"] == "one"


@given(st.integers(1, 2**120), st.integers(2, 60))
def test_a_curve_keeps_its_extremes_and_its_size(n: int, max_points: int) -> None:
    job = walk_spec(n, max_points)
    result = definition.result(job, kernel.run(job, 0, 1, go_on)[1])
    steps = [step for step, _ in result["curve"]]
    assert len(steps) <= max_points and steps == sorted(set(steps))
    assert result["peak"]["step"] in steps and result["delay"] in steps


def test_a_trajectory_that_is_given_up_says_so() -> None:
    job = walk_spec(27, step_limit=10)
    result = definition.result(job, kernel.run(job, 0, 1, go_on)[1])
    assert result["ended"] == "step limit"
    assert result["parity"]["shortcut_steps"] == 10


def test_a_trajectory_told_to_stop_has_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trajectory, "TICK_SECONDS", 0)
    told: list[int] = []

    def tick(unit: int) -> bool:
        told.append(unit)
        return len(told) < 3

    assert kernel.run(walk_spec(2**600 - 1), 0, 1, tick) == (0, {})
    assert told == [0, 0, 0]


def test_numbers_longer_than_python_reads_by_itself_are_walked() -> None:
    parameters = definition.parameters(mode="trajectory", n="9" * 5000)
    job = definition.plan(parameters)
    upto, partial = kernel.run(job.spec, 0, job.total, go_on)
    result = definition.result(job.spec, json.loads(json.dumps(partial)))
    assert upto == 1 and result["ended"] == "one"
    assert result["n"] == "9" * 5000 and result["peak"]["digits"] >= 5000


@settings(max_examples=15)
@given(st.integers(1, 2**40))
def test_logarithms_are_rounded_down_to_the_unit(value: int) -> None:
    exact = (value**2**FRACTION_BITS).bit_length() - 1
    assert 0 <= exact - log2(leading(value)) <= 1
    assert log2(leading(value << 70)) == log2(leading(value)) + (70 << FRACTION_BITS)


# Results


def test_a_result_is_exact_and_complete() -> None:
    job = spec(2**40, 300)
    partial = reference.run(job, 0, 300)
    delays = [len(list(reference.values(n))) - 1 for n in range(2**40, 2**40 + 300)]
    result = definition.result(job, json.loads(json.dumps(partial)))
    mean = Fraction(sum(delays), 300)
    assert list(result) == ["count", "delay", "peak", "records"]
    assert list(result["delay"]) == ["sum", "sumsq", "mean", "variance", "max", "histogram"]
    assert (result["count"], result["delay"]["sum"]) == (300, sum(delays))
    assert result["delay"]["sumsq"] == sum(delay**2 for delay in delays)
    assert result["delay"]["mean"] == float(mean)
    assert result["delay"]["variance"] == float(sum((delay - mean) ** 2 for delay in delays) / 300)
    assert result["delay"]["max"] == {"n": 2**40 + delays.index(max(delays)), "value": max(delays)}
    assert result["delay"]["histogram"] == [[delay, delays.count(delay)] for delay in sorted(set(delays))]
    assert result["delay"]["max"] == result["records"]["delay"][-1]
    assert result["peak"]["max"] == result["records"]["path"][-1]
    assert result["records"]["path"][0] == {"n": 2**40, "value": 2**40}


def test_integers_beyond_what_json_keeps_are_strings() -> None:
    result = definition.result(spec(12327829503, 1), computed(12327829503, 1))
    assert result["peak"]["max"] == {"n": 12327829503, "value": "20722398914405051728"}
    assert definition.result(spec(END - 2, 1), computed(END - 2, 1))["records"]["path"][0]["n"] == str(END - 2)


# Parameters and plans

REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"start_number": bad, "number_count": 5}, "start_number", f"1..{END - 1}") for bad in (0, -1, 10**400)
]
REFUSED += [({"start_number": 1, "number_count": bad}, "number_count", f"1..{MAX_COUNT}") for bad in (0, -1, 10**400)]
REFUSED += [
    ({"start_number": bad, "number_count": 5}, "start_number", "integer")
    for bad in [1.5, "abc", float("nan"), True, list[int]()]
]
REFUSED += [
    ({"start_number": 1, "number_count": 5, "batch_size": 0}, "batch_size", f"1..{MAX_UNITS}"),
    ({"start_number": 1, "number_count": 5, "batch_size": 2.5}, "batch_size", "integer"),
    ({"start_number": 1, "number_count": MAX_COUNT + 1}, "number_count", f"1..{MAX_COUNT}"),
    ({"start_number": END - 4, "number_count": 5}, "number_count", f"at most {END}"),
    ({"start_number": 1}, "number_count", "required"),
    ({"number_count": 1}, "start_number", "required"),
    ({"mode": "trajectory"}, "n", "required"),
    ({"mode": "frontier"}, "bits", "required"),
    ({"mode": "frontier", "bits": 89}, "bits", "20..88"),
    ({"mode": "frontier", "bits": 40, "n": 3}, "n", "belongs to mode trajectory"),
    ({"start_number": 1, "number_count": 5, "colour": 1}, "colour", "not permitted"),
    (
        {"start_number": 1, "number_count": 5, "mode": "sideways"},
        "mode",
        "statistics, verify, records, trajectory or frontier",
    ),
    (
        {"start_number": 1, "number_count": 5, "mode": None},
        "mode",
        "statistics, verify, records, trajectory or frontier",
    ),
    (
        {"start_number": 1, "number_count": 5, "mode": ["verify"]},
        "mode",
        "statistics, verify, records, trajectory or frontier",
    ),
    ({"start_number": 1, "number_count": 5, "n": 3}, "n", "belongs to mode trajectory"),
    ({"start_number": 1, "number_count": 5, "max_points": 30}, "max_points", "belongs to mode trajectory"),
    (
        {"mode": "trajectory", "n": 3, "start_number": 1},
        "start_number",
        "belongs to mode statistics, verify or records",
    ),
    (
        {"mode": "trajectory", "n": 3, "number_count": 1},
        "number_count",
        "belongs to mode statistics, verify or records",
    ),
    ({"mode": "trajectory", "n": 3, "batch_size": 1}, "batch_size", "belongs to mode statistics, verify or records"),
    ({"mode": "trajectory", "n": 3, "max_points": 1}, "max_points", "2..100000"),
    ({"mode": "trajectory", "n": 3, "max_points": 100_001}, "max_points", "2..100000"),
]
REFUSED += [
    ({"mode": "trajectory", "n": bad}, "n", "20000 digits")
    for bad in (
        0,
        -1,
        "-1",
        "",
        "abc",
        "0x10",
        "\u0661",
        1.5,
        float("nan"),
        True,
        10**20_000,
        "1" * 20_001,
        10**200_000,
    )
]


@pytest.mark.parametrize(("given", "field", "words"), REFUSED, ids=range(len(REFUSED)))
def test_a_refusal_names_field_and_bound(given: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        definition.parameters.model_validate(given)
    errors = {error["loc"]: error["msg"] for error in caught.value.errors(include_input=False)}
    assert words in errors[(field,)]
    assert len(errors[(field,)]) < 200


@pytest.mark.parametrize(
    "given",
    [
        {"start_number": 1, "number_count": MAX_COUNT},
        {"start_number": str(END - 5), "number_count": "5"},
        {"start_number": 7, "number_count": 1, "batch_size": None, "n": None},
        {"mode": "trajectory", "n": "9" * 20_000},
        {"mode": "trajectory", "n": 10**20_000 - 1, "max_points": 2},
        definition.example,
    ],
    ids=lambda value: repr(value)[:60],
)
def test_limits_themselves_are_allowed_and_planned(given: dict[str, Any]) -> None:
    job = definition.plan(definition.parameters.model_validate(given))
    assert 1 <= job.total <= MAX_UNITS
    assert job.total + job.offset + job.grain <= MAX_UNITS
    assert len(json.dumps(job.spec)) < 60_000
    assert json.loads(json.dumps(job.parameters)) == job.parameters
    # what a job shows may be submitted again and plans the same
    assert definition.plan(definition.parameters.model_validate(job.parameters)) == job


def test_leases_are_cut_at_multiples_of_the_grain_in_absolute_numbers() -> None:
    job = definition.plan(definition.parameters(start_number=10_000_001, number_count=10**9))
    assert 2 ** max(statistics.LEVELS) == GRAINS["statistics"]
    for multiple in (3, 200):
        unit = multiple * job.grain - 10_000_001
        assert (unit + job.offset) % job.grain == 0
    assert (job.mode, job.total, job.devices) == ("statistics", 10**9, (Device.GPU, Device.CPU))


def test_small_jobs_are_estimated_small_and_big_ones_big() -> None:
    def seconds(**given: Any) -> float:
        return definition.plan(definition.parameters(**given)).cpu_seconds

    assert seconds(start_number=10**12, number_count=10) < 0.005
    assert seconds(mode="trajectory", n=27) < 0.005
    assert seconds(start_number=1, number_count=10**10) > 10
    assert seconds(mode="trajectory", n="9" * 20_000) > 0.2
    job = definition.plan(definition.parameters(mode="trajectory", n=2**60))
    assert job.total == 1 and job.max_lease_seconds >= 600


def test_the_example_runs_end_to_end() -> None:
    job = definition.plan(definition.parameters.model_validate(definition.example))
    partial = kernel.run(job.spec, 0, job.total, go_on)[1]
    assert partial == reference.run(job.spec, 0, job.total)
    assert definition.result(job.spec, partial)["delay"]["max"] == {"n": 871, "value": 178}


def test_the_definition_needs_neither_numpy_nor_numba() -> None:
    check = "import sys, jobs.kinds.collatz.definition; print({'numpy', 'numba'} & set(sys.modules))"
    root = registry.folder("collatz").parents[2]
    done = subprocess.run([sys.executable, "-c", check], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
