"""Wiring of one coordinator: settings, Redis, routes, errors, figures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
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

from coordinator import announcing, docs, domains, health, http, paths, patterns
from coordinator.admission import Admission
from coordinator.artifacts.collector import Collector
from coordinator.artifacts.trees import Trees
from coordinator.attachments.wakes import Wakes
from coordinator.audit.denials import REASONS, Denials
from coordinator.audit.keeper import AuditKeeper
from coordinator.bodies import FILE_ROOM, Bodies
from coordinator.client_address import ClientAddress
from coordinator.cluster import Cluster
from coordinator.destinations import Guard
from coordinator.direct import Direct
from coordinator.events.event import Event
from coordinator.events.hub import Hub
from coordinator.events.live_rows import LiveRows
from coordinator.jobs.on_behalf import OnBehalf
from coordinator.leader import Janitor
from coordinator.logs.live import Live
from coordinator.logs.texts import Texts
from coordinator.pages import Pages
from coordinator.profiles.collecting import Collecting, Collection
from coordinator.queries import Queries
from coordinator.schedules.runs import Runs
from coordinator.schedules.timekeeper import Timekeeper
from coordinator.secrets.keys import Keys
from coordinator.secrets.vault import Vault
from coordinator.services import openai
from coordinator.services.census import Census
from coordinator.services.gateway import Gateway
from coordinator.services.page_layer import ROUTE as PAGE_ROUTE
from coordinator.services.page_layer import PageLayer
from coordinator.services.page_names import PageNames
from coordinator.services.reconciler import Keeper, Reconciler
from coordinator.services.routing import Routes
from coordinator.services.tally import Tally
from coordinator.services.tunnels import Tunnels
from coordinator.stopping import Stopping
from coordinator.telemetry.exporter import Exporter
from coordinator.telemetry.job_spans import TraceSpan
from coordinator.telemetry.recorder import Recorder
from coordinator.telemetry.request_spans import RequestSpans
from coordinator.telemetry.span_sender import SpanSender
from coordinator.webhooks.sender import Sender
from coordinator.work import calls
from coordinator.work.inputs import Inputs
from coordinator.work.polls import Polls
from coordinator.workflows import text
from coordinator.workflows.documents import Documents
from coordinator.workflows.engine import Engine
from coordinator.workflows.overseer import Overseer
from coordinator.workflows.pool_host import PoolHost
from jobs import VERSION, errors, logs
from jobs.models import Actor
from jobs.numbers import short
from jobs.settings import Settings
from jobs.store import Store, connection

log = structlog.get_logger("coordinator")

#: Beginnings of routes with bytes of files.
_CARRY_FILES = ("/api/file", "/api/artifacts", "/api/worker/jobs/")
#: Ends of the routes by which people type into shells and read them.
_OFTEN = ("/attachments/{attachment}/input", "/attachments/{attachment}/output")
#: nginx' status for it; no standard has one.
CLIENT_CLOSED_REQUEST = 499


def create(settings: Settings) -> FastAPI:
    """Return one replica's application, which begins to work in its lifespan. Needs no Redis until then."""
    main = Store(
        connection.connect(settings.redis_url, retries=1, timeout=3), replicas=settings.redis_replicas_to_wait
    )  # fmt: skip
    hub = Hub(Store(connection.connect(settings.redis_url, retries=1, timeout=10)).events)
    own = Store(connection.connect(settings.redis_url, retries=1, timeout=3))
    queries = Queries(own, settings)
    janitor = Janitor(
        own, Recorder(queries).round, age_seconds=settings.age_seconds, reserve_seconds=settings.reserve_seconds
    )  # fmt: skip
    cluster = Cluster(main, hub, settings)
    live_rows = LiveRows(cluster.queries, hub)
    exporter = Exporter(cluster.queries, lambda: janitor.leading)
    exporter.registry.register(Census(Store(connection.connect(settings.redis_url, retries=0, timeout=1))))
    denials = Denials()
    polls = Polls(Store(connection.connect(settings.redis_url, retries=0, timeout=5)))
    texts = Texts(cluster.artifacts, main.artifacts)
    live = Live(Store(connection.connect(settings.redis_url, retries=0, timeout=5)), hub, texts)
    wakes = Wakes(Store(connection.connect(settings.redis_url, retries=0, timeout=5)))
    audit_keeper = AuditKeeper(own.audit_log, denials, lambda: janitor.leading, settings.audit_file)

    guard = Guard(settings.webhook_allow)
    sender = Sender(
        Store(connection.connect(settings.redis_url, retries=1, timeout=3)).webhooks, cluster.secrets.keys, guard
    )  # fmt: skip
    trees = Trees(own, settings)
    collector = Collector(own, trees, lambda: janitor.leading)
    on_behalf = on_behalf_of(own, settings, queries, trees)
    timekeeper = Timekeeper(
        Runs(own.schedules, own.workflows, settings, on_behalf, queries.jobs.states), lambda: janitor.leading
    )  # fmt: skip
    documents = Documents(main.workflows)
    engine = Engine(own, settings, documents, on_behalf, lambda maker, workflow: PoolHost(cluster, maker, workflow))
    overseer = Overseer(own.workflows, engine, lambda: janitor.leading)

    collecting = Collecting(Collection(own, trees), lambda: janitor.leading)
    keeper = Keeper(Reconciler(own, on_behalf), lambda: janitor.leading)
    tally = Tally(main.services, exporter)
    tunnels = Tunnels()
    gateway = Gateway(Routes(main, settings.host_name(), tunnels), tally.add)

    sender_of_spans = _span_sender(own, settings, lambda: janitor.leading)

    def hear(events: Sequence[Event]) -> None:
        overseer.hear(events)
        keeper.hear(events)
        janitor.hear(events)
        if sender_of_spans is not None:
            sender_of_spans.note(event.job for event in events if event.ends)

    hub.listener = hear

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        hub.start(asyncio.get_running_loop())
        janitor.start()
        audit_keeper.start()
        collector.start()
        sender.start()
        timekeeper.start()
        overseer.start()
        keeper.start()
        if sender_of_spans is not None:
            sender_of_spans.start()
        collecting.start()
        polls.start(asyncio.get_running_loop())
        live.start(asyncio.get_running_loop())
        wakes.start(asyncio.get_running_loop())
        beating = asyncio.create_task(live_rows.run())
        stop_metrics = exporter.serve(settings)
        stop_calls = await _serve_calls(app, settings)
        stop_announcing = await announcing.begin(settings)
        main.wire.open()
        yield
        await stop_announcing()
        await stop_calls()
        await main.wire.close()
        beating.cancel()
        timekeeper.stop()
        sender.stop()
        overseer.stop()
        keeper.stop()
        if sender_of_spans is not None:
            sender_of_spans.stop()
        collecting.stop()
        await gateway.close()
        await tally.close()
        collector.stop()
        wakes.stop()
        live.stop()
        polls.stop()
        audit_keeper.stop()
        janitor.stop()
        hub.stop()
        stop_metrics()

    app = FastAPI(
        title="Threads Cluster", version=VERSION, lifespan=lifespan, docs_url=None, redoc_url=None,
        redirect_slashes=False, openapi_url=None,
        description="Submit divisible computations; every CPU and GPU works on each.",
        # FastAPI's own spans, beside ours: it would ask for each request whether somebody wants them.
        telemetry={"auto_configure": False, "tracing": False, "metrics": False, "logs": False},
    )  # fmt: skip
    app.state.cluster = cluster
    app.state.bodies = Bodies()
    app.state.file_bodies = Bodies(FILE_ROOM)
    app.state.engine, app.state.documents = engine, documents
    app.state.workflow_texts = Bodies(text.ROOM, text.LARGE)
    app.state.work_bodies, app.state.polls = Bodies(calls.ROOM), polls
    app.state.guard = guard
    app.state.gateway, app.state.tunnels = gateway, tunnels
    app.state.page_names = page_names = PageNames(settings.services_domain)
    by_call = on_behalf_of(main, settings, cluster.queries, cluster.artifacts)
    app.state.runs = Runs(main.schedules, main.workflows, settings, by_call, cluster.queries.jobs.states)
    app.state.texts, app.state.live = texts, live
    app.state.wakes = wakes
    app.state.inputs = Inputs(cluster.artifacts, main.artifacts)
    for router in (health.routes, docs.routes, *domains.routers()):
        # Not include_router, by which each request would be matched against every route before its own three times.
        app.router.routes.extend(router.routes)
    if settings.pages_dir:
        _serve_pages(app, Path(settings.pages_dir))
    app.add_middleware(Direct, routes=app.router.routes, handlers=app.exception_handlers)
    app.add_middleware(
        RequestSpans, tracing=cluster.tracing, add=sender_of_spans.add if sender_of_spans else _keep_nothing
    )
    app.add_middleware(Admission, settings=settings)
    app.add_middleware(PageLayer, names=page_names, gateway=gateway, cluster=cluster)
    app.add_middleware(Stopping)
    app.add_middleware(Figures, exporter=exporter, denials=denials)
    app.add_middleware(ClientAddress, settings=settings)
    _answer_errors(app)
    return app


def on_behalf_of(store: Store, settings: Settings, queries: Queries, trees: Trees) -> OnBehalf:
    """Return what submits jobs for their makers, by one store."""
    vault = Vault(store.secrets, Keys(settings.secrets_keys()))
    return OnBehalf(store.jobs, settings, queries.fleet_cache, trees, vault)


async def _serve_calls(app: FastAPI, settings: Settings) -> Callable[[], Awaitable[None]]:
    """Answer over gRPC, where the settings say so, and return what ends that."""
    if settings.grpc_port:
        from coordinator.rpc import server  # needs packages that others do without

        return await server.serve(app, settings)

    async def nothing() -> None:
        return

    return nothing


def _span_sender(store: Store, settings: Settings, leads: Callable[[], bool]) -> SpanSender | None:
    if not settings.otel_exporter_otlp_endpoint:
        return None
    from coordinator.telemetry.otlp import Exporter as SpanExporter  # needs packages that others do without

    return SpanSender(store, SpanExporter(settings), leads)


def _keep_nothing(_span: TraceSpan) -> None:
    return


def _serve_pages(app: FastAPI, folder: Path) -> None:
    if not (folder / "index.html").is_file():
        log.warning("PAGES_DIR holds no index.html; build the pages there: cd web && npm run build", folder=str(folder))
    app.router.routes.append(Pages(folder))


def _advice(error: Exception) -> str:
    if isinstance(error, connection.Unacknowledged):
        return ""
    return "; try again in a moment; docs/operations.md says what to look at"


def _answer_errors(app: FastAPI) -> None:
    @app.exception_handler(errors.ClusterError)
    async def ours(request: Request, error: errors.ClusterError) -> Response:
        return openai.refused(error) if _is_inference(request) else http.refused(error)

    @app.exception_handler(RequestValidationError)
    async def invalid(_request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:])
        text = patterns.stated(first["msg"])
        detail = f"{where}: {text[0].lower()}{text[1:]}; got {short(first.get('input'))}"
        return http.refused(errors.InvalidRequest(detail, field=where))

    @app.exception_handler(HTTPException)
    async def unrouted(request: Request, error: HTTPException) -> Response:
        return paths.unanswered(app, request, error)

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
        return await ours(request, errors.ClusterError("this is a fault of the server; its log says more"))


def _is_inference(request: Request) -> bool:
    return request.url.path.startswith(f"{openai.PREFIX}/")


class Figures:
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
            **parameters,
        )
