"""Tests that all names of host and GPU measurements match the table that defines them."""

from __future__ import annotations

import dataclasses
import re
from operator import attrgetter

import pytest
from typing_extensions import get_type_hints

from coordinator.telemetry.routes import FIGURES
from jobs import metrics
from jobs.hosts import measurements
from jobs.hosts.measurements import Measurement
from jobs.worker.telemetry.gpus import HostGpu, Sample
from jobs.worker.telemetry.host import Host
from tests.dashboard_queries import every_query, metric_names
from tests.unit.monitoring import ROOT
from threads_protocol.answers import fleet

TABLES = {"host": (measurements.HOST, fleet.Worker), "gpu": (measurements.GPU, fleet.Gpu)}
#: GPU fields that are not measurements: the identity, and reasons, each of which is a metric.
DERIVED: set[metrics.Metric] = {metrics.HOST_SCORE, metrics.HOST_CLOCK, metrics.HOST_DISK_FREE, metrics.HOST_DISK_TOTAL}
FACTS = {"uuid", "index", "name", "throttle_reasons"}


@pytest.mark.parametrize("table", TABLES)
def test_the_api_describes_each_with_its_type(table: str) -> None:
    rows, answer = TABLES[table]
    types = get_type_hints(answer)
    for figure in rows:
        assert figure.type in (int, float)
        assert types[figure.field] is figure.type, figure.field


@pytest.mark.parametrize("table", TABLES)
def test_names_and_metrics_are_told_apart_and_say_their_unit(table: str) -> None:
    rows, _ = TABLES[table]
    for values in ([row.field for row in rows], [row.metric for row in rows], [r.history for r in rows if r.history]):
        assert len(values) == len(set(values))
    for figure in rows:
        assert figure.counts == figure.field.endswith("_total") == figure.metric.name.endswith("_total")
        assert figure.metric.name.startswith(f"cluster_{table}_") and unit(figure.metric.name) == unit(figure.field)


def unit(name: str) -> str:
    [word] = re.findall(r"ratio|bytes_per_second|bytes|celsius|watts|joules|hertz|cpus|load1", name)
    return str(word)


def test_a_gpus_row_holds_its_figures_and_nothing_else() -> None:
    fields = {field.name for field in dataclasses.fields(Sample)} | {
        field.name for field in dataclasses.fields(HostGpu)
    }
    assert fields == {figure.field for figure in measurements.GPU} | FACTS
    assert get_type_hints(fleet.Gpu).keys() == fields


def test_a_worker_reports_each_figure_of_its_host() -> None:
    assert {figure.field for figure in measurements.HOST} <= Host("h").figures().keys()


def test_each_figure_of_a_metric_is_in_the_table() -> None:
    declared = {metric for metric in metrics.ALL if metric.name.startswith(("cluster_gpu_", "cluster_host_"))}
    others = {metrics.GPU_INFO, metrics.GPU_THROTTLED, metrics.GPU_CORDONED, *DERIVED}
    assert {figure.metric for figure in (*measurements.HOST, *measurements.GPU)} == declared - others


def test_what_the_history_keeps_is_described() -> None:
    for figure in (*measurements.HOST, *measurements.GPU):
        assert not figure.history or f".{figure.history} ({figure.unit}" in FIGURES


@pytest.mark.parametrize("metric", sorted(DERIVED, key=attrgetter("name")), ids=attrgetter("name"))
def test_a_panel_shows_what_is_made_of_several(metric: metrics.Metric) -> None:
    assert metric.name in {name for asked in every_query() for name in metric_names(asked.expr)}


@pytest.mark.parametrize("figure", [*measurements.HOST, *measurements.GPU], ids=lambda figure: figure.metric.name)
def test_a_panel_shows_each(figure: Measurement) -> None:
    recorded = figure.metric.name.replace("_bytes", "") + ":ratio"
    read = {name.rpartition("cluster_")[2] for asked in every_query() for name in metric_names(asked.expr)}
    assert {figure.metric.name.removeprefix("cluster_"), recorded} & read


def test_the_page_about_gpus_has_a_row_for_each() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| ([^|]*) \| `(\w+)` \| (?:`(\w+)`)? *\|$", (ROOT / "docs/gpu.md").read_text(), re.MULTILINE
    )
    assert rows == [(figure.field, figure.unit, figure.metric.name, figure.history) for figure in measurements.GPU]
