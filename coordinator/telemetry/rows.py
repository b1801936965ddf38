"""Alerts, history and spans of work as the API shows them; `schemas.py` describes them, and a test compares both."""

from __future__ import annotations

from typing import NotRequired, TypedDict


class AlertRow(TypedDict):
    id: str
    rule: str
    subject: str
    severity: str
    state: str
    since: str
    #: When it was over; None while it fires.
    until: str | None
    value: float
    threshold: float
    unit: str
    text: str


class BinsRow(TypedDict):
    """A figure's bins; None where nothing is known."""

    min: list[float | None]
    mean: list[float | None]
    max: list[float | None]


#: Written as a call, because `from` is a keyword.
HistoryRow = TypedDict(
    "HistoryRow",
    {"from": int, "to": int, "step_seconds": int, "times": list[int], "series": dict[str, BinsRow], "names": list[str]},
)


class SpanLaneRow(TypedDict):
    lane: str
    worker: str
    device: str | None
    silent_since: NotRequired[float]


class SpanRow(TypedDict):
    #: Its number among the lanes.
    lane: int
    job_id: str | None
    type: str | None
    jobs: int
    start: float
    end: float
    busy_seconds: float
    units: int | str | None
    leases: int
    open: bool
    lost: NotRequired[bool]
    untold: NotRequired[bool]


SpansRow = TypedDict(
    "SpansRow",
    {
        "from": float, "to": float, "complete_since": float, "resolution_seconds": float,
        "lanes": list[SpanLaneRow], "spans": list[SpanRow],
    },
)  # fmt: skip


class GpuFiguresRow(TypedDict):
    """Figures of a GPU by other words; None where nothing is known."""

    #: Its number among the GPUs of the answer.
    id: int
    #: GiB.
    memory_total: float | None
    memory_used: float | None
    #: Percent.
    utilization: float | None
    #: Degrees Celsius.
    temperature: float | None
    #: Watts.
    power_usage: float | None


class GpuNowRow(GpuFiguresRow):
    name: str


class GpuThenRow(GpuFiguresRow):
    #: Seconds since 1970.
    timestamp: int


class GpuSummaryRow(TypedDict):
    available: bool
    count: int
    gpus: list[GpuNowRow]


class GpuStatusRow(TypedDict):
    """GPUs now, and in the last minute."""

    summary: GpuSummaryRow
    recent_metrics: list[GpuThenRow]


class SampleRow(TypedDict):
    """One number of a metric."""

    name: str
    labels: dict[str, str]
    value: float


class MetricRow(TypedDict):
    """A metric as Prometheus has it, with all its samples."""

    name: str
    #: counter, gauge or histogram.
    type: str
    help: str
    samples: list[SampleRow]
