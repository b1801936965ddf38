"""Calculates the report's measurements from one scrape of a coordinator, because a local cluster has no Prometheus.

Counters are totals, and quantiles cover all jobs or requests that the histogram has counted.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from math import inf

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from deploy.docker import report
from deploy.docker.report import Measurement, Sections, Series
from jobs import metrics
from jobs.metrics import Metric

_IS_WAITING = re.compile(report.WAITING_ROUTES).fullmatch


class Scrape:
    """Samples of one response of `/metrics`."""

    def __init__(self, text: str) -> None:
        self._samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    def of(self, name: str) -> list[Sample]:
        return [sample for sample in self._samples if sample.name == name]

    def sums(self, name: str, labels: Iterable[str], **only: str) -> dict[str, float]:
        """Return sums of a metric's samples, keyed by the values of `labels`, which are joined with spaces.

        `only` contains the required values of other labels.
        """
        sums: dict[str, float] = defaultdict(float)
        for sample in self.of(name):
            if only.items() <= sample.labels.items():
                sums[" ".join(sample.labels[label] for label in labels)] += sample.value
        return sums


def _total(metric: Metric, *labels: str) -> Callable[[Scrape], Series]:
    return lambda scrape: sorted((by, count) for by, count in scrape.sums(metric.name, labels).items() if count)


def _ratio(part: dict[str, float], whole: dict[str, float]) -> Series:
    return sorted((by, part.get(by, 0.0) / count) for by, count in whole.items() if count)


def _busy_lanes(scrape: Scrape) -> Series:
    return _ratio(
        scrape.sums(metrics.LANES.name, ["device"], state="busy"), scrape.sums(metrics.LANES.name, ["device"])
    )


def _used_memory(scrape: Scrape) -> Series:
    return _ratio(
        scrape.sums(metrics.HOST_MEMORY.name, ["host"]), scrape.sums(metrics.HOST_MEMORY_TOTAL.name, ["host"])
    )


def _failed_requests(scrape: Scrape) -> Series:
    statuses = scrape.sums(metrics.HTTP_REQUESTS.name, ["status"])
    return _ratio(
        {"": sum(count for status, count in statuses.items() if status.startswith("5"))}, {"": sum(statuses.values())}
    )


def _quantiles(metric: Metric, label: str, quantile: float) -> Callable[[Scrape], Series]:
    """Return a function that calculates a quantile for each value of a label, or of all requests if it is empty."""

    def read(scrape: Scrape) -> Series:
        counts: dict[str, dict[float, float]] = defaultdict(lambda: defaultdict(float))
        for sample in scrape.of(f"{metric.name}_bucket"):
            if not _IS_WAITING(sample.labels.get("route", "")):
                counts[sample.labels.get(label, "")][float(sample.labels["le"])] += sample.value
        return sorted((by, estimate_quantile(row, quantile)) for by, row in counts.items() if row[inf])

    return read


def estimate_quantile(counts: dict[float, float], quantile: float) -> float:
    """Estimate a quantile as Prometheus does. `counts` are the cumulative counts of a histogram by upper bound."""
    rank = quantile * counts[inf]
    low = below = 0.0
    for bound, count in sorted(counts.items()):
        if count >= rank and count > below:
            return low if bound == inf else low + (bound - low) * (rank - below) / (count - below)
        low, below = bound, count
    return low


#: Functions that calculate measurements of the report, keyed by title.
_VALUES: dict[str, Callable[[Scrape], Series]] = {
    "finished jobs": _total(metrics.JOBS, "kind", "outcome"),
    "units": _total(metrics.UNITS, "kind", "device"),
    "leases": _total(metrics.LEASES, "outcome"),
    "API requests": _total(metrics.HTTP_REQUESTS),
    "API errors": _failed_requests,
    **{f"API {name}": _quantiles(metrics.HTTP_SECONDS, "", quantile) for name, quantile in report.QUANTILES},
    **{f"queue wait {name}": _quantiles(metrics.WAIT, "queue", quantile) for name, quantile in report.QUANTILES},
    **{f"job {name}": _quantiles(metrics.DURATION, "kind", quantile) for name, quantile in report.QUANTILES},
    "lanes busy": _busy_lanes,
    "CPU of a host": _total(metrics.HOST_CPU, "host"),
    "memory of a host": _used_memory,
    "GPU in use": lambda scrape: sorted(scrape.sums(metrics.GPU_UTILIZATION.name, ["worker", "gpu"]).items()),
}


def _show_total(value: float) -> str:
    return f"{value:,.0f} in total"


def _without_prometheus(measurements: Iterable[Measurement]) -> list[Measurement]:
    """Return the measurements that a scrape contains. Rates are replaced with totals."""
    return [
        replace(each, show=_show_total) if each.show is report.per_second else each
        for each in measurements
        if each.title in _VALUES
    ]


#: Sections of the report that a scrape contains.
SECTIONS: Sections = [
    (title, kept) for title, measurements in report.SECTIONS if (kept := _without_prometheus(measurements))
]


def format_scrape(text: str) -> Iterable[str]:
    """Yield the lines of the report's sections for a response of `/metrics`."""
    scrape = Scrape(text)
    return report.format_measurements(lambda measurement: _VALUES[measurement.title](scrape), SECTIONS)
