"""Tests the Collatz GPU sources on the host against the reference and the CPU kernel."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jobs.kinds import gpu, registry
from jobs.kinds.collatz import statistics, statistics_gpu, verify, verify_gpu
from jobs.kinds.collatz.parameters import END
from jobs.models import Device
from tests.gpu import devices

definition: Any = registry.definition("collatz")
reference: Any = registry.reference("collatz")
on_cpu: Any = registry.kernel("collatz", Device.CPU)
on_gpu: Any = registry.kernel("collatz", Device.GPU)
GOLDEN = json.loads((registry.folder("collatz") / "golden.json").read_text())
CELL, BLOCK, CLASSES = 2**24, 2**32, 2**22
#: Numbers at the limits of residues, cells, blocks, kernels and limbs.
EDGES = (2**24, 2**31, 2**32, 2**40, 2**42, 10**15, 2**53, 2**54, 2**64, 2**70, 2**86, 2**90, 2**92, 2**95, END - 100)
STARTS = st.one_of(
    st.integers(1, 10**6),
    st.integers(1, END - 200),
    st.tuples(st.sampled_from(EDGES), st.integers(-100, 90)).map(sum),
    st.tuples(st.integers(1, 95), st.integers(-2, 2)).map(lambda pair: max(1, 2 ** pair[0] + pair[1])),
)


@pytest.fixture(autouse=True, scope="module")
def device() -> Iterator[None]:
    """Blocks, grids and so on of a shape that no array is a multiple of."""
    gpu.set_device(devices.device(most_blocks=3, most_threads=96))
    yield
    gpu.set_device(None)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 2^10 numbers go to the device, so that the reference can follow."""
    monkeypatch.setattr(statistics_gpu, "LEVELS", (10,))


def go_on(_: int) -> bool:
    return True


def spec(mode: str, start: int, count: int, batch_size: int | None = None) -> dict[str, Any]:
    return {"mode": mode, "start": str(start), "count": count, "batch_size": batch_size}


def computed(kernel: Any, job: dict[str, Any]) -> Any:
    upto, partial = kernel.run(job, 0, job["count"], go_on)
    assert upto == job["count"]
    return partial


def same(job: dict[str, Any]) -> Any:
    """Return the result of both kernels after checking that they are equal."""
    found = computed(on_gpu, job)
    assert found == computed(on_cpu, job)
    return found


# Verification


@pytest.mark.parametrize("known", GOLDEN["verified"], ids=lambda known: known["why"])
def test_the_device_sees_what_the_reference_saw(known: dict[str, Any]) -> None:
    assert computed(on_gpu, spec("verify", int(known["start"]), known["count"])) == known["partial"]


@settings(max_examples=100, deadline=None)
@given(STARTS, st.integers(1, 150), st.integers(0, 60))
@example(1, 100, 0)
@example(2**96 - 100, 100, 0)
def test_verification_is_the_reference_wherever_it_starts(start: int, count: int, skip: int) -> None:
    hi = min(skip + count, END - start)
    lo = min(skip, hi - 1)
    job = spec("verify", start, hi)
    assert on_gpu.run(job, lo, hi, go_on) == (hi, reference.run(job, lo, hi))


@pytest.mark.parametrize("start", [0, 2**27, 2**31, 2**32, 2**40, 2**42, 2**53, 2**70, 2**88, 2**92, 2**95])
def test_verification_agrees_with_cpus_on_millions_of_numbers(start: int) -> None:
    found = same(spec("verify", start + 12 * CELL + 1000, 4 * CELL))
    assert found["candidates"] / (4 * CELL) == pytest.approx(44 / 81 * 34008263 / BLOCK, rel=0.01)


@pytest.mark.parametrize("start", [BLOCK, 2**42 - BLOCK, 2**64 - BLOCK])
def test_blocks_taken_by_one_launch_are_those_taken_one_by_one(start: int) -> None:
    tasks = [verify.piece(start + at * BLOCK, start + at * BLOCK + 2 * CELL) for at in range(2)]
    together, apart = verify_gpu.GpuTotals(), verify_gpu.GpuTotals()
    together.take_blocks(tasks[0], 2)
    for task in tasks:
        apart.take_blocks(task, 1)
    assert together.partial(1) == apart.partial(1)
    assert together.candidates > 100_000


def test_whole_blocks_go_to_launches_together(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[tuple[int, int]] = []

    def take_blocks(seen: Any, task: verify.Piece, count: int) -> int:
        taken.append((task.h, count))
        return count

    monkeypatch.setattr(verify_gpu.GpuTotals, "take_blocks", take_blocks)
    monkeypatch.setattr(verify_gpu, "batch", gpu.Batch(first=5, most=5))
    on_gpu.run(spec("verify", 2 * BLOCK - 7, 7 * BLOCK + 10), 0, 7 * BLOCK + 10, go_on)
    assert taken == [(1, 1), (2, 5), (7, 2), (9, 1)]


def test_what_a_launch_has_no_room_for_is_launched_in_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    job = spec("verify", 2**95 + 12345, CELL)
    usual = computed(on_gpu, job)
    monkeypatch.setattr(verify_gpu, "ROOM", 64)
    monkeypatch.setattr(verify_gpu, "SOURCE", with_passes(verify_gpu.SOURCE, 40))
    assert computed(on_gpu, job) == usual


def with_passes(source: gpu.Source, passes: int) -> gpu.Source:
    """Leave numbers to the host after a few passes."""
    constants = dict(source.constants) | {"PASSES": passes}
    return gpu.Source(source.path, tuple(constants.items()))


@pytest.mark.parametrize("start", [2**40 + 999, 2**70 + 5, 2**94])
def test_numbers_left_to_the_host_count_all_the_same(start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    job = spec("verify", start, 50_000)
    usual = same(job)
    monkeypatch.setattr(verify_gpu, "SOURCE", with_passes(verify_gpu.SOURCE, 2))
    assert computed(on_gpu, job) == usual


# Statistics


@pytest.mark.usefixtures("small_blocks")
@settings(max_examples=60, deadline=None)
@given(st.one_of(st.integers(8, 2**40), st.integers(8, 2**85), st.integers(3, 85).map(lambda bits: 2**bits)))
def test_small_blocks_are_the_reference(h: int) -> None:
    job = spec("statistics", (h << 10) - 30, 2 * 2**10 + 60)
    assert computed(on_gpu, job) == reference.run(job, 0, job["count"])


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("start", [8 * 2**10, 12 * 2**10, 2**20, 3 * 2**20])
def test_the_first_blocks_are_the_reference(start: int) -> None:
    job = spec("statistics", start, 40 * 2**10 + 17)
    assert computed(on_gpu, job) == reference.run(job, 0, job["count"])


@pytest.mark.usefixtures("small_blocks")
@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**70), st.integers(2**13, 2**18), st.sampled_from([None, 2**12, 3 * 2**10 + 5, 10**5]))
def test_many_small_blocks_agree_with_cpus(start: int, count: int, batch_size: int | None) -> None:
    same(spec("statistics", start + 1, count, batch_size))


@pytest.mark.parametrize("h", [8, 100, 2**18, 2**22 - 1, 2**31, 2**32, 2**42, 2**48, 2**64, 2**73], ids=hex)
def test_great_blocks_agree_with_cpus(h: int) -> None:
    job = spec("statistics", (h << 22) - 1000, 3 * CLASSES + 2000)
    assert sum(count for _, count in same(job)["histogram"]) == job["count"]


@pytest.mark.parametrize("n", [8528817511, 12327829503, 1410123943, 319804831])
def test_published_path_records_are_found_by_the_device(n: int) -> None:
    peak = max(reference.values(n))
    start = n // CLASSES * CLASSES
    assert [n, peak] in computed(on_gpu, spec("statistics", start, CLASSES))["path"]


@pytest.mark.usefixtures("small_blocks")
def test_a_launch_that_lists_too_much_takes_fewer_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    job = spec("statistics", 2**50, 2**17)
    usual = same(job)
    monkeypatch.setattr(statistics_gpu, "GROWTH", 1000)
    monkeypatch.setattr(statistics_gpu, "batch", gpu.Batch(first=128, most=128))
    monkeypatch.setattr(statistics_gpu, "ROOM", 450)
    assert computed(on_gpu, job) == usual


@pytest.mark.usefixtures("small_blocks")
def test_what_passes_two_limbs_is_left_to_integers_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below 2^96 only few do, so the walk is made to give up as if they had."""
    job = spec("statistics", 2**94, 2**13)
    usual = computed(on_gpu, job)
    walked, seen = statistics_gpu.GpuCounts.walk_places, []

    def giving_up(counts: Any, places: Any) -> Any:
        delays, high, low = walked(counts, places)
        delays[::3] = 2**64 - 1
        seen.append(len(delays))
        return delays, high, low

    monkeypatch.setattr(statistics_gpu.GpuCounts, "walk_places", giving_up)
    assert computed(on_gpu, job) == usual and seen


def test_rising_is_what_exceeds_all_before_it() -> None:
    dice = random.Random(3)
    for _ in range(200):
        rows = [(dice.randrange(3), dice.randrange(2**62, 2**62 + 4)) for _ in range(dice.randrange(1, 40))]
        high, low = np.array(rows, np.uint64).T
        expected = [at for at, row in enumerate(rows) if all(row > other for other in rows[:at])]
        assert statistics_gpu.new_maxima(high, low) == expected


def test_numbers_that_the_walk_ends_early_are_said() -> None:
    counts = statistics_gpu.GpuCounts(2**127)
    delays, *_ = counts.walk_places(np.array([0, 1, 2**62 - 1], np.uint64))
    assert delays[1] == 2**64 - 1


# Both


@pytest.mark.parametrize(("mode", "start"), [("statistics", 2**40 - 3 * 2**21), ("verify", 2**40 - 2**25)])
def test_any_partition_merges_to_the_same_partial(mode: str, start: int) -> None:
    count, dice = 2**25 + 12345, random.Random(mode)
    cuts = [0, *sorted(dice.sample(range(1, count), 5)), count]
    job = spec(mode, start, count)
    parts = [dice.choice((on_gpu, on_cpu)).run(job, lo, hi, go_on)[1] for lo, hi in pairwise(cuts)]
    dice.shuffle(parts)
    assert reduce(definition.merge, parts) == computed(on_gpu, job)


@pytest.mark.parametrize("mode", ["statistics", "verify"])
def test_told_to_stop_it_keeps_what_it_has(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "TICK_SECONDS", 0)
    monkeypatch.setattr(statistics_gpu, "TICK_SECONDS", 0)
    told: list[int] = []

    def tick(unit: int) -> bool:
        told.append(unit)
        return len(told) < 2

    job = spec(mode, 2**32 - 2**23, 2**24, 2**22)
    upto, partial = on_gpu.run(job, 5, job["count"], tick)
    assert told[-1] == upto < job["count"]
    assert partial == on_cpu.run(job, 5, upto, go_on)[1]


@pytest.mark.parametrize("mode", ["statistics", "verify"])
def test_nothing_asked_is_nothing_computed(mode: str) -> None:
    assert on_gpu.run(spec(mode, 5, 10), 3, 3, go_on) == (3, {})


@pytest.mark.parametrize(
    ("parameters", "devices"),
    [
        ({"mode": "verify", "start_number": 1, "number_count": 10}, {"gpu", "cpu"}),
        ({"mode": "statistics", "start_number": 1, "number_count": 10}, {"gpu", "cpu"}),
        ({"mode": "statistics", "start_number": 1, "number_count": 10, "columns": 4}, {"cpu"}),
        ({"mode": "records", "start_number": 1, "number_count": 10}, {"cpu"}),
        ({"mode": "trajectory", "n": 27}, {"cpu"}),
    ],
)
def test_what_has_no_kernel_is_planned_to_cpus(parameters: dict[str, Any], devices: set[str]) -> None:
    assert set(definition.plan(definition.parameters.model_validate(parameters)).devices) == devices


def test_constants_of_the_sources_are_those_of_the_statistics() -> None:
    assert statistics.LEAST_BLOCK << 10 >= 2**8
    assert 2 ** (8 + statistics_gpu.GROWTH_BITS) > 2 * 3**8
    assert 3**8 < 2**13
    assert (statistics_gpu.MOST_NUMBERS >> 22) * 2**22 <= 2**32


@pytest.mark.parametrize("mode", ["statistics", "verify"])
@pytest.mark.usefixtures("small_blocks")
def test_when_memory_runs_out_launches_shrink_and_the_answer_stays(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    small = mode == "statistics"
    job = spec(mode, 2**40, 2**18 if small else 6 * BLOCK)
    module, name = (statistics_gpu, "GpuCounts") if small else (verify_gpu, "GpuTotals")
    real, asked = getattr(module, name).take_blocks, []

    def full(seen: Any, *arguments: Any) -> Any:
        asked.append(arguments[-1])
        if arguments[-1] > 3:
            raise gpu.OutOfMemory("no room")
        return real(seen, *arguments) if small else arguments[-1]

    monkeypatch.setattr(getattr(module, name), "take_blocks", full)
    monkeypatch.setattr(module, "batch", gpu.Batch(first=64, most=64))
    upto, partial = on_gpu.run(job, 0, job["count"], go_on)
    assert upto == job["count"] and max(asked) > 3 and asked[-1] <= 3
    if small:
        assert partial == computed(on_cpu, job)
