"""Tests that the scale benchmark (goal P8) runs with ten workers and 200 jobs, without judging its figures."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from benchmarks import p8_scale
from benchmarks.measure import Incomplete, Row
from benchmarks.stages import Stages
from tests.integration.live import TOP, Live

SIZE = p8_scale.Size(workers=10, jobs=200, listeners=20, lengths=(0.05,), level_seconds=1.0, rounds=1, calls=20)


@pytest.fixture
def stages() -> Stages:
    return Stages("P8", 60.0)


def test_workers_that_compute_nothing_commit_and_every_row_is_measured(tmp_path: Path, stages: Stages) -> None:
    live = Live(tmp_path, workers=0)
    try:
        live.start()
        p8_scale.queue_jobs(live, SIZE.jobs)
        measured = p8_scale.levels(live, SIZE, stages)
        rows = [*p8_scale.level_rows(measured, SIZE.workers, SIZE.jobs), *p8_scale.listener_rows(live, SIZE, stages)]
    finally:
        live.stop()
    assert not measured[0].rates.get("errors") and "commits" in measured[0].rates
    assert {"P8@api-p99", "P8@listeners-submit-p99"} <= {row.id for row in rows}


def test_the_time_of_a_decision_is_measured_without_and_with_tenants(stages: Stages) -> None:
    rows = [row for tenants in (1, 10) for row in p8_scale.placement_rows(SIZE, tenants, stages)]
    assert [row.id for row in rows if row.id.endswith("p99")] == ["P8@placement-p99", "P8@placement-10-tenants-p99"]


def test_ctrl_c_ends_the_benchmark_and_every_process_of_it() -> None:
    command = [sys.executable, "-m", "benchmarks", "--only", "P8"]
    with subprocess.Popen(
        command, cwd=TOP, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ, "QUICK": "1"}
    ) as bench:
        assert bench.stderr
        while "devices hold a job each" not in bench.stderr.readline():
            assert bench.poll() is None
        begun = psutil.Process(bench.pid).children(recursive=True)
        bench.send_signal(signal.SIGINT)
        bench.stderr.read()
    assert begun and not psutil.wait_procs(begun, 30)[1] and bench.returncode == 130


def test_a_stage_that_fails_leaves_the_others_and_is_named() -> None:
    row = Row(id="P8@x", ours=1, peer=1, unit="s", peer_name="")
    stages, none_left = Stages("P8", 60.0), Stages("P8", 0.0)
    stages.run("first", lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    stages.run("second", lambda: [row])
    with pytest.raises(Incomplete, match="not measured: first") as caught:
        stages.rows()
    assert caught.value.rows == [row]
    none_left.run("third", lambda: [row])
    with pytest.raises(Incomplete, match="third"):
        none_left.rows()
