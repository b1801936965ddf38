"""Create the trace spans of an ended job from its stored data. No I/O.

A job's span lasts from its submission to its end. Its child spans are the wait in the queue, consecutive leases of each
lane, and the derivation of the result. Times are from the Redis clock, except for requests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from coordinator import tracing
from coordinator.telemetry.spans import Span
from coordinator.tracing import TraceContext

#: Fields of a job's hash from which its spans are created.
FIELDS = (
    "traceparent",
    "tracestate",
    "parent_span",
    "kind",
    "state",
    "tenant",
    "queue",
    "workflow",
    "created",
    "started",
    "ended",
    "total",
    "done",
    "small",
    "error",
)
#: Maximum number of lane spans of a job. If there are more, the last ones are kept.
MAX_LANE_SPANS = 1000
#: Maximum number of characters of a job's error in its span.
_MAX_ERROR = 500

Attributes: TypeAlias = Mapping[str, str | int | float]


@dataclass(frozen=True, kw_only=True)
class TraceSpan:
    """Span of a trace. Times are in milliseconds since 1970."""

    trace: TraceContext
    #: ID of the parent span, or empty for the first span of a trace.
    parent: str
    name: str
    start: float
    end: float
    attributes: Attributes = field(default_factory=dict)
    #: Error message, or empty if the operation succeeded.
    error: str = ""
    #: True if the span covers the handling of a request.
    answers: bool = False


@dataclass(frozen=True, kw_only=True)
class EndedJob:
    """Ended job of a sampled trace."""

    job_id: str
    row: Mapping[str, str]
    trace: TraceContext

    @property
    def is_small(self) -> bool:
        """Return True if the job has no stored lane spans."""
        return self.row.get("small") == "1"

    @property
    def began(self) -> int:
        """Return the time of the job's first lease, or else of its submission, in milliseconds."""
        return int(self.row.get("started") or self.row["created"])


def parse_ended(job_id: str, stored: Mapping[str, bytes | None]) -> EndedJob | None:
    """Parse an ended job. Return None if it is not in a sampled trace. Raise ValueError if its data is invalid."""
    row = {name: value.decode() for name, value in stored.items() if value is not None}
    trace = tracing.parse_headers([row.get("traceparent", "")], [row.get("tracestate", "")])
    if trace is None or not trace.sampled or "ended" not in row:
        return None
    for name in ("created", "ended", *(("started",) if "started" in row else ())):
        int(row[name])
    return EndedJob(job_id=job_id, row=row, trace=trace)


def spans(job: EndedJob, lanes: Iterable[Span] = (), finishing: int | None = None) -> Iterator[TraceSpan]:
    """Yield the spans of a job.

    `lanes` are the stored spans of its lanes. `finishing` is the time in milliseconds when its last unit was committed.
    """
    row = job.row
    created, over = int(row["created"]), int(row["ended"])
    own = tracing.job_span_id(job.job_id)
    trace = replace(job.trace, span_id=own, sampled=True)
    state = row.get("state", "")
    failed = row.get("error", "failed")[:_MAX_ERROR] if state == "failed" else ""
    yield TraceSpan(
        trace=trace,
        parent=_parent(job),
        name=f"job {row.get('kind', '')}",
        start=created,
        end=max(created, over),
        attributes=_attributes(job),
        error=failed,
    )
    started = int(row["started"]) if "started" in row else over
    yield _child(trace, "queue", created, started, {"cluster.queue": row.get("queue", "")})
    if job.is_small and "started" in row:
        yield _child(trace, "compute", started, over, {})
    for number, span in enumerate(_last_spans(lanes)):
        yield _lane(trace, span, number)
    if finishing is not None:
        yield _child(trace, "result", finishing, over, {})


def _parent(job: EndedJob) -> str:
    """Return the ID of the span in which the job was submitted."""
    given = job.row.get("parent_span") or job.trace.span_id
    return "" if given == tracing.job_span_id(job.job_id) else given


def _attributes(job: EndedJob) -> Attributes:
    row = job.row
    texts = {
        "cluster.job.id": job.job_id,
        "cluster.job.kind": row.get("kind", ""),
        "cluster.job.state": row.get("state", ""),
        "cluster.tenant": row.get("tenant", ""),
        **({"cluster.workflow.id": row["workflow"]} if "workflow" in row else {}),
    }
    return {**texts, "cluster.units": int(row.get("total", 0)), "cluster.units.done": int(row.get("done", 0))}


def _child(trace: TraceContext, name: str, start: int, end: int, attributes: Attributes, key: str = "") -> TraceSpan:
    span = hashlib.sha256(f"{trace.span_id}/{key or name}".encode()).hexdigest()[:16]
    own = replace(trace, span_id=span)
    return TraceSpan(
        trace=own, parent=trace.span_id, name=name, start=start, end=max(start, end), attributes=attributes
    )


def _last_spans(lanes: Iterable[Span]) -> Sequence[Span]:
    return sorted(lanes, key=lambda span: (span.start, span.lane))[-MAX_LANE_SPANS:]


def _lane(trace: TraceContext, span: Span, number: int) -> TraceSpan:
    worker, _, _ = span.lane.partition("/")
    attributes: dict[str, str | int | float] = {
        "cluster.worker": worker,
        "cluster.lane": span.lane,
        "cluster.leases": span.leases,
        "cluster.units": span.units,
        "cluster.busy_seconds": span.busy / 1000,
        **({"cluster.device": span.device} if span.device else {}),
    }
    return _child(trace, "compute", span.start, span.end, attributes, f"{span.lane}/{span.start}/{number}")
