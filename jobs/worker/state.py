"""State that a worker's threads share, and calls that tolerate an unreachable store."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from jobs.models import Device
from jobs.store.server.connection import RedisError, Unreachable, describe_for_log, pause
from jobs.store.work.lease_store import LeaseStore
from jobs.worker.lanes import LanePool, Task
from jobs.worker.telemetry.meter import Meter

log = logging.getLogger(__name__)

#: Delay in seconds between two attempts to reach the store.
RETRY_SECONDS = 0.3

Answer = TypeVar("Answer")


@dataclass
class WorkerState:
    """State of one worker. At most one thread at a time writes a field, or the write is atomic."""

    store: LeaseStore
    #: Name of the worker.
    worker: str
    device: Device
    #: Queues whose wake-ups the worker receives.
    listened: tuple[str, ...]
    pool: LanePool
    meter: Meter
    #: Leases that lanes are computing, keyed by token.
    tasks: dict[str, Task] = field(default_factory=dict)
    #: Last measured rate of a lane in units per second, keyed by kind.
    rates: dict[str, float] = field(default_factory=dict)

    @property
    def stopping(self) -> bool:
        return self.pool.stopping

    def persist(self, call: Callable[[], Answer]) -> Answer | None:
        """Repeat an idempotent call until the store answers. Return None if the worker is stopping."""
        while True:
            try:
                return call()
            except Unreachable as error:
                log.warning("%s", describe_for_log(error))
                if self.stopping:
                    return None
                time.sleep(pause(error, RETRY_SECONDS))

    def tolerate(self, call: Callable[[], Answer], instead: Answer) -> Answer:
        """Make one call, and return `instead` if the store fails."""
        try:
            return call()
        except RedisError:
            return instead
