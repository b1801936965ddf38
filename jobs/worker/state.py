"""State that a worker's threads share: its leases and tasks, and calls of a store that comes and goes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from jobs.models import Device
from jobs.store.server.connection import RedisError, Unreachable, away, pause
from jobs.store.work.lease_store import LeaseStore
from jobs.worker.lanes import LanePool, Task
from jobs.worker.telemetry.meter import Meter

log = logging.getLogger(__name__)

#: Seconds between two tries to reach the store.
RETRY_SECONDS = 0.3

Answer = TypeVar("Answer")


@dataclass
class WorkerState:
    """One worker's state. Each field is written by one thread at a time, or whole."""

    store: LeaseStore
    #: The worker's name.
    worker: str
    device: Device
    #: Queues whose bells the worker hears.
    listened: tuple[str, ...]
    pool: LanePool
    meter: Meter
    #: Leases in lanes' hands, by token.
    tasks: dict[str, Task] = field(default_factory=dict)
    #: Units/s that a lane last reached, by kind.
    rates: dict[str, float] = field(default_factory=dict)

    @property
    def stopping(self) -> bool:
        return self.pool.stopping

    def persist(self, call: Callable[[], Answer]) -> Answer | None:
        """Repeat a call until the store answers: functions are idempotent. None: the worker is stopping."""
        while True:
            try:
                return call()
            except Unreachable as error:
                log.warning("%s", away(error))
                if self.stopping:
                    return None
                time.sleep(pause(error, RETRY_SECONDS))

    def tolerate(self, call: Callable[[], Answer], instead: Answer) -> Answer:
        """Call once; return `instead` where the store fails."""
        try:
            return call()
        except RedisError:
            return instead
