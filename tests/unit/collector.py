"""An OTLP receiver over HTTP on loopback, which stores the received spans."""

from __future__ import annotations

import gzip
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True, kw_only=True)
class Taken:
    """A received span. Times are in seconds since 1970."""

    trace: str
    span: str
    #: ID of the parent span; empty for none.
    parent: str
    name: str
    state: str
    kind: int
    start: float
    end: float
    error: str
    attributes: dict[str, Any]
    #: Attributes of the sending process.
    resource: dict[str, Any] = field(repr=False)


class Collector:
    """A server in its own thread, which runs while the context is open."""

    def __init__(self) -> None:
        self.status = 200
        self.spans: list[Taken] = []
        self.calls: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Collector:
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def of(self, trace: str) -> list[Taken]:
        """Return the distinct spans of one trace, ordered by start time."""
        return sorted({one.span: one for one in self.spans if one.trace == trace}.values(), key=lambda one: one.start)

    def take(self, path: str, body: bytes) -> None:
        self.calls.append(path)
        if self.status == 200:
            self.spans += _spans(ExportTraceServiceRequest.FromString(body))

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                packed = self.headers.get("Content-Encoding") == "gzip"
                collector.take(self.path, gzip.decompress(body) if packed else body)
                self.send_response(collector.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                return

        return Handler


def _spans(request: ExportTraceServiceRequest) -> list[Taken]:
    return [
        Taken(
            trace=span.trace_id.hex(),
            span=span.span_id.hex(),
            parent=span.parent_span_id.hex(),
            name=span.name,
            state=span.trace_state,
            kind=span.kind,
            start=span.start_time_unix_nano / 1e9,
            end=span.end_time_unix_nano / 1e9,
            error=span.status.message if span.status.code == 2 else "",
            attributes=_values(span.attributes),
            resource=_values(of.resource.attributes),
        )
        for of in request.resource_spans
        for scope in of.scope_spans
        for span in scope.spans
    ]


def _values(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}
