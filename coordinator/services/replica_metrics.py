"""Prometheus metrics of service replicas, read from Redis on each scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from coordinator.services import scaling, serializers
from jobs import metrics
from jobs.store import Store
from jobs.store.server import connection
from jobs.store.services import Service


class Census(Collector):
    """Counts replicas by service and state. Services after the first MAX_TENANTS are counted together."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        states = GaugeMetricFamily(*_shape(metrics.SERVICE_REPLICAS))
        desired = GaugeMetricFamily(*_shape(metrics.SERVICE_DESIRED))
        try:
            counted, wanted = self._count()
        except connection.Unreachable:
            return  # the exporter reports the outage
        for (tenant, name, state), count in counted.items():
            states.add_metric([tenant, name, state], count)
        for (tenant, name), count in wanted.items():
            desired.add_metric([tenant, name], count)
        yield states
        yield desired

    def _count(self) -> tuple[Counter[tuple[str, str, str]], Counter[tuple[str, str]]]:
        services = sorted(self._store.services.all(), key=lambda one: (one.deleted, one.tenant, one.name))
        replicas = self._store.services.replicas([one.service_id for one in services])
        now = round(self._store.clock.now() * 1000)
        counted, wanted = Counter[tuple[str, str, str]](), Counter[tuple[str, str]]()
        for number, service in enumerate(services):
            place = _label(number, service)
            wanted[place] += scaling.wanted(service, now)
            for state in serializers.STATES:
                counted[*place, state] += 0
            for one in replicas[service.service_id]:
                counted[*place, serializers.state_of(one)] += 1
        return counted, wanted


def _shape(metric: metrics.Metric) -> tuple[str, str, None, tuple[str, ...]]:
    return metric.name, metric.help, None, metric.labels


def _label(number: int, service: Service) -> tuple[str, str]:
    if number >= metrics.MAX_TENANTS:
        return metrics.OTHER_TENANTS, metrics.OTHER_TENANTS
    return service.tenant, service.name
