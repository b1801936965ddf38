"""ASGI middleware that adds a trace context to each request that submits jobs."""

from __future__ import annotations

import time
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coordinator import tracing
from coordinator.telemetry.job_spans import Attributes, TraceSpan
from coordinator.tracing import TraceContext, Tracing

#: Paths of the requests that create jobs. Only these requests have spans.
PATHS = frozenset({"/api/submit", "/api/submit-batch", "/api/workflows"})
_HEADER, _STATE = b"traceparent", b"tracestate"


class RequestSpans:
    """Stores the trace context in the request's state, and sets the traceparent header of the response."""

    def __init__(self, app: ASGIApp, tracing: Tracing, add: Callable[[TraceSpan], None]) -> None:
        self._app = app
        self._tracing = tracing
        self._add = add

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] not in PATHS:
            await self._app(scope, receive, send)
            return
        caller = tracing.parse_headers(*(_values(scope, name) for name in (_HEADER, _STATE)))
        trace = self._tracing.create_context(caller)
        if trace is None:
            await self._app(scope, receive, send)
            return
        scope.setdefault("state", {})["trace"] = trace
        await self._trace(scope, receive, send, trace, caller)

    async def _trace(
        self, scope: Scope, receive: Receive, send: Send, trace: TraceContext, caller: TraceContext | None
    ) -> None:
        began, status = time.time(), 500

        async def marked(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (_HEADER, trace.text().encode())]
            await send(message)

        try:
            await self._app(scope, receive, marked)
        finally:
            if self._tracing.exports and trace.sampled:
                self._add(_span(scope["path"], trace, caller, began * 1000, status))


def _values(scope: Scope, header: bytes) -> list[str]:
    return [value.decode("latin-1") for name, value in scope["headers"] if name == header]


def _span(path: str, trace: TraceContext, caller: TraceContext | None, began: float, status: int) -> TraceSpan:
    attributes: Attributes = {"http.request.method": "POST", "http.route": path, "http.response.status_code": status}
    return TraceSpan(
        trace=trace,
        parent=caller.span_id if caller else "",
        name=f"POST {path}",
        start=began,
        end=time.time() * 1000,
        attributes=attributes,
        error=f"status {status}" if status >= 500 else "",
        answers=True,
    )
