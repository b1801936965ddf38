"""Create the application of one coordinator: its routes, middleware and error handlers."""

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
from coordinator.server import description, docs, http, paths, patterns, request_ids
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

#: Prefixes of routes that transfer files.
_FILE_ROUTES = ("/api/file", "/api/artifacts", "/api/worker/jobs/")
#: Suffixes of routes that transfer the input and output of shells.
_SHELL_ROUTES = ("/attachments/{attachment}/input", "/attachments/{attachment}/output")
#: Status code that nginx logs when a client closes its connection early. No standard defines one.
CLIENT_CLOSED_REQUEST = 499


def create(settings: Settings, *, metrics: socket.socket | None = None) -> FastAPI:
    """Create the application of one replica.

    The application connects to Redis when its lifespan starts. `metrics` is the listening socket for metrics. If it is
    None, a new socket is opened.
    """
    replica = composition.compose(settings, metrics)
    state = replica.state
    app = description.DescribedApi(
        title="Threads Cluster",
        version=VERSION,
        lifespan=replica.run,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        openapi_url=None,
        description="Submit divisible computations. All CPUs and GPUs of the cluster work on each of them.",
        # FastAPI's telemetry would add overhead to each request. This project has its own spans and metrics.
        telemetry={"auto_configure": False, "tracing": False, "metrics": False, "logs": False},
    )
    app.state.coordinator = state
    for router in (health.routes, docs.routes, *domains.routers()):
        # With include_router, each request would be matched three times against every earlier route.
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
        log.warning("PAGES_DIR has no index.html; build the pages: cd web && npm run build", folder=str(folder))
    app.router.routes.append(Pages(folder))


def _advice(error: Exception) -> str:
    if isinstance(error, (connection.Unacknowledged, connection.UnsupportedRedis)):
        return ""
    return "; try again in a moment, or see docs/operations.md"


def _answer_errors(app: FastAPI) -> None:
    @app.exception_handler(errors.ClusterError)
    async def handle_cluster_error(request: Request, error: errors.ClusterError) -> Response:
        return error_forms.build_error_response(error, request.url.path)

    @app.exception_handler(RequestValidationError)
    async def handle_validation_error(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"][1:])
        text = patterns.explain(first["msg"])
        detail = f"{field}: {text[0].lower()}{text[1:]}; got {short(first.get('input'))}"
        return await handle_cluster_error(request, errors.InvalidRequest(detail, field=field))

    @app.exception_handler(HTTPException)
    async def handle_http_error(request: Request, error: HTTPException) -> Response:
        return paths.respond_unmatched(app, request, error)

    @app.exception_handler(ClientDisconnect)
    async def handle_disconnect(_request: Request, _error: ClientDisconnect) -> Response:
        # The client has disconnected, so only the log and the metrics show this status.
        return Response(None, CLIENT_CLOSED_REQUEST)

    async def handle_unreachable(request: Request, error: Exception) -> Response:
        detail = f"{connection.reason(error)}{_advice(error)}"
        return await handle_cluster_error(request, errors.Unavailable(detail))

    for kind in connection.Unreachable:
        app.add_exception_handler(kind, handle_unreachable)

    @app.exception_handler(Exception)
    async def handle_unexpected(request: Request, error: Exception) -> Response:
        name = type(error).__name__
        if connection.wrong_type(error):
            detail = f"a key in redis has another type than the cluster gave it ({error}); see docs/operations.md"
        else:
            detail = f"unexpected server error: {name}. The coordinator's log contains the traceback of this request"
        response = await handle_cluster_error(request, errors.ClusterError(detail))
        response.headers.update(request_ids.headers(request.scope))  # this response bypasses the RequestIds middleware
        return response


class RequestMetrics:
    """ASGI middleware that counts, times and logs every request."""

    def __init__(self, app: ASGIApp, exporter: Exporter, denials: Denials) -> None:
        self._app = app
        self._exporter = exporter
        self._denials = denials

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        finally:
            # Count the request in the next iteration of the event loop, after the response has been sent.
            seconds = time.perf_counter() - started
            asyncio.get_running_loop().call_soon(lambda: self._count(scope, status, seconds))

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        matched_route = scope.get("route")
        route = "pages" if isinstance(matched_route, Mount) else getattr(matched_route, "path_format", "unknown")
        method = scope["method"] if scope["method"] in ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS") else "other"
        self._exporter.requests.labels(method, route, str(status)).inc()
        # Skip streams, long polls and file transfers, because their duration does not measure the server's speed.
        if (
            not route.endswith(("/events", "/worker/next", "/follow"))
            and not route.startswith(openai.PREFIX)
            and matched_route is not PAGE_ROUTE
            and not route.startswith(_FILE_ROUTES)
            and b"wait_seconds=" not in scope.get("query_string", b"")
        ):
            self._exporter.seconds.labels(method, route).observe(seconds)
        if status in REASONS:
            actor = scope.get("state", {}).get("actor", Actor("", ""))
            self._denials.count(status, scope["client"][0] if scope.get("client") else "", actor)
        parameters: dict[str, Any] = scope.get("path_params") or {}
        # Workers and shells send many requests per second, so successful ones are logged at debug level.
        is_frequent = scope["path"].startswith("/api/worker/") or route.endswith(_SHELL_ROUTES)
        if status < http.FIRST_ERROR and is_frequent:
            write: Callable[..., None] = log.debug
        else:
            write = partial(logs.info, "coordinator")
        write(
            "request",
            method=method,
            path=scope["path"],
            status=status,
            duration_seconds=round(seconds, 4),
            **request_ids.log_fields(scope),
            **parameters,
        )
