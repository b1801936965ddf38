"""Traces as W3C Trace Context has them: where a request or a job stands in one, and the text that says so. Pure.

A coordinator that exports no spans hands on what a caller gave. One that does makes a span of each request that submits
something, and of each job: the job's is named by the job's id, so that whoever knows the job knows the span.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace

from jobs.settings import Settings
from jobs.store.work.jobs import NewJob

#: Version, trace, span and flags; more may follow in later versions than 00.
_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII | re.DOTALL)
_SPAN = re.compile(r"[0-9a-f]{16}", re.ASCII)
#: Members of a tracestate and characters of all together, which W3C has everybody hand on.
_MAX_MEMBERS, _MAX_STATE = 32, 512
_MEMBER = re.compile(
    r"([a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})"
    r"=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)
#: Identifiers of nothing.
_NO_TRACE, _NO_SPAN = "0" * 32, "0" * 16
#: Random part of a trace's id by which traces are chosen.
_CHOICES = 1 << 56


@dataclass(frozen=True, kw_only=True)
class TraceContext:
    """TraceContext in a trace: the span in which something happens."""

    #: 32 and 16 hexadecimal digits.
    trace_id: str
    span_id: str
    #: Its spans are to be kept.
    sampled: bool
    #: What vendors add, as the header tracestate has it; empty: nothing.
    state: str = ""

    def text(self) -> str:
        """Return it as the header traceparent has it."""
        return f"00-{self.trace_id}-{self.span_id}-{int(self.sampled):02x}"


def parse_traceparent(text: str) -> TraceContext | None:
    """Return the place that a traceparent names; None for what is none, as for version ff and ids of zeros."""
    found = _FORM.fullmatch(text)
    if found is None:
        return None
    version, trace, span, flags, more = found.groups()
    if version == "ff" or (version == "00" and more) or trace == _NO_TRACE or span == _NO_SPAN:
        return None
    return TraceContext(trace_id=trace, span_id=span, sampled=bool(int(flags, 16) & 1))


def parse_headers(headers: Sequence[str], states: Sequence[str] = ()) -> TraceContext | None:
    """Return the place that the headers traceparent of a request name; several are as bad as none.

    `states`: its headers tracestate, which are one list.
    """
    trace = parse_traceparent(headers[0].strip(" \t")) if len(headers) == 1 else None
    return trace and replace(trace, state=normalize_tracestate(",".join(states)))


def normalize_tracestate(text: str) -> str:
    """Return a tracestate as it is handed on; empty for what is none, and for one that is too long."""
    members = [member.strip(" \t") for member in text.split(",")] if len(text) <= 4 * _MAX_STATE else []
    named = [member for member in members if member]
    keys = {member.partition("=")[0] for member in named}
    whole = ",".join(named)
    if len(named) > _MAX_MEMBERS or len(keys) < len(named) or len(whole) > _MAX_STATE:
        return ""
    return whole if all(map(_MEMBER.fullmatch, named)) else ""


def job_span_id(name: str) -> str:
    """Return the id of a job's span: the job's own id where that is one, else made of it."""
    if _SPAN.fullmatch(name) and name != _NO_SPAN:
        return name
    return hashlib.sha256(name.encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class Tracing:
    """Whether spans are exported, and of how many of the traces that begin here."""

    exports: bool
    #: 0..1
    ratio: float = 1.0

    @classmethod
    def from_settings(cls, settings: Settings) -> Tracing:
        """Return what the settings say."""
        return cls(exports=bool(settings.otel_exporter_otlp_endpoint), ratio=settings.otel_traces_sampler_arg)

    def create_context(self, caller: TraceContext | None) -> TraceContext | None:
        """Return the place of a request: a span of its own where spans are exported, else its caller's.

        None: it is in no trace.
        """
        if not self.exports:
            return caller
        if caller is None:
            begun = TraceContext(trace_id=_new(_NO_TRACE), span_id=_new(_NO_SPAN), sampled=True)
            return begun if int(begun.trace_id[-14:], 16) < self.ratio * _CHOICES else None
        return replace(caller, span_id=_new(_NO_SPAN))

    def add_context(self, job: NewJob, trace: TraceContext) -> NewJob:
        """Return a job as one that is submitted at this trace."""
        own = replace(trace, span_id=job_span_id(job.job_id)) if self.exports else trace
        return replace(job, traceparent=own.text(), tracestate=own.state, parent_span=trace.span_id)


def _new(none: str) -> str:
    """Return a random id as long as that of nothing, and another."""
    while (name := secrets.token_hex(len(none) // 2)) == none:
        continue
    return name
