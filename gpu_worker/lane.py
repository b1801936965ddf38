"""Lane of a GPU worker: a thread that launches kernels on a separate CUDA stream."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from jobs import errors
from jobs.kinds import gpu
from jobs.models import Device, Spec
from jobs.partial_reader import GatheredPartials
from jobs.store.work.slots import JobFacts
from jobs.worker import execution
from jobs.worker.execution import Computed, Derived, SmallJobResult
from jobs.worker.lanes import LONG_SECONDS, LaneDied, Task
from jobs.worker.serving import Server

log = logging.getLogger(__name__)

#: Seconds after which a launch counts as hung and the process exits.
HANG_SECONDS = 15.0
#: Interval in seconds between checks whether a faulty GPU can be used again.
POLL_SECONDS = 1.0

Answer = TypeVar("Answer")


class StreamLane:
    """Lane of a GPU worker, which computes on a CUDA stream. Calls `retire` if the device fails.

    It calls `retire` at least once. `sick` asks the driver for the device's fault, and `known` returns the last answer;
    an empty string means no fault.
    """

    def __init__(
        self,
        name: str,
        most_units: int,
        retire: Callable[[str], None],
        sick: Callable[[], str] = lambda: "",
        known: Callable[[], str] = lambda: "",
    ) -> None:
        self.name = name
        self._sick, self._known = sick, known
        self._most = most_units
        self._retire = retire
        #: Index of the small job that is being computed.
        self.at = 0

    @property
    def ready(self) -> bool:
        """Return True if the device has no known fault.

        A device failure ends the worker instead.
        """
        return not self._known()

    def repair(self) -> None:
        """Wait before the next check, because only an operator can repair a faulty device."""
        time.sleep(POLL_SECONDS)

    def compute(self, task: Task) -> tuple[Computed, bytes]:
        facts, grant = task.facts, task.grant
        deadline = time.monotonic() + LONG_SECONDS

        def tick(upto: int) -> bool:
            task.upto = max(task.upto, upto)
            return not task.stop and (upto == grant.lo or time.monotonic() < deadline)

        done = self._run(
            lambda: execution.compute(facts.kind, Device.GPU, self._limit_launch(facts.spec), grant.lo, grant.hi, tick)
        )
        self._trust()
        encoded = execution.encoded(facts.kind, Device.GPU, done.partial)
        return Computed(upto=done.upto, partial={}, seconds=done.seconds), encoded

    def compute_small(
        self, facts: Sequence[JobFacts], dropped: Callable[[], bool] = lambda: False
    ) -> list[SmallJobResult | errors.KernelFailed]:
        answers = []
        for self.at, fact in enumerate(facts):
            answers.append(self._compute_whole(fact))
        self._trust()
        return answers

    def _trust(self) -> None:
        """Raise LaneDied if the device became faulty. Its results are discarded and computed elsewhere."""
        if why := self._sick():
            raise LaneDied(f"lane {self.name}: the result is discarded: {why}", touched=False)

    def derive(self, kind: str, spec: Spec, gathered: GatheredPartials) -> Derived:
        return execution.derive(kind, spec, gathered)

    def _compute_whole(self, fact: JobFacts) -> SmallJobResult | errors.KernelFailed:
        try:
            return self._run(
                lambda: execution.compute_small_job(fact.kind, Device.GPU, self._limit_launch(fact.spec), fact.total)
            )
        except errors.KernelFailed as failure:
            return failure

    def _limit_launch(self, spec: Spec) -> Spec:
        """Limit the job's launch size to the worker's maximum. Launch sizes never affect results."""
        if not self._most:
            return spec
        asked: Any = spec.get("batch_size")
        bounded: Mapping[str, Any] = {**spec, "batch_size": min(asked or self._most, self._most)}
        return bounded

    def _run(self, call: Callable[[], Answer]) -> Answer:
        """Call a function. If the device failed, retire the worker and raise LaneDied.

        The range is then requeued at once.
        """
        try:
            return call()
        except errors.KernelFailed as failure:
            if not isinstance(failure.__cause__, gpu.DeviceLost):
                raise
            self._retire(f"the GPU failed: {failure.__cause__}")
            raise LaneDied(f"lane {self.name}: {failure}") from failure


def watch(server: Server, end: Callable[[str], None], ended: threading.Event) -> None:
    """Exit the process if a launch runs long after a stop. Nothing else removes a hung kernel from a GPU."""
    while not ended.wait(1.0):
        for task in list(server.tasks.values()):
            if task.stop and time.monotonic() - task.stop_since > HANG_SECONDS:
                end(f"a launch of job {task.facts.job_id} did not finish within {HANG_SECONDS:.0f} s")
