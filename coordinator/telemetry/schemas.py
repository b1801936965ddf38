"""Answers about alerts, history and spans, for the API's description and the tests."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from coordinator.schemas import Answer, optional, required


class Alert(Answer):
    id: str = required("rule/subject")
    rule: str
    subject: str = required("What it is about: a queue, a worker, a kind; empty for the cluster.")
    severity: Literal["warning", "critical"]
    state: Literal["firing", "resolved"]
    since: str
    until: str | None = required("When it was over.")
    value: float = required("The latest while firing, the last before it was over.")
    threshold: float
    unit: str = required("Of both.")
    text: str


class Bins(Answer):
    """A figure's bins; null where nothing is known."""

    min: list[float | None]
    mean: list[float | None]
    max: list[float | None]


class History(Answer):
    """Bins that began after `from`, in seconds since 1970 of Redis' clock; bin i covers times[i] + step_seconds."""

    begins: int = Field(alias="from")
    to: int
    step_seconds: int
    times: list[int]
    series: dict[str, Bins]
    names: list[str] = required("Every figure that there is.")


class SpanLane(Answer):
    lane: str
    worker: str
    device: str | None
    silent_since: float | None = optional(
        "Last heartbeat, in seconds since 1970, of a worker that beats no more and is not yet taken for lost: what its "
        "open spans did after that is not known."
    )


class Span(Answer):
    """Leases of one lane that followed each other, of one job or, if small, of jobs of one kind."""

    lane: int = required("Its number in lanes.")
    job_id: str | None = required("null: several jobs, or untold.")
    type: str | None = required("null: of several kinds, or untold.")
    jobs: int = required("One that came again is counted again.")
    start: float = required("Seconds since 1970.")
    end: float
    busy_seconds: float = required("Computing, as the lane measured it; unknown while open.")
    units: int | str | None = required("null: untold.")
    leases: int
    open: bool = required("Being computed: it ends now.")
    lost: bool | None = optional("true: its worker was lost meanwhile; it ends at the worker's last heartbeat.")
    untold: bool | None = optional(
        "true: of another tenant, or of several small jobs whose tenants are not kept; told to tokens with operate."
    )


class Spans(Answer):
    """Spans of work by lane; none is left out: too many are joined to longer ones."""

    begins: float = Field(alias="from")
    to: float
    complete_since: float = required("Spans that ended before this moment are no longer kept.")
    resolution_seconds: float = required("0: every span by itself; else spans of a lane within this time are joined.")
    lanes: list[SpanLane]
    spans: list[Span]


class GpuFigures(Answer):
    """Figures of a GPU; null where nothing is known."""

    id: int = required("Its number among the GPUs of this answer.")
    memory_total: float | None = required("GiB.")
    memory_used: float | None = required("GiB.")
    utilization: float | None = required("Percent.")
    temperature: float | None = required("Degrees Celsius.")
    power_usage: float | None = required("Watts.")


class GpuNow(GpuFigures):
    name: str


class GpuThen(GpuFigures):
    timestamp: int = required("Seconds since 1970.")


class GpuSummary(Answer):
    available: bool
    count: int
    gpus: list[GpuNow]


class GpuStatus(Answer):
    """GPUs of live workers now, and each second of the last minute, the oldest first."""

    summary: GpuSummary
    recent_metrics: list[GpuThen]


class Sample(Answer):
    name: str = required("The metric's, of a histogram with _bucket, _sum or _count behind it.")
    labels: dict[str, str]
    value: float


class Metric(Answer):
    """A metric as Prometheus has it."""

    name: str
    type: Literal["counter", "gauge", "histogram"]
    help: str
    samples: list[Sample]


class Metrics(Answer):
    metrics: list[Metric]
