"""Lanes of a runner. Each slot has one lane for programs, and each replica of a service has its own lane."""

from __future__ import annotations

import contextlib
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from jobs import errors
from jobs.models import Spec
from jobs.partial_reader import GatheredPartials
from jobs.store.work.slots import JobFacts
from jobs.worker import execution
from jobs.worker.execution import Computed, Derived, SmallJobResult
from jobs.worker.lanes import LaneDied, Task
from runner.files.working_directory import Workplace
from runner.host import Host
from runner.persistent_run import PersistentRun
from runner.programs.slot import GuardDied
from runner.replicas.serving import ServiceRun
from runner.run import Run

log = logging.getLogger(__name__)

#: Interval in seconds at which a faulty host is checked for recovery.
POLL_SECONDS = 1.0


class RunnerLane(ABC):
    """Base class of a runner's lanes, which implement `jobs.worker.lanes.Lane`."""

    #: Index of the lane among lanes for small jobs. It is always 0, because runners compute no small jobs.
    at = 0

    def __init__(self, host: Host, name: str) -> None:
        self.name, self._host = name, host

    @property
    def ready(self) -> bool:
        return not self._host.cordon.why()

    def repair(self) -> None:
        """Wait before the next attempt, so that the host can recover."""
        time.sleep(POLL_SECONDS)

    @abstractmethod
    def compute(self, task: Task) -> tuple[Computed, bytes]:
        """Run the units of a lease; implements `jobs.worker.lanes.Lane.compute`."""

    @abstractmethod
    def close(self) -> None:
        """Kill the lane's programs and stop its guard process."""

    def compute_small(
        self, facts: Sequence[JobFacts], dropped: Callable[[], bool] = lambda: False
    ) -> list[SmallJobResult | errors.KernelFailed]:
        return [errors.KernelFailed(f"a runner cannot run small jobs of kind {fact.kind}") for fact in facts]

    def derive(self, kind: str, spec: Spec, gathered: GatheredPartials) -> Derived:
        return execution.derive(kind, spec, gathered)


class GuardLane(RunnerLane):
    """Lane for the programs of one slot, which the slot's guard process supervises."""

    def __init__(self, host: Host, place: Workplace) -> None:
        super().__init__(host, place.slot.name)
        self._place = place

    def repair(self) -> None:
        """Free disk space if the disk is full, and wait before the next attempt."""
        if self._host.cordon.is_disk_full():
            self._place.discard()
            self._host.free_disk()
        super().repair()

    def compute(self, task: Task) -> tuple[Computed, bytes]:
        ledger, kept = self._host.ledger, self._host.kept
        if not ledger.resources.isolated:
            kept.end_of_others(task.facts.tenant)
        kept.end_until(lambda used: used <= ledger.unreserved_memory_bytes(), excluded=self.name)
        if not task.facts.spec.get("persistent"):
            kept.take(self.name)
            return Run(self._host, self._place, task).go()
        return PersistentRun(self._host, self._place, task).go()

    def close(self) -> None:
        self._host.kept.take(self.name)
        self._place.slot.close()


class ReplicaLane(RunnerLane):
    """Lane for one replica of a service. Its guard process and its folder are deleted with the replica."""

    def __init__(self, host: Host, name: str, make_place: Callable[[], Workplace]) -> None:
        super().__init__(host, name)
        self._make_place = make_place
        self._place: Workplace | None = None

    def compute(self, task: Task) -> tuple[Computed, bytes]:
        try:
            self._place = place = self._make_place()
        except OSError as error:
            raise LaneDied(f"cannot create the folder of a replica: {error}", touched=False) from error
        try:
            return ServiceRun(self._host, place, task).go()
        finally:
            self._remove(place)

    def _remove(self, place: Workplace) -> None:
        with contextlib.suppress(GuardDied):
            try:
                place.forget()
                place.discard()
            except OSError as error:
                log.error("cannot delete the folder of a replica: %s", error, extra={"lane": self.name})
        self.close()

    def close(self) -> None:
        place, self._place = self._place, None
        if place is not None:
            place.slot.close()
