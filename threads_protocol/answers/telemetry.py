"""Types of responses about alerts, history and spans."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from typing_extensions import TypedDict

from threads_protocol.answers.fields import Answer, Count, Many, Moment, Seconds, Whole, describe, one_of

# The functional syntax is required, because `from` is a keyword.
_FromSecond = TypedDict("_FromSecond", {"from": Count})
_FromMoment = TypedDict("_FromMoment", {"from": float})


class Alert(Answer):
    id: Annotated[str, describe("ID of the alert, as rule/subject.")]
    rule: str
    subject: Annotated[str, describe("Affected queue, worker or kind; empty for the cluster.")]
    severity: Annotated[str, one_of(Literal["warning", "critical"])]
    state: Annotated[str, one_of(Literal["firing", "resolved"])]
    since: Moment
    until: Annotated[Moment | None, describe("Time when the alert was resolved.")]
    value: Annotated[float, describe("Latest value while firing, else the last value before it was resolved.")]
    threshold: float
    unit: Annotated[str, describe("Unit of value and threshold.")]
    text: str


class Bins(Answer):
    """History of one metric, with one value per bin. A value of null means no data."""

    min: Many[float | None]
    mean: Many[float | None]
    max: Many[float | None]


class History(Answer, _FromSecond):
    """History of metrics in bins that start after `from`, a time in seconds since 1970 by Redis' clock.

    Bin i covers the interval from times[i] to times[i] + step_seconds.
    """

    to: Count
    step_seconds: Count
    times: Many[Count]
    series: dict[str, Bins]
    names: Annotated[Many[str], describe("Names of all available series.")]


class SpanLane(Answer):
    lane: str
    worker: str
    device: str | None
    silent_since: NotRequired[
        Annotated[
            float,
            describe(
                "Unix time in seconds of the last heartbeat of a worker that is silent but not yet lost. "
                "Later activity of its open spans is unknown."
            ),
        ]
    ]


class Span(Answer):
    """Consecutive leases of one lane, for one job or for several small jobs of one kind."""

    lane: Annotated[Count, describe("Index of the lane in lanes.")]
    job_id: Annotated[str | None, describe("Job of the span; null if it covers several jobs or is private.")]
    type: Annotated[str | None, describe("Kind of the jobs; null if there are several kinds or the span is private.")]
    jobs: Annotated[Count, describe("Number of jobs. A job that returns to the lane counts again.")]
    start: Annotated[Seconds, describe("Start in Unix seconds.")]
    end: Seconds
    busy_seconds: Annotated[Seconds, describe("Computing time that the lane measured; unknown for an open span.")]
    units: Annotated[Whole | None, describe("Number of units; null if the span is private.")]
    leases: Count
    open: Annotated[bool, describe("True if the span is still running.")]
    lost: NotRequired[
        Annotated[bool, describe("True if the worker was lost. The span ends at the worker's last heartbeat.")]
    ]
    untold: NotRequired[
        Annotated[
            bool,
            describe(
                "True if the span is private: it belongs to another tenant, or to small jobs of unknown "
                "tenants. Only tokens with the scope operate see its details."
            ),
        ]
    ]


class Spans(Answer, _FromMoment):
    """Times in which lanes computed jobs. If there are too many spans, neighboring spans are merged."""

    to: float
    complete_since: Annotated[float, describe("Unix time before which ended spans are no longer stored.")]
    resolution_seconds: Annotated[
        Seconds, describe("Resolution in seconds: spans of a lane within this time are merged; 0: none are merged.")
    ]
    lanes: Many[SpanLane]
    spans: Many[Span]


class GpuFigures(Answer):
    """Measurements of a GPU. A value of null means unknown."""

    id: Annotated[Count, describe("Index of the GPU in this response.")]
    memory_total: Annotated[float | None, describe("Total memory in GiB.")]
    memory_used: Annotated[float | None, describe("Used memory in GiB.")]
    utilization: Annotated[float | None, describe("Utilization in percent.")]
    temperature: Annotated[float | None, describe("Temperature in degrees Celsius.")]
    power_usage: Annotated[float | None, describe("Power in watts.")]


class GpuNow(GpuFigures):
    name: str


class GpuThen(GpuFigures):
    timestamp: Annotated[Count, describe("Unix time in seconds.")]


class GpuSummary(Answer):
    available: bool
    count: Count
    gpus: Many[GpuNow]


class GpuStatus(Answer):
    """GPUs of live workers, with current measurements and with one sample per second of the last minute."""

    summary: GpuSummary
    recent_metrics: Many[GpuThen]


class Sample(Answer):
    name: Annotated[
        str, describe("Name of the sample: the metric's name, for histograms with _bucket, _sum or _count appended.")
    ]
    labels: dict[str, str]
    value: float


class Metric(Answer):
    """A metric with its samples, as in Prometheus."""

    name: str
    type: Annotated[str, one_of(Literal["counter", "gauge", "histogram"])]
    help: str
    samples: Many[Sample]


class Metrics(Answer):
    metrics: Many[Metric]
