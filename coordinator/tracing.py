"""Trace contexts of requests and jobs, as defined by W3C Trace Context. No I/O.

A coordinator that exports no spans passes the caller's context on. Otherwise it creates a span for each job and for
each request that submits one. The span id of a job is derived from the job's id.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace

from jobs.settings import Settings
from jobs.store.work.jobs import NewJob

#: Version, trace id, span id and flags. Versions after 00 may append fields.
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII | re.DOTALL)
_SPAN = re.compile(r"[0-9a-f]{16}", re.ASCII)
#: Maximum number of members of a tracestate, and of characters, that W3C requires implementations to pass on.
_MAX_MEMBERS, _MAX_STATE = 32, 512
_MEMBER = re.compile(
    r"([a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})"
    r"=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)
#: Invalid ids.
_NO_TRACE, _NO_SPAN = "0" * 32, "0" * 16
#: Number of values of the random part of a trace id, which decides whether a trace is sampled.
_SAMPLING_RANGE = 1 << 56


@dataclass(frozen=True, kw_only=True)
class TraceContext:
    """Trace, and the span in it to which new spans are added."""

    #: 32 and 16 hexadecimal digits.
    trace_id: str
    span_id: str
    #: True if the trace's spans are recorded.
    sampled: bool
    #: Value of the header tracestate, or empty.
    state: str = ""

    def text(self) -> str:
        """Return the value of the header traceparent."""
        return f"00-{self.trace_id}-{self.span_id}-{int(self.sampled):02x}"


def parse_traceparent(text: str) -> TraceContext | None:
    """Return the context in a traceparent, or None if it is not valid."""
    match = _TRACEPARENT.fullmatch(text)
    if match is None:
        return None
    version, trace, span, flags, more = match.groups()
    if version == "ff" or (version == "00" and more) or trace == _NO_TRACE or span == _NO_SPAN:
        return None
    return TraceContext(trace_id=trace, span_id=span, sampled=bool(int(flags, 16) & 1))


def parse_headers(headers: Sequence[str], states: Sequence[str] = ()) -> TraceContext | None:
    """Return the context in the traceparent headers of a request, or None unless there is exactly one valid header.

    `states` are the request's tracestate headers.
    """
    trace = parse_traceparent(headers[0].strip(" \t")) if len(headers) == 1 else None
    return trace and replace(trace, state=normalize_tracestate(",".join(states)))


def normalize_tracestate(text: str) -> str:
    """Return a tracestate without white space and empty members, or an empty string if it is invalid or too long."""
    stripped = [member.strip(" \t") for member in text.split(",")] if len(text) <= 4 * _MAX_STATE else []
    members = [member for member in stripped if member]
    keys = {member.partition("=")[0] for member in members}
    state = ",".join(members)
    if len(members) > _MAX_MEMBERS or len(keys) < len(members) or len(state) > _MAX_STATE:
        return ""
    return state if all(map(_MEMBER.fullmatch, members)) else ""


def job_span_id(job_id: str) -> str:
    """Return the id of a job's span: the job's id if it is a valid span id, else a hash of it."""
    if _SPAN.fullmatch(job_id) and job_id != _NO_SPAN:
        return job_id
    return hashlib.sha256(job_id.encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class Tracing:
    """Settings of the export of spans."""

    exports: bool
    #: Share of new traces that are sampled, from 0 to 1.
    ratio: float = 1.0

    @classmethod
    def from_settings(cls, settings: Settings) -> Tracing:
        """Create an instance from the settings."""
        return cls(exports=bool(settings.otel_exporter_otlp_endpoint), ratio=settings.otel_traces_sampler_arg)

    def create_context(self, caller: TraceContext | None) -> TraceContext | None:
        """Return the context of a request: a new span if spans are exported, otherwise the caller's context.

        Return None if the request is in no trace.
        """
        if not self.exports:
            return caller
        if caller is None:
            new = TraceContext(trace_id=_new_id(_NO_TRACE), span_id=_new_id(_NO_SPAN), sampled=True)
            return new if int(new.trace_id[-14:], 16) < self.ratio * _SAMPLING_RANGE else None
        return replace(caller, span_id=_new_id(_NO_SPAN))

    def add_context(self, job: NewJob, trace: TraceContext) -> NewJob:
        """Return the job with this trace context."""
        own = replace(trace, span_id=job_span_id(job.job_id)) if self.exports else trace
        return replace(job, traceparent=own.text(), tracestate=own.state, parent_span=trace.span_id)


def _new_id(invalid: str) -> str:
    """Return a random id with the length of the invalid id, and different from it."""
    while (new := secrets.token_hex(len(invalid) // 2)) == invalid:
        continue
    return new
