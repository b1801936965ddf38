"""Trace contexts of requests and jobs, as defined by W3C Trace Context. No I/O.

A coordinator that exports no spans forwards the caller's context. Otherwise, it creates spans for jobs and for the
requests that submit them. A job's span ID is derived from the job ID.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace

from jobs.settings import Settings
from jobs.store.work.jobs import NewJob

#: traceparent header: version, trace ID, span ID and flags. Versions after 00 can append fields.
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII | re.DOTALL)
_SPAN = re.compile(r"[0-9a-f]{16}", re.ASCII)
#: Maximum number of members and characters of a tracestate that W3C requires implementations to forward.
_MAX_MEMBERS, _MAX_STATE = 32, 512
_MEMBER = re.compile(
    r"([a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})"
    r"=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)
#: All-zero IDs, which W3C Trace Context defines as invalid.
_NO_TRACE, _NO_SPAN = "0" * 32, "0" * 16
#: Number of possible values of a trace ID's random part, which decides whether the trace is sampled.
_SAMPLING_RANGE = 1 << 56


@dataclass(frozen=True, kw_only=True)
class TraceContext:
    """Position in a trace: the trace and the parent span of new spans."""

    #: IDs of 32 and 16 hexadecimal digits.
    trace_id: str
    span_id: str
    #: True if the spans of this trace are recorded.
    sampled: bool
    #: Value of the tracestate header, or empty.
    state: str = ""

    def text(self) -> str:
        """Return the value of the traceparent header."""
        return f"00-{self.trace_id}-{self.span_id}-{int(self.sampled):02x}"


def parse_traceparent(text: str) -> TraceContext | None:
    """Parse a traceparent header. Return None if it is invalid."""
    match = _TRACEPARENT.fullmatch(text)
    if match is None:
        return None
    version, trace, span, flags, more = match.groups()
    if version == "ff" or (version == "00" and more) or trace == _NO_TRACE or span == _NO_SPAN:
        return None
    return TraceContext(trace_id=trace, span_id=span, sampled=bool(int(flags, 16) & 1))


def parse_headers(headers: Sequence[str], states: Sequence[str] = ()) -> TraceContext | None:
    """Parse the traceparent headers of a request. Return None unless there is exactly one valid header.

    `states` contains the request's tracestate headers.
    """
    trace = parse_traceparent(headers[0].strip(" \t")) if len(headers) == 1 else None
    return trace and replace(trace, state=normalize_tracestate(",".join(states)))


def normalize_tracestate(text: str) -> str:
    """Remove white space and empty members from a tracestate. Return an empty string if it is invalid or too long."""
    stripped = [member.strip(" \t") for member in text.split(",")] if len(text) <= 4 * _MAX_STATE else []
    members = [member for member in stripped if member]
    keys = {member.partition("=")[0] for member in members}
    state = ",".join(members)
    if len(members) > _MAX_MEMBERS or len(keys) < len(members) or len(state) > _MAX_STATE:
        return ""
    return state if all(map(_MEMBER.fullmatch, members)) else ""


def job_span_id(job_id: str) -> str:
    """Return the ID of a job's span: the job ID if it is a valid span ID, otherwise a hash of the job ID."""
    if _SPAN.fullmatch(job_id) and job_id != _NO_SPAN:
        return job_id
    return hashlib.sha256(job_id.encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class Tracing:
    """Settings for the export of spans."""

    exports: bool
    #: Share of new traces that are sampled, from 0 to 1.
    ratio: float = 1.0

    @classmethod
    def from_settings(cls, settings: Settings) -> Tracing:
        """Create an instance from the settings."""
        return cls(exports=bool(settings.otel_exporter_otlp_endpoint), ratio=settings.otel_traces_sampler_arg)

    def create_context(self, caller: TraceContext | None) -> TraceContext | None:
        """Return the trace context of a request, or None if the request belongs to no trace.

        If spans are exported, the context has a new span. Otherwise, it is the caller's context.
        """
        if not self.exports:
            return caller
        if caller is None:
            new = TraceContext(trace_id=_new_id(_NO_TRACE), span_id=_new_id(_NO_SPAN), sampled=True)
            return new if int(new.trace_id[-14:], 16) < self.ratio * _SAMPLING_RANGE else None
        return replace(caller, span_id=_new_id(_NO_SPAN))

    def add_context(self, job: NewJob, trace: TraceContext) -> NewJob:
        """Return a copy of the job with this trace context."""
        own = replace(trace, span_id=job_span_id(job.job_id)) if self.exports else trace
        return replace(job, traceparent=own.text(), tracestate=own.state, parent_span=trace.span_id)


def _new_id(invalid: str) -> str:
    """Return a random ID that has the length of `invalid` but differs from it."""
    while (new := secrets.token_hex(len(invalid) // 2)) == invalid:
        continue
    return new
