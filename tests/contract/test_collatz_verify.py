"""Tests that every sweep of the Collatz verification matches the reference, and that the sieve is correct."""

from __future__ import annotations

import json
import random
from functools import cache, reduce
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jobs.kinds import registry
from jobs.kinds.collatz import partials, verify
from jobs.kinds.collatz import verify_sieve as sieves
from jobs.kinds.collatz import verify_sweep as sweep
from jobs.kinds.collatz.parameters import END
from jobs.models import Device

definition: Any = registry.definition("collatz")
reference: Any = registry.reference("collatz")
kernel: Any = registry.kernel("collatz", Device.CPU)
GOLDEN = json.loads((registry.folder("collatz") / "golden.json").read_text())
CELL, BLOCK = 2**24, 2**32
#: Numbers at the limits of residues, cells, blocks, sweeps and limbs.
EDGES = (2**24, 2**31, 2**32, 2**40, 2**42, 10**15, 2**53, 2**54, 2**64, 2**70, 2**86, 2**90, 2**92, 2**95, END - 100)
STARTS = st.one_of(
    st.integers(1, 10**6),
    st.integers(1, END - 200),
    st.tuples(st.sampled_from(EDGES), st.integers(-100, 90)).map(sum),
    st.tuples(st.integers(1, 95), st.integers(-2, 2)).map(lambda pair: max(1, 2 ** pair[0] + pair[1])),
)


def go_on(_: int) -> bool:
    return True


def spec(start: int, count: int, batch_size: int | None = None) -> dict[str, Any]:
    return {"mode": "verify", "start": str(start), "count": count, "batch_size": batch_size}


def computed(start: int, count: int, batch_size: int | None = None) -> Any:
    upto, partial = kernel.run(spec(start, count, batch_size), 0, count, go_on)
    assert upto == count
    return partial


def nothing_fits(real: Any) -> Any:
    """Return sweeps that fail at every candidate."""

    def failing(name: str) -> Any:
        def run(task: Any, sieve: Any, room: Any, counts: Any) -> bool:
            getattr(real, name)(task, sieve, room, counts)
            return not counts[sweep.CANDIDATES]

        return run

    return SimpleNamespace(narrow=failing("narrow"), wide=failing("wide"), END=real.END)


@pytest.fixture(params=verify.all_sweeps(), ids=lambda module: module.__name__.rpartition("_")[2])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Return every set of sweeps that this CPU supports."""
    monkeypatch.setattr(verify, "sweeps", lambda: request.param)


# Kernel and reference


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("known", GOLDEN["verified"], ids=lambda known: known["why"])
def test_every_sweep_sees_what_the_reference_saw(known: dict[str, Any]) -> None:
    start, count = int(known["start"]), known["count"]
    assert computed(start, count) == known["partial"]
    assert reference.run(spec(start, count), 500, 700) == kernel.run(spec(start, count), 500, 700, go_on)[1]


@settings(max_examples=150, deadline=None)
@given(STARTS, st.integers(1, 150), st.integers(0, 60), st.sampled_from(verify.all_sweeps()))
@example(1, 100, 0, verify.all_sweeps()[0])
@example(2**96 - 100, 100, 0, verify.all_sweeps()[0])
def test_verification_is_the_reference_wherever_it_starts(start: int, count: int, skip: int, sweeps: Any) -> None:
    hi = min(skip + count, END - start)
    lo = min(skip, hi - 1)
    before = verify.sweeps
    try:
        verify.sweeps = cache(lambda: sweeps)
        assert kernel.run(spec(start, hi), lo, hi, go_on) == (hi, reference.run(spec(start, hi), lo, hi))
    finally:
        verify.sweeps = before


@pytest.mark.parametrize("start", [0, 2**27, 2**31, 2**32, 2**40, 5 * 2**40, 2**53, 2**70, 2**88, 2**92, 2**95])
def test_all_sweeps_agree_on_millions_of_numbers(start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    start, count = start + 12 * CELL + 1000, 4 * CELL
    usual = computed(start, count)
    assert usual["candidates"] / count == pytest.approx(44 / 81 * 34008263 / BLOCK, rel=0.01)
    for sweeps in verify.all_sweeps():
        monkeypatch.setattr(verify, "sweeps", lambda sweeps=sweeps: sweeps)
        for narrow_blocks in (0, 2**16)[: 1 + (start < 2**44)]:
            monkeypatch.setattr(verify, "NARROW_BLOCKS", narrow_blocks)
            assert computed(start, count) == usual, (sweeps, narrow_blocks)


@pytest.mark.usefixtures("path")
def test_what_outgrows_a_limb_is_exact_in_the_one_limb_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    start, count = 2**47, 8 * CELL
    usual = computed(start, count)
    assert usual["bits"] > 64
    monkeypatch.setattr(verify, "NARROW_BLOCKS", 2**16)
    assert computed(start, count) == usual


# The sieve


def test_the_sieve_has_the_sizes_that_others_found() -> None:
    """286,581: OEIS A076227 at 24. The rest is frozen: checksums depend on it."""
    powers = np.array([3**c for c in range(41)], np.uint64)
    assert len(sieves.not_falling(24, powers)) == 286_581
    sieve = sieves.sieve()
    assert len(sieve.residues) == 234_156
    assert int(np.bitwise_count(sieve.masks).sum()) == 34_008_263
    assert sum(map(sieves.live_mod_81, range(81))) == 44


def in_sieve(n: int) -> bool:
    sieve = sieves.sieve()
    at = int(np.searchsorted(sieve.residues, n % CELL))
    if at == len(sieve.residues) or sieve.residues[at] != n % CELL:
        return False
    s = n // CELL % 256
    row = n // BLOCK * BLOCK % 81 + n % CELL % 81
    return bool(int(sieve.masks[at, s // 64] & sieve.threes[row, s // 64]) >> (s % 64) & 1)


LIVE_RESIDUES = st.integers(0, 234_155).map(lambda at: int(sieves.sieve().residues[at]))


@settings(max_examples=400, deadline=None)
@given(
    st.integers(0, 2**64 - 1), st.one_of(LIVE_RESIDUES, LIVE_RESIDUES.map(lambda r: r + 1), st.integers(0, CELL - 1))
)
def test_the_sieve_holds_the_candidates_of_the_reference(h: int, r: int) -> None:
    n = h * CELL + r
    assert in_sieve(n) == reference.candidate(n)


def meets_a_smaller_one(n: int) -> bool:
    """Whether n reaches a smaller number within 32 steps, or is reached by one, or shares its 24th step with one."""
    x = n
    for _ in range(32):
        x = reference.step(x)
        if x < n:
            return True
    for before, steps in ((2 * n - 1, 1), (8 * n - 5, 3), (64 * n - 73, 6)):
        m, rest = divmod(before, 3 ** {1: 1, 3: 2, 6: 4}[steps])
        if not rest and verify.steps(m, steps) == n:
            return m < n
    others, x = [verify.steps(n, 24)], 0
    for _ in range(24):
        others = [2 * x for x in others] + [(2 * x - 1) // 3 for x in others if x % 3 == 2]
    return min(others) < n


@pytest.mark.parametrize("start", [2, 2**24 - 50, 2**32 - 50, 2**40 + 7, 2**66, 2**95])
def test_the_sieve_drops_only_what_meets_a_smaller_number(start: int) -> None:
    for n in range(start, start + 3000):
        assert in_sieve(n) or meets_a_smaller_one(n)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**64), LIVE_RESIDUES)
def test_what_later_sieves_drop_meets_a_smaller_number(h: int, r: int) -> None:
    n = h * CELL + r
    assert in_sieve(n) or meets_a_smaller_one(n)


def test_falling_by_step_25_to_32_is_falling_for_small_numbers_too() -> None:
    """The masks look at 3^c < 2^j alone; that T^j(n) <= n then is proved in the README from n = 2^10 on."""
    for n in range(2, 2**12):
        assert in_sieve(n) == reference.candidate(n)


# Cutting and merging


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from([1, 2**24 - 10**6, 2**32 - 2**25, 2**40 - 2**25, 10**15, 2**64 - 2**25, 2**70]),
    st.lists(st.integers(1, 2**26), max_size=6),
    st.randoms(use_true_random=False),
)
def test_any_partition_merges_to_the_same_partial(start: int, inner: list[int], shuffler: random.Random) -> None:
    count = 2**26 + 12345
    cuts = [0, *sorted(set(inner)), count]
    parts = [kernel.run(spec(start, count), lo, hi, go_on)[1] for lo, hi in pairwise(cuts)]
    shuffler.shuffle(parts)
    assert reduce(definition.merge, parts) == computed(start, count)


@pytest.mark.parametrize("batch_size", [100_000, 2**24, 3 * 2**24 + 5, 2**40])
def test_batch_size_never_changes_a_partial(batch_size: int) -> None:
    start, count = 2**40 - 2**25 - 77, 2**26
    assert computed(start, count, batch_size) == computed(start, count)


@given(
    st.one_of(st.integers(1, 2**34), st.integers(2**90, 2**95)),
    st.integers(1, 2**34),
    st.sampled_from([10**7, 2**24, 5 * 2**24 + 1, 2**32]),
)
def test_ranges_cover_once_and_share_a_floor(start: int, count: int, most: int) -> None:
    at = start
    for low, high in verify.ranges(start, start + count, most):
        assert low == at < high and high - low <= most
        assert low // CELL == (high - 1) // CELL or low % CELL == high % CELL == 0
        assert verify.floor_of(low) == verify.floor_of(high - 1) <= low
        at = high
    assert at == start + count


def test_told_to_stop_it_keeps_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "TICK_SECONDS", 0)
    start, count, told = 2**32 - 2**25, 2**26, []

    def tick(unit: int) -> bool:
        told.append(unit)
        return len(told) < 2

    job = spec(start, count, 2**24)
    upto, partial = kernel.run(job, 5, count, tick)
    assert told[-1] == upto < count
    assert partial == kernel.run(job, 5, upto, go_on)[1] and partial["count"] == upto - 5
    assert kernel.run(job, 5, 5, go_on) == (5, {})


# Failures are seen, rechecked and named


def test_a_number_that_never_stops_ends_a_sweep_and_not_the_process() -> None:
    for module in verify.all_sweeps():
        for name, start in (("narrow", 2**40), ("wide", 2**70)):
            task = verify.piece(start, start + 5000)._replace(floor=0).task()
            counts = np.zeros(sweep.WORDS, np.uint64)
            room = verify.room_tables()[name == "wide"]
            assert not getattr(module, name)(task, sieves.sieve(), room, counts)


@pytest.mark.usefixtures("path")
def test_values_beyond_three_limbs_fail_and_are_rechecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """2^128 - 1 rises above 2^182. No start below 2^96 is known that does, so next all sweeps are made to fail."""
    task, ones = verify.piece(2**70, 2**70 + 5000).task(), np.uint64(2**64 - 1)
    assert not sweep.finish(ones, ones, task, verify.room_tables()[1], np.zeros(sweep.WORDS, np.uint64))
    known = reference.run(spec(2**70, 3000), 0, 3000)
    failing = nothing_fits(verify.sweeps())
    monkeypatch.setattr(verify, "sweeps", lambda: failing)
    assert computed(2**70, 3000) == known


def test_numbers_given_up_are_named_and_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = nothing_fits(verify.sweeps())
    monkeypatch.setattr(verify, "sweeps", lambda: failing)
    monkeypatch.setattr(verify, "GIVE_UP", 30)
    monkeypatch.setattr(verify, "steps", lambda x, count: x + 1)
    candidates = [n for n in range(10**6, 10**6 + 500) if reference.candidate(n)]
    partial = computed(10**6, 500)
    assert partial["unresolved"] == candidates and partial["candidates"] == len(candidates) > 0
    result = definition.result(spec(10**6, 500), partial)
    assert result["verified"] is False and result["unresolved"] == candidates
    assert str(candidates[0]) in result["statement"] and "Nothing is claimed" in result["statement"]
    assert definition.marks(spec(10**6, 500), result) == []


def test_long_lists_of_failures_merge_in_any_order() -> None:
    empty = reference.run(spec(1, 1), 0, 1)
    parts = [empty | {"unresolved": partials.smallest_numbers(range(at, 2000, 7))} for at in range(1000, 1007)]
    merged = reduce(definition.merge, reversed(parts))
    assert merged["unresolved"] == list(range(1000, 1100)) and merged["count"] == 7


# Results, parameters and plans


def test_a_result_says_what_is_proved() -> None:
    job = spec(2**64, 3000)
    result = definition.result(job, json.loads(json.dumps(computed(2**64, 3000))))
    assert list(result) == [
        "count",
        "verified",
        "statement",
        "checksum",
        "candidates",
        "block_steps",
        "largest_bits",
        "unresolved",
    ]
    assert result["verified"] is True and result["count"] == 3000
    assert f"if all numbers below {2**64} reach 1, all below {2**64 + 3000} do" in result["statement"]
    assert isinstance(result["checksum"], str) and int(result["checksum"]) > 2**64
    (mark,) = definition.marks(job, result)
    assert (mark.name, mark.lo, mark.hi) == ("verified", 2**64, 2**64 + 3000)
    assert definition.result(spec(1, 9), computed(1, 9))["statement"] == "Every number from 1 to 9 reaches 1."


def test_what_is_not_finished_claims_nothing() -> None:
    result = definition.result(spec(1, 5000), kernel.run(spec(1, 5000), 0, 3000, go_on)[1])
    assert result["verified"] is False and "is not finished" in result["statement"]


def test_the_largest_jobs_are_planned() -> None:
    given = {"mode": "verify", "start_number": str(2**70), "number_count": "9000000000000000"}
    job = definition.plan(definition.parameters.model_validate(given))
    assert job.total == 9 * 10**15 and job.grain == BLOCK and job.mode == "verify"
    assert job.total + job.offset + job.grain <= 2**53
    assert 3600 < job.cpu_seconds < 10**6
    assert len(json.dumps(computed(2**70, 2**25))) < 300


def test_small_jobs_are_estimated_small() -> None:
    def seconds(**given: Any) -> float:
        return definition.plan(definition.parameters(mode="verify", **given)).cpu_seconds

    assert seconds(start_number=10**12, number_count=1000) < 0.001
    assert seconds(start_number=2**40, number_count=2**38) > 1
    assert seconds(start_number=2**94, number_count=2**38) > seconds(start_number=2**70, number_count=2**38)


def test_warm_compiles_all_that_runs() -> None:
    kernel.warm()
    functions = [verify.sweeps().narrow, verify.sweeps().wide]
    before = [len(function.signatures) for function in functions]
    assert all(before)
    computed(2**40 - 2**24, 2**25)
    computed(2**80 - 2**24, 2**25)
    assert [len(function.signatures) for function in functions] == before
