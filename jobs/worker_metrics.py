"""This worker's own process figures for Prometheus. What it says of its work rides on the heartbeat instead."""

from __future__ import annotations

import logging
from collections.abc import Callable

import psutil
from prometheus_client import CollectorRegistry, Gauge, PlatformCollector, ProcessCollector, start_http_server

from jobs import metrics

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


def serve(address: str, port: int) -> Callable[[], None]:
    """Listens; returns what stops it. Port 0 listens nowhere; a taken port is reported, and the worker goes on."""
    if not port:
        return lambda: None
    try:
        server, thread = start_http_server(port, address, registry())
    except OSError as error:
        log.warning("no metrics on port %d: %s; set METRICS_PORT to a free one, or to 0", port, error)
        return lambda: None

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop
