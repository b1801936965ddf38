"""Lane of a runner: a slot with its folder, in which a lease's programs run one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from jobs import errors
from jobs.gathered import Gathered
from jobs.models import Spec
from jobs.store.slots import Facts
from jobs.worker import execution
from jobs.worker.execution import Computed, Derived, Whole
from jobs.worker.lanes import Task
from runner import serving
from runner.host import Host
from runner.run import Run
from runner.serving import ServiceRun
from runner.workplace import Workplace

#: Seconds between two looks whether a runner that took itself out of service is well again.
LOOK_SECONDS = 1.0


class GuardLane:
    """Runs programs under a guard; as `jobs.worker.lanes.Lane`."""

    #: It computes no small jobs.
    at = 0

    def __init__(self, host: Host, place: Workplace) -> None:
        self.name = place.slot.name
        self._host, self._place = host, place

    @property
    def ready(self) -> bool:
        return not self._host.cordon.why()

    def mend(self) -> None:
        """Free the disk if it is full, then wait a while for the host; the next program replaces a dead guard."""
        if self._host.cordon.is_disk_full():
            self._place.discard()
            self._host.free_disk()
        time.sleep(LOOK_SECONDS)

    def compute(self, task: Task) -> tuple[Computed, bytes]:
        run = ServiceRun if task.facts.kind == serving.KIND else Run
        return run(self._host, self._place, task).go()

    def compute_small(
        self, facts: Sequence[Facts], dropped: Callable[[], bool] = lambda: False
    ) -> list[Whole | errors.KernelFailed]:
        return [errors.KernelFailed(f"a runner runs no small jobs of kind {fact.kind}") for fact in facts]

    def derive(self, kind: str, spec: Spec, gathered: Gathered) -> Derived:
        return execution.derive(kind, spec, gathered)

    def close(self) -> None:
        """Kill what runs, and end the guard."""
        self._place.slot.close()
