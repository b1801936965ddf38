"""The benchmark of scale (goal P8) runs, on ten workers and 200 jobs; what it measures here says nothing."""

from __future__ import annotations

from pathlib import Path

from benchmarks import p8_scale
from tests.integration.live import Live

WORKERS, JOBS = 10, 200


def test_workers_that_compute_nothing_commit_and_every_row_is_measured(tmp_path: Path) -> None:
    live = Live(tmp_path, workers=0)
    try:
        live.start()
        p8_scale.queue_jobs(live, JOBS)
        measured = p8_scale.levels(live, WORKERS, (0.05,), 2.0)
        rows = [*p8_scale.level_rows(measured, WORKERS, JOBS), *p8_scale.listener_rows(live, 20, 0.5)]
    finally:
        live.stop()
    assert not measured[0].rates.get("errors") and "commits" in measured[0].rates
    assert {"P8@api-p99", "P8@listeners-submit-p99"} <= {row.id for row in rows}


def test_the_time_of_a_decision_is_measured_without_and_with_tenants() -> None:
    rows = list(p8_scale.placement_rows(devices=10, waiting=20, calls=20))
    assert [row.id for row in rows if row.id.endswith("p99")] == ["P8@placement-p99", "P8@placement-10-tenants-p99"]
