"""Build one coordinator replica, and start and stop its components in order."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from fastapi import FastAPI

from coordinator.artifacts import cleanup_task
from coordinator.artifacts.cleanup_task import ArtifactCleanupTask
from coordinator.artifacts.trees import Trees
from coordinator.attachments.wakeups import Wakes
from coordinator.audit.denials import Denials
from coordinator.audit.export_task import AuditExportTask
from coordinator.background import dependency_task
from coordinator.background.dependency_task import DependencyTask
from coordinator.background.leader import Leader
from coordinator.background.periodic_task import PeriodicTask
from coordinator.cluster import Cluster
from coordinator.destinations import Guard
from coordinator.events.event import Event
from coordinator.events.hub import Hub
from coordinator.events.live_records import LiveRows
from coordinator.hosts import announcements
from coordinator.jobs.delegated_submission import OnBehalf
from coordinator.logs.live import Live
from coordinator.logs.texts import Texts
from coordinator.profiles.collection import Collection
from coordinator.queries import Queries
from coordinator.schedules.runs import Runs
from coordinator.secrets.keys import Keys
from coordinator.secrets.vault import Vault
from coordinator.server.bodies import FILE_MEMORY, BodyMemory
from coordinator.services import reconciler
from coordinator.services.gateway.gateway import Gateway
from coordinator.services.gateway.request_counter import RequestCounter
from coordinator.services.gateway.routing import Routes
from coordinator.services.gateway.tunnels import Tunnels
from coordinator.services.pages.page_names import PageNames
from coordinator.services.reconciler import Reconciler
from coordinator.services.replica_metrics import Census
from coordinator.state import State
from coordinator.telemetry.exporter import Exporter
from coordinator.telemetry.job_spans import TraceSpan
from coordinator.telemetry.recorder import Recorder
from coordinator.telemetry.span_sender import SpanSender
from coordinator.webhooks.sender import Sender
from coordinator.work import routes as work_routes
from coordinator.work.inputs import Inputs
from coordinator.work.polls import Polls
from coordinator.workflows import workflow_task
from coordinator.workflows.documents import document
from coordinator.workflows.documents.documents import Documents
from coordinator.workflows.engine import Engine
from coordinator.workflows.pool_host import PoolHost
from coordinator.workflows.workflow_task import WorkflowTask
from jobs.settings import Settings
from jobs.store import Store
from jobs.store.server import connection


@dataclass(frozen=True, kw_only=True)
class Replica:
    """Components of one coordinator process. `run` is the lifespan of its application."""

    settings: Settings
    state: State
    exporter: Exporter
    denials: Denials
    request_counter: RequestCounter
    live_rows: LiveRows
    tasks: Sequence[PeriodicTask]
    spans: SpanSender | None
    #: Listening socket for metrics, or None to open a new one.
    metrics: socket.socket | None = None

    def add_span(self, span: TraceSpan) -> None:
        """Queue the span of a request for export, if span export is enabled."""
        if self.spans is not None:
            self.spans.add(span)

    def notify(self, events: Sequence[Event]) -> None:
        """Pass events to the background tasks. A task runs at once if an event concerns it."""
        for task in self.tasks:
            task.notify(events)
        if self.spans is not None:
            self.spans.note(event.job for event in events if event.ends)

    @asynccontextmanager
    async def run(self, app: FastAPI) -> AsyncIterator[None]:
        """Start all components, and stop them in reverse order. If one fails to start, stop the others."""
        loop, cluster, hub = asyncio.get_running_loop(), self.state.cluster, self.state.cluster.hub
        async with AsyncExitStack() as started:
            started.callback(self.exporter.serve(self.settings, self.metrics))
            hub.listener = self.notify
            hub.start(loop)
            started.callback(hub.stop)
            started.push_async_callback(self.request_counter.close)
            started.push_async_callback(self.state.gateway.close)
            sender = Sender(_store(self.settings).webhooks, cluster.secrets.keys, self.state.guard)
            threads: list[PeriodicTask | Sender] = [*self.tasks, sender]
            for thread in threads:
                thread.start()
                started.callback(thread.stop)
            for reader in (self.state.polls, self.state.live, self.state.wakes):
                reader.start(loop)
                started.callback(reader.stop)
            started.callback(asyncio.create_task(self.live_rows.run()).cancel)
            wire = cluster.store.wire
            wire.open()
            started.push_async_callback(wire.close)
            started.push_async_callback(await serve_calls(app, self.settings))
            started.push_async_callback(await announcements.begin(self.settings))
            yield


def compose(settings: Settings, metrics: socket.socket | None = None) -> Replica:
    """Build a replica without connecting to Redis. `metrics` is the listening socket for metrics, or None."""
    main = Store(connection.connect(settings.redis_url, retries=1, timeout=3), replicas=settings.redis_replicas_to_wait)
    hub = Hub(_store(settings, timeout=10).events)
    cluster = Cluster(main, hub, settings)
    background = _Background(settings, cluster)
    exporter = Exporter(cluster.queries, background.is_leading)
    exporter.registry.register(Census(_store(settings, retries=0, timeout=1)))
    request_counter = RequestCounter(main.services, exporter)
    return Replica(
        settings=settings,
        state=_state(settings, cluster, background.engine, request_counter),
        exporter=exporter,
        denials=background.denials,
        request_counter=request_counter,
        live_rows=LiveRows(cluster.queries, hub),
        tasks=[
            *background.tasks(),
            PeriodicTask("index", cluster.queries.jobs.prepare_search, failure="the index of jobs was not read"),
        ],
        spans=background.spans,
        metrics=metrics,
    )


def _store(settings: Settings, *, retries: int = 1, timeout: float = 3) -> Store:
    """Return a store with its own connections, so that blocking reads and requests do not delay each other."""
    return Store(connection.connect(settings.redis_url, retries=retries, timeout=timeout))


def _state(settings: Settings, cluster: Cluster, engine: Engine, request_counter: RequestCounter) -> State:
    store, tunnels = cluster.store, Tunnels()
    texts = Texts(cluster.artifacts, store.artifacts)
    on_behalf = on_behalf_of(store, settings, cluster.queries, cluster.artifacts)
    return State(
        cluster=cluster,
        body_memory=BodyMemory(),
        file_body_memory=BodyMemory(FILE_MEMORY),
        workflow_body_memory=BodyMemory(document.MAX_MEMORY, document.LARGE),
        worker_body_memory=BodyMemory(work_routes.MAX_MEMORY),
        guard=Guard(settings.webhook_allow),
        engine=engine,
        runs=Runs(store.schedules, store.workflows, settings, on_behalf, cluster.queries.jobs.states),
        gateway=Gateway(Routes(store, settings.host_name(), tunnels), request_counter.add),
        tunnels=tunnels,
        page_names=PageNames(settings.services_domain),
        texts=texts,
        live=Live(_store(settings, retries=0, timeout=5), cluster.hub, texts),
        wakes=Wakes(_store(settings, retries=0, timeout=5)),
        polls=Polls(_store(settings, retries=0, timeout=5)),
        inputs=Inputs(cluster.artifacts, store.artifacts),
    )


class _Background:
    """Periodic tasks of a replica. Uses its own connections, so that the tasks do not delay requests."""

    def __init__(self, settings: Settings, cluster: Cluster) -> None:
        self._settings = settings
        self._store = _store(settings)
        self._queries = Queries(self._store, settings)
        self._trees = Trees(self._store, settings)
        self._on_behalf = on_behalf_of(self._store, settings, self._queries, self._trees)
        self.leader = Leader(
            self._store,
            Recorder(self._queries).run_once,
            age_seconds=settings.age_seconds,
            reserve_seconds=settings.reserve_seconds,
        )
        self.denials = Denials()
        self.engine = Engine(
            self._store,
            settings,
            Documents(cluster.store.workflows),
            self._on_behalf,
            lambda maker, workflow: PoolHost(cluster, maker, workflow),
        )
        self.spans = _span_sender(self._store, settings, self.is_leading)

    def is_leading(self) -> bool:
        return self.leader.is_leading

    def tasks(self) -> list[PeriodicTask]:
        """Return the periodic tasks in start order. They stop in reverse order, so the leader task stops last."""
        tasks = [PeriodicTask("leader", self.leader.run_once, failure="the leader's checks failed"), self._audit()]
        if self.spans is not None:
            tasks.append(
                PeriodicTask("traces", self.spans.run_once, failure="spans were not exported", at_end=self.spans.close)
            )
        return tasks + self._leader_tasks()

    def _audit(self) -> PeriodicTask:
        work = AuditExportTask(self._store.audit_log, self.denials, self.is_leading, self._settings.audit_file)
        return PeriodicTask("audit", work.run_once, failure="the audit log was not exported", at_end=work.write_denials)

    def _leader_tasks(self) -> list[PeriodicTask]:
        store, leading = self._store, partial(PeriodicTask, condition=self.is_leading)
        runs = Runs(store.schedules, store.workflows, self._settings, self._on_behalf, self._queries.jobs.states)
        tasks = [
            leading(
                "dependents",
                DependencyTask(store.fleet).run_once,
                failure="dependent jobs were not released",
                wakes_on=dependency_task.has_failed,
            ),
            leading("schedules", runs.run_once, failure="schedules were not run", otherwise=runs.rest),
            leading(
                "workflows",
                WorkflowTask(store.workflows, self.engine).run_once,
                failure="workflows were not checked",
                wakes_on=workflow_task.has_changed,
            ),
            leading(
                "services",
                Reconciler(store, self._on_behalf).run_once,
                failure="replicas of services were not checked",
                wakes_on=reconciler.has_ended,
            ),
            leading("profiles", Collection(store, self._trees).run_once, failure="profiles were not collected"),
        ]
        if self._trees.is_on:
            collect = ArtifactCleanupTask(store, self._trees).run_once
            tasks.append(
                leading(
                    "artifacts", collect, failure="artifacts were not collected", interval=cleanup_task.INTERVAL_SECONDS
                )
            )
        return tasks


def on_behalf_of(store: Store, settings: Settings, queries: Queries, trees: Trees) -> OnBehalf:
    """Create an object that submits jobs on behalf of users."""
    vault = Vault(store.secrets, Keys(settings.secrets_keys()))
    return OnBehalf(store.jobs, settings, queries.fleet_cache, trees, vault)


async def serve_calls(app: FastAPI, settings: Settings) -> Callable[[], Awaitable[None]]:
    """Start the gRPC server if the settings enable it, and return the function that stops it."""
    if settings.grpc_port:
        from coordinator.rpc import server  # requires the packages in requirements/grpc.txt

        return await server.serve(app, settings)

    async def nothing() -> None:
        return

    return nothing


def _span_sender(store: Store, settings: Settings, leads: Callable[[], bool]) -> SpanSender | None:
    if not settings.otel_exporter_otlp_endpoint:
        return None
    from coordinator.telemetry.otlp import Exporter as SpanExporter  # requires requirements/tracing.txt

    return SpanSender(store, SpanExporter(settings), leads)
