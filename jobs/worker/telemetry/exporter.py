"""This worker's own process figures for Prometheus. What it says of its work rides on the heartbeat instead."""

from __future__ import annotations

import logging
from collections.abc import Callable

import psutil
from prometheus_client import CollectorRegistry, Gauge, PlatformCollector, ProcessCollector

from jobs import metrics, metrics_server
from jobs.settings import Settings

log = logging.getLogger(__name__)


def memory() -> int:
    """Resident bytes of this process and its children; pages that they share count for each."""
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
    """Listen, and return what stops it. Port 0 listens nowhere; a taken port is reported, and the worker goes on."""
    if not settings.metrics_port:
        return lambda: None
    try:
        return metrics_server.serve(registry(), settings)
    except OSError as error:
        log.warning("no metrics on port %d: %s; set METRICS_PORT to a free one, or to 0", settings.metrics_port, error)
        return lambda: None
