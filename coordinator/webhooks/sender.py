"""Send due webhook deliveries from a thread with its own event loop in each coordinator.

A coordinator leases a delivery before sending it. If the coordinator dies, another one sends the delivery, so each
delivery is sent at least once.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from coordinator.decoding import format_ms
from coordinator.destinations import Guard
from coordinator.secrets.keys import Keys
from coordinator.webhooks import attempt, signing
from coordinator.webhooks.attempt import Outcome, Resolve
from jobs.store.server import connection
from jobs.store.webhooks import Delivery, Limits, Webhooks

log = logging.getLogger(__name__)

#: Delays in seconds between attempts, each extended randomly by up to a quarter: eight attempts in about three hours.
WAITS = (5, 30, 120, 600, 1800, 3600, 3600)
ATTEMPTS = len(WAITS) + 1
#: Maximum number of deliveries in progress per coordinator.
#: Maximum number of deliveries in progress per tenant.
#: Maximum number of deliveries in progress per tenant and host.
#: Maximum number of deliveries in progress per tenant and URL origin.
MAX_ACTIVE, PER_TENANT, PER_HOST, PER_PLACE = 64, 16, 8, 4
#: Duration of a delivery's lease in seconds. An attempt takes at most half of it.
LEASE_SECONDS = 30
#: Interval in seconds between checks for due deliveries.
#: Interval in seconds between attempts to reach Redis.
POLL_SECONDS, REDIS_SECONDS = 0.5, 2.0
#: Number of attempts to store a result. After that the lease expires and the delivery is sent again.
_STORE_ATTEMPTS = 5

_LIMITS = Limits(
    lease_ms=LEASE_SECONDS * 1000, attempts=ATTEMPTS, per_place=PER_PLACE, per_host=PER_HOST, per_tenant=PER_TENANT
)
_T = TypeVar("_T")


def body(delivery: Delivery) -> bytes:
    """Return the body of a delivery, which is the same at each attempt."""
    told: dict[str, Any] = {
        "id": delivery.delivery_id,
        "type": delivery.type,
        "time": format_ms(delivery.created),
    }
    told |= {"workflow": _workflow(delivery)} if delivery.workflow else {"job": _job(delivery)}
    return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def _job(delivery: Delivery) -> dict[str, str | None]:
    state = delivery.type.removeprefix("job.")
    return {
        "id": delivery.job,
        "kind": delivery.kind,
        "state": state,
        "tenant": delivery.tenant,
        "error": delivery.error or None,
        "result": f"/api/jobs/{delivery.job}/result" if state == "done" else None,
    }


def _workflow(delivery: Delivery) -> dict[str, str | None]:
    return {
        "id": delivery.workflow,
        "name": delivery.name,
        "state": delivery.type.removeprefix("workflow."),
        "tenant": delivery.tenant,
        "error": delivery.error or None,
        "result": f"/api/workflows/{delivery.workflow}",
    }


def wait_seconds(attempts: int, outcome: Outcome) -> float | None:
    """Return the seconds until the next attempt, or None if there is none."""
    if outcome.gone or attempts >= ATTEMPTS:
        return None
    planned = WAITS[attempts - 1] * random.uniform(1, 1.25)
    return max(planned, outcome.wait_seconds)


class Sender(threading.Thread):
    """Sends deliveries until it is stopped. Without SECRETS_KEY, it sends no deliveries."""

    def __init__(self, store: Webhooks, keys: Keys, guard: Guard, *, resolve: Resolve = attempt.look_up) -> None:
        super().__init__(name="webhooks", daemon=True)
        self._store, self._keys, self._guard, self._resolve = store, keys, guard, resolve
        self._calls = ThreadPoolExecutor(8, "webhook-store")
        self._stopping = threading.Event()
        self._busy: Counter[str] = Counter()
        self._sending: set[asyncio.Task[None]] = set()

    def run(self) -> None:
        """Send deliveries until stopped. Another coordinator repeats interrupted deliveries."""
        if self._keys.current is not None:
            asyncio.run(self._send_all())

    def stop(self) -> None:
        """Stop within POLL_SECONDS, without waiting for receivers."""
        self._stopping.set()

    async def _send_all(self) -> None:
        while not self._stopping.is_set():
            await self._pause(await self._round())
        for task in self._sending:
            task.cancel()

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def _round(self) -> float:
        """Start due deliveries up to the limits, and return the seconds until the next round."""
        room = MAX_ACTIVE - len(self._sending)
        if room <= 0:
            await asyncio.wait(self._sending, return_when=asyncio.FIRST_COMPLETED, timeout=POLL_SECONDS)
            return 0.0
        try:
            now, taken = await self._call(lambda: self._store.take(room, _LIMITS, dict(self._busy)))
        except connection.Unreachable as error:
            log.warning("webhooks wait: cannot reach Redis: %s", error)
            return REDIS_SECONDS
        except Exception:
            log.exception("webhooks wait: cannot lease deliveries")
            return REDIS_SECONDS
        for delivery in taken:
            self._start_delivery(delivery, now // 1000)
        return 0.05 if taken else POLL_SECONDS

    def _start_delivery(self, delivery: Delivery, seconds: int) -> None:
        names = (delivery.place, delivery.host, delivery.tenant)
        self._busy.update(names)
        task = asyncio.create_task(self._deliver(delivery, seconds))
        self._sending.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._sending.discard(task)
            self._busy.subtract(names)
            for name in names:
                if not self._busy[name]:
                    del self._busy[name]
            if not task.cancelled() and (error := task.exception()):
                log.error("webhook not sent", exc_info=error, extra={"delivery": delivery.delivery_id})

        task.add_done_callback(ended)

    async def _deliver(self, delivery: Delivery, seconds: int) -> None:
        content = body(delivery)
        headers = signing.headers(
            self._keys, delivery.tenant, delivery.delivery_id, seconds, content, delivery.generation
        )
        outcome = await attempt.post(delivery.url, headers, content, self._guard, resolve=self._resolve)
        await self._store_result(delivery, outcome)

    async def _store_result(self, delivery: Delivery, outcome: Outcome) -> None:
        wait = wait_seconds(delivery.attempts, outcome)
        for _ in range(_STORE_ATTEMPTS):
            try:
                if outcome.is_delivered:
                    await self._call(lambda: self._store.end(delivery, "delivered", 0, outcome.text()))
                elif wait is None:
                    await self._call(lambda: self._store.end(delivery, "dead", 0, outcome.text()))
                else:
                    await self._call(lambda: self._store.end(delivery, "again", int(wait * 1000), outcome.text()))
                return
            except connection.Unreachable as error:
                log.warning("cannot store the result of a webhook yet: %s", error)
                await asyncio.sleep(REDIS_SECONDS)

    async def _call(self, call: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._calls, call)
