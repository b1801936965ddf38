"""Export Prometheus metrics of the cluster, read from Redis for each scrape, and of this replica."""

from __future__ import annotations

import logging
import socket
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate, product
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from coordinator.fleet import hosts
from coordinator.queries import Queries
from coordinator.telemetry import grid
from jobs import VERSION, metrics, metrics_server, queues
from jobs.hosts import measurements
from jobs.kinds import registry
from jobs.models import DEFAULT_TENANT, Device
from jobs.settings import Settings
from jobs.store import Store, keys, unreadable_entries
from jobs.store.server import connection
from threads_protocol.answers import fleet as answers
from threads_protocol.states import TERMINAL

log = logging.getLogger(__name__)

Family = GaugeMetricFamily | CounterMetricFamily


def _new_family(metric: metrics.Metric) -> Family:
    shape = CounterMetricFamily if metric.type == "counter" else GaugeMetricFamily
    return shape(metric.name, metric.help, labels=metric.labels)


def _fill_family(metric: metrics.Metric, values: Mapping[Any, float]) -> Family:
    family = _new_family(metric)
    for labels, value in values.items():
        family.add_metric(list(labels), value)
    return family


def _count(value: Any) -> int:
    """Return a count that a worker reported, or 0 if the value is not a count."""
    return value if isinstance(value, int) and value > 0 else 0


class ClusterCollector(Collector):
    """Reads Redis once per scrape. If Redis is unreachable, only metrics of this replica are exported."""

    def __init__(self, queries: Queries, leading: Callable[[], bool]) -> None:
        self._queries = queries
        self._store = queries.store.telemetry
        self._usage = queries.store.usage
        self._leading = leading

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        leader = _new_family(metrics.LEADER)
        leader.add_metric([], float(self._leading()))
        yield leader
        yield _fill_family(metrics.BUILD, {(VERSION,): 1})
        yield _fill_family(metrics.SKIPPED, {(sort,): count for sort, count in unreadable_entries.SKIPS.counts.items()})
        up = _new_family(metrics.REDIS_UP)
        try:
            families = list(self._cluster())
            up.add_metric([], 1)
            yield from families
        except connection.Unreachable:
            up.add_metric([], 0)
        yield up

    def _cluster(self) -> Iterator[Metric]:
        yield from self._counters()
        yield from self._tenants()
        yield _fill_family(metrics.BROKEN, {(): self._store.broken()})
        yield _fill_family(metrics.AUDIT_UNEXPORTED, {(): self._queries.audit.unexported_seconds()})
        yield from self._artifacts()
        yield from self._profiles()
        yield from self._webhooks()
        yield from self._workflows()
        yield from self._queues()
        yield from self._workers()
        yield self._histogram(metrics.DURATION, keys.DURATIONS, registry.names())
        yield self._histogram(metrics.WAIT, keys.WAITS, queues.ALL)
        states = _new_family(metrics.JOBS_KEPT)
        for state, count in self._queries.jobs.counts().items():
            states.add_metric([state], count)
        yield states
        if self._leading():
            yield from self._grid()

    def _grid(self) -> Iterator[Metric]:
        """Yield the metrics under the names of grid-cli. Only the leader exports them, so that they can be summed."""
        for row in grid.rows(self._queries):
            family = Metric(row["name"].removesuffix("_total"), row["help"], row["type"])
            for sample in row["samples"]:
                family.add_sample(sample["name"], sample["labels"], sample["value"])
            yield family

    def _counters(self) -> Iterator[Metric]:
        """Yield counters, including those that are zero: rate() would miss the first count of a new counter."""
        kinds = registry.names()
        zeros: tuple[tuple[metrics.Metric, str, Iterable[tuple[str, ...]]], ...] = (
            (metrics.SUBMITTED, keys.SUBMITTED, ((kind,) for kind in kinds)),
            (metrics.JOBS, keys.ENDED, product(kinds, sorted(TERMINAL))),
            (metrics.UNITS, keys.UNITS, ((kind, registry.devices(kind)[0]) for kind in kinds)),
            (metrics.LEASES, keys.OUTCOMES, product(metrics.LEASE_OUTCOMES)),
        )
        for metric, key, labels in zeros:
            counted = {tuple(field.split("|")): value for field, value in self._store.figures(key).items()}
            sound = {row: value for row, value in counted.items() if len(row) == len(metric.labels)}
            yield _fill_family(metric, dict.fromkeys(labels, 0.0) | sound)

    def _tenants(self) -> Iterator[Metric]:
        """Yield counters by tenant, for at most MAX_TENANTS tenants. All other tenants share one label."""
        jobs = {(DEFAULT_TENANT,): 0.0}
        lanes = {(DEFAULT_TENANT, Device.CPU.value): 0.0}
        for number, (name, used) in enumerate(sorted(self._usage.totals(self._usage.tenants()).items())):
            label = name if number < metrics.MAX_TENANTS else metrics.OTHER_TENANTS
            jobs[(label,)] = jobs.get((label,), 0.0) + sum(used.jobs.values())
            for device, ms in used.lane_ms.items():
                lanes[(label, device)] = lanes.get((label, device), 0.0) + ms / 1000
        yield _fill_family(metrics.TENANT_JOBS, jobs)
        yield _fill_family(metrics.TENANT_LANES, lanes)

    def _artifacts(self) -> Iterator[Metric]:
        sums = self._queries.store.files.sums().values()
        size = {
            ("stored",): sum(each.stored_bytes for each in sums),
            ("loose",): sum(each.loose_bytes for each in sums),
        }
        count = {
            ("stored",): sum(each.stored_files for each in sums),
            ("loose",): sum(each.loose_files for each in sums),
        }
        yield _fill_family(metrics.ARTIFACT_BYTES, size)
        yield _fill_family(metrics.ARTIFACT_FILES, count)

    def _profiles(self) -> Iterator[Metric]:
        """Yield metrics of the active profiles."""
        profiles = self._queries.store.profiles
        orders = profiles.orders()
        states = [order.state for order in orders]
        yield _fill_family(metrics.PROFILES, {(state,): states.count(state) for state in metrics.PROFILE_STATES})
        rows = [one.row for order in orders for one in profiles.recordings(order.profile_id)]
        for metric, field in (
            (metrics.PROFILE_SAMPLES, "samples"),
            (metrics.PROFILE_MISSED, "missed"),
            (metrics.PROFILE_BYTES, "bytes"),
        ):
            yield _fill_family(metric, {(): sum(_count(row.get(field)) for row in rows)})

    def _webhooks(self) -> Iterator[Metric]:
        counted = self._store.figures(keys.WEBHOOKS)
        for metric, outcomes in (
            (metrics.WEBHOOKS, metrics.WEBHOOK_OUTCOMES),
            (metrics.WEBHOOK_ATTEMPTS, metrics.ATTEMPT_OUTCOMES),
        ):
            yield _fill_family(metric, {(outcome,): counted.get(outcome, 0.0) for outcome in outcomes})
        tenants = {DEFAULT_TENANT, *self._queries.store.tenants.names()}
        count, age_ms = self._queries.store.webhooks.pending(sorted(tenants))
        yield _fill_family(metrics.WEBHOOKS_PENDING, {(): count})
        yield _fill_family(metrics.WEBHOOKS_OLDEST, {(): age_ms / 1000})
        yield _fill_family(metrics.WEBHOOKS_DEAD, {(): self._queries.store.webhooks.dead(sorted(tenants))})

    def _workflows(self) -> Iterator[Metric]:
        """Yield metrics of workflows and schedules. The number of reads does not depend on the number of workflows."""
        store, counted = self._queries.store, self._store.figures(keys.WORKFLOW_FIGURES)
        now = store.workflows.now_ms()

        def since(name: str) -> float:
            moment = counted.get(name, 0.0)
            return max(0.0, (now - moment) / 1000) if moment else 0.0

        yield _fill_family(metrics.WORKFLOWS, {(state,): counted.get(state, 0.0) for state in metrics.WORKFLOW_STATES})
        yield _fill_family(metrics.WORKFLOW_IDLE, {(): since("idle")})
        yield _fill_family(metrics.WORKFLOWS_AGE, {(): since("at")})
        yield _fill_family(metrics.SCHEDULES_LATE, {(): store.schedules.late_seconds()})

    def _queues(self) -> Iterator[Metric]:
        depth, oldest, load = (_new_family(m) for m in (metrics.QUEUE_JOBS, metrics.QUEUE_OLDEST, metrics.QUEUE_LOAD))
        waiting = self._store.figures(keys.LOAD)
        for row in self._queries.fleet.queues():
            depth.add_metric([row["queue"]], row["jobs"])
            oldest.add_metric([row["queue"]], row["oldest_wait_seconds"])
            load.add_metric([row["queue"]], waiting.get(row["queue"], 0) / 1000)
        yield from (depth, oldest, load)

    def _workers(self) -> Iterator[Metric]:
        live = [worker for worker in self._queries.fleet.workers() if worker["live"]]
        devices = (Device.CPU.value, Device.GPU.value)
        states = defaultdict(float, dict.fromkeys(product(devices, metrics.WORKER_STATES), 0.0))
        lanes = defaultdict(float, dict.fromkeys(product(devices, ("busy", "idle")), 0.0))
        rates: dict[tuple[str, str], list[float]] = defaultdict(list)
        for worker in live:
            device = worker["device"] or ""
            states[(device, worker["state"])] += 1
            lanes[(device, "busy")] += worker["busy_lanes"]
            lanes[(device, "idle")] += worker["lanes"] - worker["busy_lanes"]
            for kind, rate in worker["rates"].items():
                rates[(kind, device)].append(rate)
        means = {labels: sum(values) / len(values) for labels, values in rates.items()}
        for metric, values in ((metrics.WORKERS, states), (metrics.LANES, lanes), (metrics.WORKER_RATE, means)):
            yield _fill_family(metric, values)
        configured = _new_family(metrics.CONFIGURED)
        configured.add_metric(["any"], self._queries.settings.expected_workers())
        yield configured
        yield _fill_family(
            metrics.DESIRED, {(device,): count for device, count in self._queries.fleet.desired_workers().items()}
        )
        yield from self._hosts(live)

    def _hosts(self, live: list[answers.Worker]) -> Iterator[Metric]:
        labels = metrics.WORKER_INFO.labels[1:]
        infos = {(worker["id"], *(str(worker.get(label) or "") for label in labels)): 1.0 for worker in live}
        yield _fill_family(metrics.WORKER_INFO, infos)
        for figure in measurements.HOST:
            reports = hosts.latest_workers(live, figure.metric.labels)
            known = {place: float(row[figure.field]) for place, row in reports.items() if figure.field in row}
            yield _fill_family(figure.metric, known)
        yield from self._derive_host_metrics(live)
        yield _fill_family(
            metrics.GPU_CORDONED,
            {
                (worker["id"], gpu["uuid"]): float(bool(worker.get("cordoned")))
                for worker in live
                if worker["device"] == Device.GPU
                for gpu in worker.get("gpus", ())
            },
        )
        yield from self._gpus([(worker["id"], gpu) for worker in live for gpu in worker.get("gpus", ())])

    def _derive_host_metrics(self, live: list[answers.Worker]) -> Iterator[Metric]:
        """Yield metrics of hosts that are calculated from the reports of several workers."""
        by_host = hosts.by_host(live)
        for metric, made in ((metrics.HOST_SCORE, hosts.score), (metrics.HOST_CLOCK, hosts.clock_offset)):
            known = {(name,): value for name, of_it in by_host.items() if (value := made(of_it)) is not None}
            yield _fill_family(metric, known)
        disks = {(name, disk["disk"]): disk for name, of_it in by_host.items() for disk in hosts.disks(of_it)}
        yield _fill_family(metrics.HOST_DISK_FREE, {place: disk["free_bytes"] for place, disk in disks.items()})
        yield _fill_family(metrics.HOST_DISK_TOTAL, {place: disk["total_bytes"] for place, disk in disks.items()})

    def _gpus(self, gpus: list[tuple[str, Mapping[str, Any]]]) -> Iterator[Metric]:
        info, throttled = _new_family(metrics.GPU_INFO), _new_family(metrics.GPU_THROTTLED)
        known = set(metrics.THROTTLE_REASONS)
        for worker, gpu in gpus:
            info.add_metric([worker, gpu["uuid"], str(gpu.get("index", "")), gpu.get("name", "")], 1)
            if "throttle_reasons" in gpu:
                shown = {reason if reason in known else "other" for reason in gpu["throttle_reasons"]}
                for reason in metrics.THROTTLE_REASONS:
                    throttled.add_metric([worker, gpu["uuid"], reason], float(reason in shown))
        yield from (info, throttled)
        for figure in measurements.GPU:
            reporting = ((worker, gpu) for worker, gpu in gpus if gpu.get(figure.field) is not None)
            yield _fill_family(
                figure.metric, {(worker, gpu["uuid"]): float(gpu[figure.field]) for worker, gpu in reporting}
            )

    def _histogram(self, metric: metrics.Metric, key: str, labels: Iterable[str]) -> Metric:
        rows: dict[str, dict[str, float]] = {label: {} for label in labels}
        for field, value in self._store.figures(key).items():
            label, _, bound = field.rpartition("|")
            if label:
                rows.setdefault(label, {})[bound] = value
        family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        for label, row in rows.items():
            within = accumulate(row.get(str(bound), 0) for bound in (*metrics.SECONDS, "inf"))
            bounds = (*(str(float(bound)) for bound in metrics.SECONDS), "+Inf")
            family.add_metric([label], list(zip(bounds, within, strict=True)), row.get("sum", 0) / 1000)
        return family


class Exporter:
    """Metric registry of one replica, with the replica's HTTP metrics."""

    def __init__(self, queries: Queries, leading: Callable[[], bool]) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # one unused series per counter
        self.registry = CollectorRegistry()
        # Use a separate connection without retries, because a replica must answer a scrape even if Redis hangs.
        own = Store(connection.connect(queries.settings.redis_url, retries=0, timeout=1))
        self.registry.register(ClusterCollector(Queries(own, queries.settings, queries.worker_table), leading))
        ProcessCollector(registry=self.registry)
        http, seconds = metrics.HTTP_REQUESTS, metrics.HTTP_SECONDS
        self.requests = Counter(http.name, http.help, http.labels, registry=self.registry)
        self.seconds = Histogram(seconds.name, seconds.help, seconds.labels, registry=self.registry)
        self.inferences = self._counter(metrics.INFERENCES)
        self.tokens = self._counter(metrics.TOKENS)
        self.inference_seconds = self._times(metrics.INFERENCE_SECONDS)
        self.first_token_seconds = self._times(metrics.FIRST_TOKEN_SECONDS)

    def _counter(self, metric: metrics.Metric) -> Counter:
        return Counter(metric.name, metric.help, metric.labels, registry=self.registry)

    def _times(self, metric: metrics.Metric) -> Histogram:
        return Histogram(
            metric.name, metric.help, metric.labels, registry=self.registry, buckets=metrics.INFERENCE_BOUNDS
        )

    def serve(self, settings: Settings, listener: socket.socket | None = None) -> Callable[[], None]:
        """Serve metrics on `listener`, or on a new socket if it is None, and return the function that stops the server.

        If METRICS_PORT is 0, no metrics are served.
        """
        if not settings.metrics_port:
            return lambda: None
        stop = metrics_server.serve(self.registry, settings, listener)
        log.info("serving metrics on http://%s:%d/metrics", settings.bind, settings.metrics_port)
        return stop
