"""Wiring of one coordinator: settings, Redis, routes, errors, figures."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coordinator import composition, domains, health
from coordinator.audit.denials import REASONS, Denials
from coordinator.server import docs, http, paths, patterns, request_ids
from coordinator.server.admission import Admission
from coordinator.server.client_address import ClientAddress
from coordinator.server.direct_dispatch import DirectDispatch
from coordinator.server.pages import Pages
from coordinator.server.request_ids import RequestIds
from coordinator.server.shutdown import ShutdownResponder
from coordinator.services.gateway import error_forms, openai
from coordinator.services.pages.page_layer import ROUTE as PAGE_ROUTE
from coordinator.services.pages.page_layer import PageLayer
from coordinator.telemetry.exporter import Exporter
from coordinator.telemetry.request_spans import RequestSpans
from jobs import VERSION, errors, logs
from jobs.models import Actor
from jobs.settings import Settings
from jobs.store.server import connection
from threads_protocol.numbers import short

log = structlog.get_logger("coordinator")

#: Beginnings of routes with bytes of files.
_CARRY_FILES = ("/api/file", "/api/artifacts", "/api/worker/jobs/")
#: Ends of the routes by which people type into shells and read them.
_OFTEN = ("/attachments/{attachment}/input", "/attachments/{attachment}/output")
#: nginx' status for it; no standard has one.
CLIENT_CLOSED_REQUEST = 499


def create(settings: Settings, *, metrics: socket.socket | None = None) -> FastAPI:
    """Return one replica's application, which starts work in its lifespan. It needs no Redis until then.

    `metrics` is the socket on which metrics are served. If it is missing, they get a new socket.
    """
    replica = composition.compose(settings, metrics)
    state = replica.state
    app = FastAPI(
        title="Threads Cluster",
        version=VERSION,
        lifespan=replica.run,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        openapi_url=None,
        description="Submit divisible computations; every CPU and GPU works on each.",
        # FastAPI's own spans, beside ours: it would ask for each request whether somebody wants them.
        telemetry={"auto_configure": False, "tracing": False, "metrics": False, "logs": False},
    )
    app.state.coordinator = state
    for router in (health.routes, docs.routes, *domains.routers()):
        # Not include_router, by which each request would be matched against every route before its own three times.
        app.router.routes.extend(router.routes)
    if settings.pages_dir:
        _serve_pages(app, Path(settings.pages_dir))
    app.add_middleware(DirectDispatch, routes=app.router.routes, handlers=app.exception_handlers)
    app.add_middleware(RequestSpans, tracing=state.cluster.tracing, add=replica.add_span)
    app.add_middleware(Admission, settings=settings)
    app.add_middleware(PageLayer, names=state.page_names, gateway=state.gateway, cluster=state.cluster)
    app.add_middleware(ShutdownResponder)
    app.add_middleware(RequestMetrics, exporter=replica.exporter, denials=replica.denials)
    app.add_middleware(RequestIds)
    app.add_middleware(ClientAddress, settings=settings)
    _answer_errors(app)
    return app


def _serve_pages(app: FastAPI, folder: Path) -> None:
    if not (folder / "index.html").is_file():
        log.warning("PAGES_DIR holds no index.html; build the pages there: cd web && npm run build", folder=str(folder))
    app.router.routes.append(Pages(folder))


def _advice(error: Exception) -> str:
    if isinstance(error, (connection.Unacknowledged, connection.TooOld)):
        return ""
    return "; try again in a moment; docs/operations.md says what to look at"


def _answer_errors(app: FastAPI) -> None:
    @app.exception_handler(errors.ClusterError)
    async def ours(request: Request, error: errors.ClusterError) -> Response:
        return error_forms.refused(error, request.url.path)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:])
        text = patterns.explain(first["msg"])
        detail = f"{where}: {text[0].lower()}{text[1:]}; got {short(first.get('input'))}"
        return await ours(request, errors.InvalidRequest(detail, field=where))

    @app.exception_handler(HTTPException)
    async def unrouted(request: Request, error: HTTPException) -> Response:
        return paths.respond_unmatched(app, request, error)

    @app.exception_handler(ClientDisconnect)
    async def gone(_request: Request, _error: ClientDisconnect) -> Response:
        # Nobody hears it; it is what the log says of a client that left before its request was read.
        return Response(None, CLIENT_CLOSED_REQUEST)

    async def unreachable(request: Request, error: Exception) -> Response:
        return await ours(request, errors.Unavailable(f"{connection.reason(error)}{_advice(error)}"))

    for kind in connection.Unreachable:
        app.add_exception_handler(kind, unreachable)

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> Response:
        name = type(error).__name__
        detail = f"this is a fault of the server: an unexpected {name}. Its log has the traceback of this request"
        answer = await ours(request, errors.ClusterError(detail))
        answer.headers.update(request_ids.headers(request.scope))  # no other layer sees this answer
        return answer


class RequestMetrics:
    """ASGI layer that counts, times and logs every request; streams pass untouched."""

    def __init__(self, app: ASGIApp, exporter: Exporter, denials: Denials) -> None:
        self._app = app
        self._exporter = exporter
        self._denials = denials

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            # Once the answer is on its way: what was written leaves the process when this turn of the loop ends.
            seconds = time.perf_counter() - started
            asyncio.get_running_loop().call_soon(lambda: self._count(scope, status, seconds))

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        matched = scope.get("route")
        route = "pages" if isinstance(matched, Mount) else getattr(matched, "path_format", "unknown")
        method = scope["method"] if scope["method"] in ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS") else "other"
        self._exporter.requests.labels(method, route, str(status)).inc()
        # A stream lasts, a wait was asked for, and bytes take as long as their sender's network: none is slowness.
        if (
            not route.endswith(("/events", "/worker/next", "/follow"))
            and not route.startswith(openai.PREFIX)
            and matched is not PAGE_ROUTE
            and not route.startswith(_CARRY_FILES)
            and b"wait_seconds=" not in scope.get("query_string", b"")
        ):
            self._exporter.seconds.labels(method, route).observe(seconds)
        if status in REASONS:
            actor = scope.get("state", {}).get("actor", Actor("", ""))
            self._denials.count(status, scope["client"][0] if scope.get("client") else "", actor)
        parameters: dict[str, Any] = scope.get("path_params") or {}
        # Those of workers and of who types come many times a second.
        often = scope["path"].startswith("/api/worker/") or route.endswith(_OFTEN)
        if status < http.FIRST_ERROR and often:
            note: Callable[..., None] = log.debug
        else:
            note = partial(logs.info, "coordinator")
        note(
            "request",
            method=method,
            path=scope["path"],
            status=status,
            duration_seconds=round(seconds, 4),
            **request_ids.log_fields(scope),
            **parameters,
        )
