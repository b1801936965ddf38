"""Tests GPU launches: their sizes, failures without memory, and which texts are sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.kinds import gpu


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr("jobs.kinds.gpu.time.perf_counter", lambda: now[0])
    return now


def sizes(batch: gpu.Batch, clock: list[float], seconds_a_unit: float, launches: int, room: int = 10**9) -> list[int]:
    taken = []

    def launch(units: int) -> int:
        if units > room:
            raise gpu.OutOfMemory("full")
        clock[0] += units * seconds_a_unit
        return units

    for _ in range(launches):
        taken.append(batch.take(10**9, launch))
    return taken


def test_launches_grow_to_a_tenth_of_a_second_and_no_further(clock: list[float]) -> None:
    found = sizes(gpu.Batch(first=1, most=10**6), clock, 1e-4, 8)
    assert found == [1, 4, 16, 64, 256, 999, 999, 999] or found[-1] in range(990, 1001)


def test_launches_that_take_too_long_shrink_at_once(clock: list[float]) -> None:
    assert sizes(gpu.Batch(first=10_000, most=10**6), clock, 1e-3, 3)[1:] == [100, 100]


def test_launches_fill_the_device_when_fewer_units_take_as_long(clock: list[float]) -> None:
    def launch(units: int) -> int:
        clock[0] += 0.2
        return units

    batch = gpu.Batch(first=10, most=10**6, wave=500)
    assert [batch.take(10**9, launch) for _ in range(5)] == [10, 40, 160, 500, 500]
    assert sizes(gpu.Batch(first=500, most=10**6, wave=500), clock, 2e-3, 2) == [500, 50]


def test_a_launch_never_passes_what_is_left_or_the_most(clock: list[float]) -> None:
    batch = gpu.Batch(first=10, most=20)
    assert sizes(batch, clock, 1e-9, 5)[-1] == 20
    assert batch.take(3, lambda units: units) == 3
    assert sizes(batch, clock, 1e-9, 1) == [20]


def test_out_of_memory_shrinks_the_launch_and_goes_on(clock: list[float]) -> None:
    batch = gpu.Batch(first=64, most=10**6)
    assert sizes(batch, clock, 1e-9, 4, room=10) == [8, 8, 8, 8]
    with pytest.raises(gpu.OutOfMemory):
        sizes(batch, clock, 1e-9, 1, room=0)


def test_a_source_is_one_text_with_its_constants_and_includes(tmp_path: Path) -> None:
    (tmp_path / "steps.cuh").write_text("int step;\n")
    (tmp_path / "kernel.cu").write_text('#include "steps.cuh"\nint kernel;\n')
    text = gpu.Source(tmp_path / "kernel.cu", (("BITS", 8),)).text()
    assert text == "#define BITS 8\nint step;\n\nint kernel;\n"


def test_a_process_without_a_gpu_says_so() -> None:
    gpu.set_device(None)
    with pytest.raises(gpu.DeviceLost, match="no GPU"):
        gpu.current_device()
