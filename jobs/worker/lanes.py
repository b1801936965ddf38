"""Lanes, which compute a worker's leases, and the pool that lends idle lanes and repairs broken lanes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from jobs import errors
from jobs.models import Spec
from jobs.partial_reader import GatheredPartials
from jobs.store.work.leases import Grant
from jobs.store.work.slots import JobFacts
from jobs.worker import lease_size
from jobs.worker.execution import Computed, Derived, SmallJobResult

log = logging.getLogger(__name__)

#: Time in seconds after which a lane commits the computed part of a running lease.
LONG_SECONDS = 2 * lease_size.TARGET_SECONDS
#: Delay in seconds between two attempts to repair a lane.
REPAIR_RETRY_SECONDS = 0.5
#: Poll interval in seconds for the stop flag, because a signal handler cannot notify a condition.
POLL_SECONDS = 1.0


class LaneDied(Exception):
    """The process of a lane exited or was killed, and the current work of the lane is lost.

    `touched` is False if the process had exited before it received the work.
    """

    def __init__(self, why: str, *, touched: bool = True) -> None:
        super().__init__(why)
        self.touched = touched


class LeaseEnded(Exception):
    """The lane has already committed or returned its lease, so the caller must do neither."""

    def __init__(self, parts: int = 0) -> None:
        super().__init__("The lane has already ended its lease.")
        #: Number of the job's partial results that wait to be merged, as last reported by the store.
        self.parts = parts


class Task:
    """A lease that a lane is computing. Other threads set `stop` to interrupt the lane."""

    def __init__(self, facts: JobFacts, grant: Grant, asked: float | None = None) -> None:
        self.facts = facts
        #: Units that remain to be computed. A lane that commits and continues replaces this grant.
        self.grant = grant
        #: True after the lane has committed a part of the lease and continued with the rest.
        self.went_on = False
        #: Start time of the last call that extended the lease, in monotonic seconds.
        self.kept_at = time.monotonic() if asked is None else asked
        self.upto = grant.lo
        #: Stop level: 0 continues, 1 stops at the next chunk and commits, 2 stops and drops the lease.
        self.stop = 0
        self.stop_since = 0.0

    def ask_to_stop(self, how: int) -> None:
        if how > self.stop:
            self.stop = how
            self.stop_since = time.monotonic()


class Lane(Protocol):
    """Lane of a worker: a process or stream that computes one lease, or a few small jobs, at a time.

    It gets work only while it is `ready`.
    """

    name: str

    @property
    def ready(self) -> bool:
        """Return True if the lane can start work immediately. The check is cheap and thread-safe."""

    @property
    def at(self) -> int:
        """Return the index of the small job that the lane is computing, or that it computed last."""

    def repair(self) -> None:
        """Wait until the lane is ready again, which can take seconds. Raises LaneDied if the repair fails."""

    def compute(self, task: Task) -> tuple[Computed, bytes]:
        """Compute the units of `task.grant`, and return the result and its encoded partial result. Blocks.

        Raises KernelFailed, LeaseEnded, or LaneDied; after LaneDied the lane needs a repair.
        """

    def compute_small(
        self, facts: Sequence[JobFacts], dropped: Callable[[], bool] = lambda: False
    ) -> list[SmallJobResult | errors.KernelFailed]:
        """Compute small jobs, and return the result or the failure of each job. Raises LaneDied.

        While it computes, the lane may call `dropped`. If the call returns True, all of the jobs were cancelled.
        """

    def derive(self, kind: str, spec: Spec, gathered: GatheredPartials) -> Derived:
        """Merge partial results and derive a job's result, without delaying heartbeats.

        Raises KernelFailed or LaneDied.
        """


class LanePool:
    """Pool of a worker's lanes, each of which is idle, lent to a thread, or under repair. Thread-safe.

    `announce` is called when a lane becomes idle.
    """

    def __init__(self, lanes: Sequence[Lane], announce: Callable[[], None] = lambda: None) -> None:
        self.lanes = list(lanes)
        self._announce = announce
        self.idle: list[Lane] = list(lanes)
        #: Lanes that threads are repairing; these lanes receive no work.
        self.repairing: list[Lane] = []
        #: True while the worker is stopping; threads then do not wait for lanes, and lanes are not repaired.
        self.stopping = False
        self._changed = threading.Condition()

    def busy(self) -> int:
        """Return the number of lanes that are computing."""
        return len(self.lanes) - len(self.idle) - len(self.repairing)

    def all_repairing(self) -> bool:
        return len(self.repairing) == len(self.lanes)

    def borrow(
        self,
        suits: Callable[[Lane], bool] = lambda lane: True,
        prefers: Callable[[Lane], bool] = lambda lane: False,
    ) -> Lane | None:
        """Take an idle lane that is ready and for which `suits` returns True, or return None.

        Lanes for which `prefers` returns True come first.
        """
        with self._changed:
            fit = [lane for lane in reversed(self.idle) if suits(lane)] if self._any_ready() else []
            found = next(filter(prefers, fit), next(iter(fit), None))
            if found is not None:
                self.idle.remove(found)
            return found

    def give_back(self, lane: Lane) -> None:
        with self._changed:
            self.idle.append(lane)
            if not self.stopping:
                self._any_ready()
            self._changed.notify_all()
        self._announce()

    # -- waiting --------------------------------------------------------------------------------------------------

    def wait_for_idle(self) -> bool:
        """Wait for an idle lane that is ready. Return False if the worker stops."""
        with self._changed:
            while not self.stopping:
                if self._changed.wait_for(self._any_ready, POLL_SECONDS):
                    break
            return not self.stopping

    def wait_until(self, true: Callable[[], bool], seconds: float) -> None:
        """Wait until `true()` returns True, the worker is stopping, or `seconds` have passed.

        `true()` is called after each change of a lane.
        """
        deadline = time.monotonic() + seconds
        with self._changed:
            while not self.stopping and (left := deadline - time.monotonic()) > 0:
                if self._changed.wait_for(true, min(left, POLL_SECONDS)):
                    break

    def wait_for_change(self, seconds: float, unless: Callable[[], bool] = lambda: False) -> None:
        """Wait for the next change of a lane, for at most `seconds`. Return at once if `unless()` returns True."""
        with self._changed:
            if not unless():
                self._changed.wait(seconds)

    def notify(self) -> None:
        """Wake the threads that wait for a change."""
        with self._changed:
            self._changed.notify_all()

    def wait_for_work_to_end(self, seconds: float) -> None:
        """Wait until all lanes are idle or under repair. Waits even if the worker is stopping."""
        with self._changed:
            self._changed.wait_for(lambda: self.busy() == 0, seconds)

    # -- repairs ---------------------------------------------------------------------------------------------------

    def _any_ready(self) -> bool:
        """Start the repair of idle lanes that are not ready. Return True if a ready lane remains. Requires the lock."""
        for lane in [lane for lane in self.idle if not lane.ready]:
            repairing = threading.Thread(target=self.repair, args=(lane,), name=f"mend-{lane.name}", daemon=True)
            repairing.start()  # If no thread can be created, the lane stays idle and is repaired later.
            self.idle.remove(lane)
            self.repairing.append(lane)
        return bool(self.idle)

    def repair_idle(self) -> None:
        """Start the repair of idle lanes that are not ready."""
        with self._changed:
            if not self.stopping:
                self._any_ready()

    def repair(self, lane: Lane) -> None:
        """Repair a lane until it is ready or the worker stops, then return it to the idle lanes."""
        while not (self.stopping or lane.ready):
            try:
                lane.repair()
            except Exception as error:  # Catch every error, because an uncaught one would lose the lane.
                log.warning("cannot repair a lane: %r", error, extra={"lane": lane.name})
                time.sleep(REPAIR_RETRY_SECONDS)
        with self._changed:
            self.repairing.remove(lane)
            self.idle.append(lane)
            self._changed.notify_all()
        self._announce()
