"""Send spans with OpenTelemetry's SDK by OTLP over HTTP. Only coordinators that export spans need the SDK."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from coordinator.telemetry.job_spans import TraceSpan
from coordinator.tracing import TraceContext
from jobs import VERSION
from jobs.settings import Settings

#: Timeout in seconds for sending a batch, including retries.
_SECONDS = 5.0
_SCOPE = InstrumentationScope("threads-cluster", VERSION)
#: Logger of the SDK. It would report every failed batch, but the sender reports lost spans once.
_LOUD = "opentelemetry.exporter"


class Exporter:
    """Sends spans to one receiver. The SDK also reads OTEL_EXPORTER_OTLP_HEADERS and OTEL_SERVICE_NAME."""

    def __init__(self, settings: Settings) -> None:
        logging.getLogger(_LOUD).setLevel(logging.CRITICAL)
        self._resource = Resource.create({"service.version": VERSION, "host.name": settings.host_name()})
        if str(self._resource.attributes["service.name"]).startswith("unknown_service"):
            self._resource = self._resource.merge(Resource({"service.name": "threads-cluster"}))
        endpoint = f"{settings.otel_exporter_otlp_endpoint.rstrip('/')}/v1/traces"
        self._exporter = OTLPSpanExporter(endpoint=endpoint, timeout=_SECONDS)

    def send(self, spans: Sequence[TraceSpan]) -> bool:
        """Send spans, and return True if the receiver accepted them."""
        return self._exporter.export([self._span(each) for each in spans]) is SpanExportResult.SUCCESS

    def close(self) -> None:
        """Shut down without waiting for retries."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]

    def _span(self, span: TraceSpan) -> ReadableSpan:
        parent = _context(span.trace, span.parent, remote=span.answers) if span.parent else None
        return ReadableSpan(
            name=span.name,
            context=_context(span.trace, span.trace.span_id),
            parent=parent,
            resource=self._resource,
            attributes=dict(span.attributes),
            start_time=_nanoseconds(span.start),
            end_time=_nanoseconds(span.end),
            kind=SpanKind.SERVER if span.answers else SpanKind.INTERNAL,
            status=Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.UNSET),
            instrumentation_scope=_SCOPE,
        )


def _context(trace: TraceContext, span: str, *, remote: bool = False) -> SpanContext:
    state = TraceState.from_header([trace.state]) if trace.state else None
    return SpanContext(int(trace.trace_id, 16), int(span, 16), remote, TraceFlags(TraceFlags.SAMPLED), state)


def _nanoseconds(ms: float) -> int:
    return int(ms * 1000) * 1000
