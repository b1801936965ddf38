"""Spans of traces, made of what is stored of a job once it has ended. Pure.

A job's span lasts from its submission to its end. Its children are the time in which it waited, the leases of each lane
that followed each other, and the derivation of its result. Moments are those of Redis' clock, but for requests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from coordinator import tracing
from coordinator.telemetry.spans import Span
from coordinator.tracing import TraceContext

#: Fields of a job's hash of which its spans are made.
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
#: Spans of lanes of one job; of more, the last ones are kept.
MAX_LANE_SPANS = 1000
#: Characters of a job's error that its span has.
_MAX_ERROR = 500

Attributes: TypeAlias = Mapping[str, str | int | float]


@dataclass(frozen=True, kw_only=True)
class TraceSpan:
    """Span of a trace. Times in ms since 1970."""

    trace: TraceContext
    #: Id of the span that it is part of; empty: it begins the trace.
    parent: str
    name: str
    start: float
    end: float
    attributes: Attributes = field(default_factory=dict)
    #: Why it failed; empty: it did not.
    error: str = ""
    #: It answers a request of somebody else.
    answers: bool = False


@dataclass(frozen=True, kw_only=True)
class EndedJob:
    """Job that ended at a place in a trace, of which spans are wanted."""

    job_id: str
    row: Mapping[str, str]
    trace: TraceContext

    @property
    def is_small(self) -> bool:
        """True for a job of whose lanes nothing is kept by itself."""
        return self.row.get("small") == "1"

    @property
    def began(self) -> int:
        """Time of its first lease, or of its submission, in ms."""
        return int(self.row.get("started") or self.row["created"])


def parse_ended(job_id: str, stored: Mapping[str, bytes | None]) -> EndedJob | None:
    """Return a job of whose trace spans are kept; None for any other. ValueError for what no function writes."""
    row = {name: value.decode() for name, value in stored.items() if value is not None}
    trace = tracing.parse_headers([row.get("traceparent", "")], [row.get("tracestate", "")])
    if trace is None or not trace.sampled or "ended" not in row:
        return None
    for name in ("created", "ended", *(("started",) if "started" in row else ())):
        int(row[name])
    return EndedJob(job_id=job_id, row=row, trace=trace)


def spans(job: EndedJob, lanes: Iterable[Span] = (), finishing: int | None = None) -> Iterator[TraceSpan]:
    """Yield the spans of a job. `lanes`: of its work; `finishing`: when its last unit was committed, in ms."""
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
    for number, span in enumerate(_last(lanes)):
        yield _lane(trace, span, number)
    if finishing is not None:
        yield _child(trace, "result", finishing, over, {})


def _parent(job: EndedJob) -> str:
    """Return the span in which the job was submitted."""
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


def _last(lanes: Iterable[Span]) -> Sequence[Span]:
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
