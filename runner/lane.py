"""Lanes of a runner: slots, in which the programs of a lease run one after the other, and lanes of replicas."""

from __future__ import annotations

import contextlib
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from jobs import errors
from jobs.gathered import Gathered
from jobs.models import Spec
from jobs.store.work.slots import Facts
from jobs.worker import execution
from jobs.worker.execution import Computed, Derived, Whole
from jobs.worker.lanes import LaneDied, Task
from runner.files.workplace import Workplace
from runner.host import Host
from runner.programs.slot import GuardDied
from runner.replicas.serving import ServiceRun
from runner.run import Run

log = logging.getLogger(__name__)

#: Seconds between two looks whether a runner that took itself out of service is well again.
LOOK_SECONDS = 1.0


class RunnerLane(ABC):
    """Lane of a runner, as `jobs.worker.lanes.Lane`."""

    #: It computes no small jobs.
    at = 0

    def __init__(self, host: Host, name: str) -> None:
        self.name, self._host = name, host

    @property
    def ready(self) -> bool:
        return not self._host.cordon.why()

    def mend(self) -> None:
        """Wait a while for the host."""
        time.sleep(LOOK_SECONDS)

    @abstractmethod
    def compute(self, task: Task) -> tuple[Computed, bytes]:
        """Run a lease, as `jobs.worker.lanes.Lane.compute` does."""

    @abstractmethod
    def close(self) -> None:
        """Kill the running programs, and end the guard."""

    def compute_small(
        self, facts: Sequence[Facts], dropped: Callable[[], bool] = lambda: False
    ) -> list[Whole | errors.KernelFailed]:
        return [errors.KernelFailed(f"a runner runs no small jobs of kind {fact.kind}") for fact in facts]

    def derive(self, kind: str, spec: Spec, gathered: Gathered) -> Derived:
        return execution.derive(kind, spec, gathered)


class GuardLane(RunnerLane):
    """Runs programs in a slot, under its guard."""

    def __init__(self, host: Host, place: Workplace) -> None:
        super().__init__(host, place.slot.name)
        self._place = place

    def mend(self) -> None:
        """Free the disk if it is full, then wait a while for the host; the next program replaces a dead guard."""
        if self._host.cordon.is_disk_full():
            self._place.discard()
            self._host.free_disk()
        super().mend()

    def compute(self, task: Task) -> tuple[Computed, bytes]:
        return Run(self._host, self._place, task).go()

    def close(self) -> None:
        self._place.slot.close()


class ReplicaLane(RunnerLane):
    """Runs replicas of services. Its guard and its folder, with a copy of the model, last as long as a replica does."""

    def __init__(self, host: Host, name: str, make_place: Callable[[], Workplace]) -> None:
        super().__init__(host, name)
        self._make_place = make_place
        self._place: Workplace | None = None

    def compute(self, task: Task) -> tuple[Computed, bytes]:
        try:
            self._place = place = self._make_place()
        except OSError as error:
            raise LaneDied(f"the folder of a replica cannot be created: {error}", touched=False) from error
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
                log.error("the folder of a replica cannot be removed: %s", error, extra={"lane": self.name})
        self.close()

    def close(self) -> None:
        place, self._place = self._place, None
        if place is not None:
            place.slot.close()
