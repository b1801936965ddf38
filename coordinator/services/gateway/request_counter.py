"""Count requests to models, in Prometheus metrics and, once per second, in the tenants' usage in Redis."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Mapping

from starlette.concurrency import run_in_threadpool

from coordinator.services import usage_statistics
from coordinator.services.usage_statistics import Exchange
from coordinator.telemetry.exporter import Exporter
from jobs import metrics
from jobs.store.server import connection
from jobs.store.services import Asked, Services

log = logging.getLogger(__name__)

#: Interval in seconds between two writes while there are new counts.
WRITE_SECONDS = 1.0
#: Status codes of requests that a replica answered completely or partly.
_ANSWERED = (200, 499)
_OTHER = metrics.OTHER_TENANTS
#: Tenant, model and service ID.
Place = tuple[str, str, str]


class RequestCounter:
    """Counts finished requests. Use it from one event loop."""

    def __init__(self, services: Services, exporter: Exporter) -> None:
        self._services, self._exporter = services, exporter
        self._me = uuid.uuid4().hex[:12]
        self._number = 0
        self._counts: dict[Place, Asked] = {}
        #: The batch being written. Writes are repeated until Redis confirms, and Redis counts each batch once.
        self._batch: Mapping[Place, Asked] = {}
        self._named: set[tuple[str, str]] = set()
        self._writing: asyncio.Task[None] | None = None

    def add(self, exchange: Exchange) -> None:
        """Count a finished request."""
        self.export(exchange)
        counted = self._counts.setdefault((exchange.tenant, exchange.model, exchange.service), Asked())
        counted.figures.update(usage_statistics.counts(exchange))
        if exchange.status in _ANSWERED:
            counted.requests += 1
            counted.prompt += exchange.prompt_tokens
            counted.answer += exchange.answer_tokens
        if self._writing is None or self._writing.done():
            self._writing = asyncio.get_running_loop().create_task(self._write())

    def export(self, exchange: Exchange) -> None:
        """Update the metrics, which label only the first MAX_TENANTS pairs of tenant and model."""
        place = (exchange.tenant, exchange.model)
        if place not in self._named and len(self._named) >= metrics.MAX_TENANTS:
            place = (_OTHER, _OTHER)
        self._named.add(place)
        shown = self._exporter
        shown.inferences.labels(*place, str(exchange.status)).inc()
        shown.inference_seconds.labels(*place).observe(exchange.seconds)
        if exchange.first_seconds is not None:
            shown.first_token_seconds.labels(*place).observe(exchange.first_seconds)
        for what, count in (("prompt", exchange.prompt_tokens), ("answer", exchange.answer_tokens)):
            shown.tokens.labels(*place, what).inc(count)

    async def _write(self) -> None:
        while self._counts or self._batch:
            await asyncio.sleep(WRITE_SECONDS)
            await self._write_once()

    async def _write_once(self) -> None:
        if not self._batch:
            self._batch, self._counts = self._counts, {}
            self._number += 1
        try:
            await run_in_threadpool(self._services.count, self._me, self._number, self._batch)
        except connection.Unreachable as error:
            log.warning("usage of models is recorded later: %s", connection.reason(error))
        else:
            self._batch = {}

    async def close(self) -> None:
        """Write the remaining counts, if Redis is reachable."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.wait({self._writing})
        for _ in range(2):
            if self._batch or self._counts:
                await self._write_once()
