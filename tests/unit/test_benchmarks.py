"""Tests that benchmarks are found by name, including those in the folder of a kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import __main__ as bench
from benchmarks import k1_kernels
from benchmarks.measure import Row
from jobs.kinds import registry
from tests import kernels


def test_benchmarks_of_kinds_are_found_by_folder() -> None:
    goals = bench.by_goal()
    assert "benchmarks.collatz.p1_verification" in goals["P1"]
    assert {"benchmarks.collatz.p4_gpu", "benchmarks.thread.p4_gpu"} <= set(goals["P4"])
    assert {"K1", "P5", "P6", "P7", "R1"} < set(goals)


def test_a_folder_of_benchmarks_is_a_kinds() -> None:
    folders = {path.parent.name for path in Path(bench.__file__).parent.glob("*/*.py")}
    assert folders - {"load", "peers"} <= set(registry.names())


@pytest.mark.parametrize("wanted", ["P99", "nosuch"])
def test_a_name_that_is_not_there_is_named_with_those_that_are(wanted: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main([wanted]) == 2
    said = capsys.readouterr().err
    assert f"no benchmark {wanted.upper()}; there are " in said and "P1, " in said and "collatz, " in said


def test_nothing_measured_is_a_failure(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(bench, "measured", lambda name: [])
    assert bench.main(["p4"]) == 1
    assert "nothing was measured" in capsys.readouterr().err


def test_any_kind_is_measured_by_its_example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(k1_kernels, "TURN_SECONDS", 0.01)
    monkeypatch.setattr(k1_kernels, "ROUNDS", 1)
    assert kernels.compile_all() == {}
    row = k1_kernels.row("collatz")
    assert isinstance(row, Row) and row.id == "K1@collatz" and row.ratio > 0


def test_a_ratio_is_better_when_it_is_higher() -> None:
    rates = Row(id="P1@x", ours=30, peer=20, unit="numbers/s", peer_name="a peer")
    times = Row(id="P6@x", ours=20, peer=30, unit="ms", peer_name="the goal", less_is_better=True)
    assert rates.ratio == times.ratio == 1.5
