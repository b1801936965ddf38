"""Prometheus metrics of a worker's process. Heartbeats contain the metrics of the worker's jobs."""

from __future__ import annotations

import logging
from collections.abc import Callable

import psutil
from prometheus_client import CollectorRegistry, Gauge, PlatformCollector, ProcessCollector

from jobs import metrics, metrics_server
from jobs.settings import Settings

log = logging.getLogger(__name__)


def memory() -> int:
    """Return the resident memory in bytes of this process and its children. Shared pages count once per process."""
    own = psutil.Process()
    total = 0
    for process in (own, *own.children(recursive=True)):
        try:
            total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total


def registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    metric = metrics.WORKER_MEMORY
    Gauge(metric.name, metric.help, registry=registry).set_function(memory)
    return registry


def serve(settings: Settings) -> Callable[[], None]:
    """Serve the metrics, and return a function that stops the server.

    Port 0 disables the server. If the port is in use, the worker logs it and continues without metrics.
    """
    if not settings.metrics_port:
        return lambda: None
    try:
        return metrics_server.serve(registry(), settings)
    except OSError as error:
        log.warning(
            "cannot serve metrics on port %d: %s; set METRICS_PORT to a free port, or to 0",
            settings.metrics_port,
            error,
        )
        return lambda: None
