"""Tests the report of a local cluster, which has the measurements of the other reports without Prometheus."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.docker import report
from deploy.local import commands, cpu_workers, scraped_metrics
from deploy.local import report as local_report

SCRAPE = """\
cluster_jobs_total{kind="collatz",outcome="done"} 3.0
cluster_jobs_total{kind="thread",outcome="done"} 0.0
cluster_lanes{device="cpu",state="busy"} 1.0
cluster_lanes{device="cpu",state="idle"} 3.0
cluster_lanes{device="gpu",state="idle"} 0.0
cluster_host_memory_used_bytes{host="desk"} 1000.0
cluster_host_memory_total_bytes{host="desk"} 4000.0
cluster_http_requests_total{method="GET",route="/api/status",status="200"} 99.0
cluster_http_requests_total{method="GET",route="/api/status",status="503"} 1.0
cluster_http_request_duration_seconds_bucket{method="GET",route="/api/status",le="0.1"} 50.0
cluster_http_request_duration_seconds_bucket{method="GET",route="/api/status",le="0.2"} 100.0
cluster_http_request_duration_seconds_bucket{method="GET",route="/api/status",le="+Inf"} 100.0
cluster_http_request_duration_seconds_bucket{method="GET",route="/api/events",le="0.1"} 0.0
cluster_http_request_duration_seconds_bucket{method="GET",route="/api/events",le="0.2"} 0.0
cluster_http_request_duration_seconds_bucket{method="GET",route="/api/events",le="+Inf"} 900.0
cluster_queue_wait_seconds_bucket{queue="any.normal",le="1.0"} 0.0
cluster_queue_wait_seconds_bucket{queue="any.normal",le="+Inf"} 0.0
"""


def test_a_scrape_gives_the_sections_of_the_report() -> None:
    lines = list(scraped_metrics.format_scrape(SCRAPE))
    values = {line[:44].strip(): line[44:].strip() for line in lines if line and not line.startswith("\n")}
    assert values == {
        "finished jobs collatz done": "3 in total",
        "API requests": "100 in total",
        "API errors": "1.0%",
        "API p50": "100 ms",
        "API p95": "190 ms",
        "API p99": "198 ms",
        "lanes busy cpu": "25.0%",
        "memory of a host desk": "25.0%",
    }


def test_each_measurement_of_the_other_reports_is_there_except_those_of_other_programs() -> None:
    ours, theirs = (
        [measurement.title for _, several in sections for measurement in several]
        for sections in (scraped_metrics.SECTIONS, report.SECTIONS)
    )
    assert [title for title in theirs if title not in ours] == ["memory of Redis", "share of Redis' limit", "down"]
    assert len(ours) == len(set(ours))


@pytest.mark.parametrize(
    ("counts", "quantile", "expected"),
    [
        ({1.0: 10.0, float("inf"): 10.0}, 0.5, 0.5),
        ({1.0: 0.0, 2.0: 4.0, float("inf"): 4.0}, 0.75, 1.75),
        ({1.0: 1.0, float("inf"): 10.0}, 0.99, 1.0),
    ],
)
def test_a_quantile_is_interpolated_in_its_bucket(counts: dict[float, float], quantile: float, expected: float) -> None:
    assert scraped_metrics.estimate_quantile(counts, quantile) == expected


def test_the_configuration_has_settings_but_no_other_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cpu_workers, "LANES", tmp_path / "lanes")
    monkeypatch.setattr(cpu_workers, "SIZE", tmp_path / "cluster_size")
    cpu_workers.write_lanes((2, 1), others=1)
    environment = {"WORKER_THREADS": "2", "HOME": "/home/me", "OTHER_PASSWORD": "x"}
    monkeypatch.setattr(commands, "describe_starter", lambda: (["python", "run"], environment))
    assert local_report.configuration() == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:] == ["lanes of CPU workers: 2 1", "command: python run", "WORKER_THREADS=2"]
    monkeypatch.setattr(commands, "describe_starter", lambda: ([], {}))
    assert local_report.configuration() == 0
    assert capsys.readouterr().out == "The cluster is not running.\n"
