"""Responses about alerts, history and spans."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from typing_extensions import TypedDict

from threads_protocol.answers.fields import Answer, Count, Many, Moment, Seconds, Whole, describe, one_of

# Declared with the functional syntax because `from` is a keyword.
_FromSecond = TypedDict("_FromSecond", {"from": Count})
_FromMoment = TypedDict("_FromMoment", {"from": float})


class Alert(Answer):
    id: Annotated[str, describe("rule/subject")]
    rule: str
    subject: Annotated[str, describe("What it is about: a queue, a worker, a kind; empty for the cluster.")]
    severity: Annotated[str, one_of(Literal["warning", "critical"])]
    state: Annotated[str, one_of(Literal["firing", "resolved"])]
    since: Moment
    until: Annotated[Moment | None, describe("When it was over.")]
    value: Annotated[float, describe("The latest while firing, the last before it was over.")]
    threshold: float
    unit: Annotated[str, describe("Of both.")]
    text: str


class Bins(Answer):
    """Bins of one metric; null means no data."""

    min: Many[float | None]
    mean: Many[float | None]
    max: Many[float | None]


class History(Answer, _FromSecond):
    """Bins of a metric's history that start after `from`, a Unix time in seconds on Redis's clock.

    Bin i covers the interval from times[i] to times[i] + step_seconds.
    """

    to: Count
    step_seconds: Count
    times: Many[Count]
    series: dict[str, Bins]
    names: Annotated[Many[str], describe("Every figure that there is.")]


class SpanLane(Answer):
    lane: str
    worker: str
    device: str | None
    silent_since: NotRequired[
        Annotated[
            float,
            describe(
                "Last heartbeat, in seconds since 1970, of a worker that beats no more and is not yet taken for lost: "
                "what its open spans did after that is not known."
            ),
        ]
    ]


class Span(Answer):
    """Consecutive leases of one lane, for one job or for several small jobs of one kind."""

    lane: Annotated[Count, describe("Its number in lanes.")]
    job_id: Annotated[str | None, describe("null: several jobs, or untold.")]
    type: Annotated[str | None, describe("null: of several kinds, or untold.")]
    jobs: Annotated[Count, describe("One that came again is counted again.")]
    start: Annotated[Seconds, describe("Seconds since 1970.")]
    end: Seconds
    busy_seconds: Annotated[Seconds, describe("Computing, as the lane measured it; unknown while open.")]
    units: Annotated[Whole | None, describe("null: untold.")]
    leases: Count
    open: Annotated[bool, describe("Being computed: it ends now.")]
    lost: NotRequired[
        Annotated[bool, describe("true: its worker was lost meanwhile; it ends at the worker's last heartbeat.")]
    ]
    untold: NotRequired[
        Annotated[
            bool,
            describe(
                "true: of another tenant, or of several small jobs whose tenants are not kept; told to tokens with "
                "operate."
            ),
        ]
    ]


class Spans(Answer, _FromMoment):
    """Spans of work by lane. If there are too many, neighboring spans are merged and none is dropped."""

    to: float
    complete_since: Annotated[float, describe("Spans that ended before this moment are no longer kept.")]
    resolution_seconds: Annotated[
        Seconds, describe("0: every span by itself; else spans of a lane within this time are joined.")
    ]
    lanes: Many[SpanLane]
    spans: Many[Span]


class GpuFigures(Answer):
    """Metrics of a GPU; null means unknown."""

    id: Annotated[Count, describe("Its number among the GPUs of this answer.")]
    memory_total: Annotated[float | None, describe("GiB.")]
    memory_used: Annotated[float | None, describe("GiB.")]
    utilization: Annotated[float | None, describe("Percent.")]
    temperature: Annotated[float | None, describe("Degrees Celsius.")]
    power_usage: Annotated[float | None, describe("Watts.")]


class GpuNow(GpuFigures):
    name: str


class GpuThen(GpuFigures):
    timestamp: Annotated[Count, describe("Seconds since 1970.")]


class GpuSummary(Answer):
    available: bool
    count: Count
    gpus: Many[GpuNow]


class GpuStatus(Answer):
    """GPUs of live workers: current metrics, and one sample per second of the last minute, oldest first."""

    summary: GpuSummary
    recent_metrics: Many[GpuThen]


class Sample(Answer):
    name: Annotated[str, describe("The metric's, of a histogram with _bucket, _sum or _count behind it.")]
    labels: dict[str, str]
    value: float


class Metric(Answer):
    """A metric in Prometheus's data model."""

    name: str
    type: Annotated[str, one_of(Literal["counter", "gauge", "histogram"])]
    help: str
    samples: Many[Sample]


class Metrics(Answer):
    metrics: Many[Metric]
