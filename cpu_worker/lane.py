"""Handle of a CPU worker for one child process: sends work, waits for answers, kills and replaces the child."""

from __future__ import annotations

import contextlib
import logging
import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from multiprocessing.connection import wait
from typing import Any

from cpu_worker import child
from cpu_worker.child import WarmUpResult
from jobs import errors
from jobs.kinds import registry
from jobs.models import Device, Spec
from jobs.partial_reader import GatheredPartials
from jobs.store.work.slots import JobFacts
from jobs.worker.execution import Computed, Derived, SmallJobResult
from jobs.worker.lanes import LONG_SECONDS, LaneDied, Task

log = logging.getLogger(__name__)

#: Seconds until a stopped task loses its lease, by stop mode: 1 commits the finished part, 2 drops the lease.
GRACE_SECONDS = {1: 5.0, 2: 0.5}
#: Time in seconds after a stop request until a child is killed; a chunk can take long on a loaded machine.
LATE_SECONDS = 5.0
#: Timeout in seconds for a batch of small jobs, each of which should take milliseconds.
SMALL_SECONDS = 30.0
#: Timeout in seconds for deriving a result. A result of tens of megabytes takes seconds, more on a loaded machine.
DERIVE_SECONDS = 300.0
#: Signals that kill a process when its code crashes.
CRASHES = (signal.SIGSEGV, signal.SIGILL, signal.SIGBUS, signal.SIGFPE, signal.SIGABRT)
#: Timeout in seconds for a child to exit after its pipe has closed.
END_SECONDS = 10.0
#: Interval in seconds at which the parent checks a task's stop flag.
POLL_SECONDS = 0.05

spawn_context = multiprocessing.get_context("spawn")


class ChildLane:
    """Lane of a CPU worker, which computes in a spawned child process.

    The lane accepts no work of the kinds in `refused`. It calls `retire` if a restarted child must refuse another kind:
    the other lanes may be affected too, and only a restart of the worker checks them.
    """

    def __init__(
        self, name: str, refused: Mapping[str, str] | None = None, retire: Callable[[str], None] = lambda why: None
    ) -> None:
        self.name = name
        self.restarts = -1
        self._refused, self._retire = refused if refused is not None else {}, retire
        self._closed = False
        self._replacing = threading.Lock()
        self._start()

    @property
    def pid(self) -> int | None:
        return self.child_process.pid

    @property
    def ready(self) -> bool:
        """Whether the child is alive, has compiled its kernels, and is idle."""
        return self._free and self.child_process.is_alive()

    @property
    def at(self) -> int:
        """Index of the small job that the child is computing, or was computing when it died."""
        return int(self._shared[child.UPTO])

    def _start(self, recompile: Collection[str] = ()) -> None:
        """Start a child process.

        If this raises OSError, the lane keeps the handle of the old process, which has exited.
        """
        #: Whether the child has compiled its kernels and is idle.
        self._free = False
        #: Monotonic time in seconds until which a child that did not stop in time can still answer.
        self._late_until = 0.0
        ours, theirs = spawn_context.Pipe()
        shared = spawn_context.RawArray("q", 2)
        arguments = (theirs, shared, os.getpid(), tuple(recompile))
        process = spawn_context.Process(target=child.main, args=arguments, name=f"lane-{self.name}", daemon=True)
        with theirs:
            process.start()
        self._pipe, self._shared, self.child_process = ours, shared, process
        self.restarts += 1

    def warm_up(self) -> WarmUpResult:
        """Wait until the child's kernels are compiled and checked. Raises LaneDied if the child exits first."""
        warmed: WarmUpResult = self._receive()
        self._free = True
        return warmed

    def first_warm_up(self) -> WarmUpResult:
        """Wait for the first warm-up. If loaded code crashes the child, report all kernels as wrong."""
        try:
            return self.warm_up()
        except LaneDied as died:
            self.child_process.join(END_SECONDS)
            if -(self.child_process.exitcode or 0) not in CRASHES:
                raise
            return WarmUpResult(wrong=dict.fromkeys(registry.kinds_for_device(Device.CPU), str(died)))

    def repair(self) -> None:
        """Make the lane ready again: wait for a late child, or replace it. Raises LaneDied."""
        if not self._has_come_late():
            self.replace()
            if wrong := self._unknown(self.first_warm_up()):
                log.warning(
                    "compiled code returned wrong answers; compiling it again",
                    extra={"lane": self.name, "wrong": wrong},
                )
                self.replace(wrong)
                self._refuse(self._unknown(self.warm_up()))

    def _unknown(self, warmed: WarmUpResult) -> dict[str, str]:
        """Return the newly found wrong kernels, mapped to the reason, without kinds that the worker already refuses."""
        return {kind: why for kind, why in warmed.wrong.items() if kind not in self._refused}

    def _refuse(self, wrong: Mapping[str, str]) -> None:
        for kind, why in wrong.items():
            self._free = False
            self._retire(f"the kernel of {kind} is still wrong after recompilation: {why}")
        if wrong:
            raise LaneDied(f"lane {self.name}: wrong kernels: {', '.join(sorted(wrong))}", touched=False)

    def compute(self, task: Task) -> tuple[Computed, bytes]:
        facts, grant = task.facts, task.grant
        self._check_fit((facts,))
        message = ("lease", facts.kind, facts.spec, grant.lo, grant.hi, LONG_SECONDS)
        answer = self._ask(message, task=task)
        if isinstance(answer, errors.KernelFailed):
            raise answer
        upto, partial, seconds = answer
        return Computed(upto=upto, partial={}, seconds=seconds), partial

    def compute_small(
        self, facts: Sequence[JobFacts], dropped: Callable[[], bool] = lambda: False
    ) -> list[SmallJobResult | errors.KernelFailed]:
        self._check_fit(facts)
        message = ("small", [(fact.kind, fact.spec, fact.total) for fact in facts])
        answer: list[SmallJobResult | errors.KernelFailed] = self._ask(message, patience=SMALL_SECONDS, dropped=dropped)
        return answer

    def derive(self, kind: str, spec: Spec, gathered: GatheredPartials) -> Derived:
        answer: Derived | errors.KernelFailed = self._ask(("derive", kind, spec, gathered), patience=DERIVE_SECONDS)
        if isinstance(answer, errors.KernelFailed):
            raise answer
        return answer

    def _check_fit(self, several: Sequence[JobFacts]) -> None:
        if unfit := self._refused.keys() & {facts.kind for facts in several}:
            raise LaneDied(f"lane {self.name}: the worker refuses {', '.join(sorted(unfit))}", touched=False)

    def _ask(
        self,
        message: tuple[Any, ...],
        *,
        task: Task | None = None,
        patience: float = math.inf,
        dropped: Callable[[], bool] = lambda: False,
    ) -> Any:
        if not self.ready:
            raise LaneDied(f"lane {self.name}: its process exited while idle", touched=False)
        self._shared[child.STOP], self._shared[child.UPTO] = 0, task.grant.lo if task else 0
        self._free = False
        try:
            self._pipe.send(message)
            answer = self._receive(task, patience, dropped)
        except OSError as error:  # the pipe is broken
            raise LaneDied(f"lane {self.name}: {error}") from error
        self._free = True
        return answer

    def _has_come_late(self) -> bool:
        """Wait for the answer of a cancelled task, so that the child can be reused.

        Return False if the answer does not arrive in time.
        """
        patience = self._late_until - time.monotonic()
        if patience <= 0 or not wait([self._pipe, self.child_process.sentinel], timeout=patience):
            return False
        with contextlib.suppress(LaneDied):
            self._read()
            self._free = True
        return self.ready

    def replace(self, recompile: Collection[str] = ()) -> None:
        """Kill the child and start a new one, which recompiles the kinds in `recompile`."""
        with self._replacing:
            if self._closed:
                raise LaneDied(f"lane {self.name}: the worker is stopping")
            self._end()
            self._start(recompile)

    def _receive(
        self, task: Task | None = None, patience: float = math.inf, dropped: Callable[[], bool] = lambda: False
    ) -> Any:
        """Wait for the child's next answer, and return it.

        Raises LaneDied if the child exits, stops too late or exceeds `patience` seconds. Also raises LaneDied if
        `dropped` returns True, because a child that is compiling does not check the stop flag.
        """
        deadline = time.monotonic() + patience
        while True:
            wait([self._pipe, self.child_process.sentinel], timeout=POLL_SECONDS)
            if self._pipe.poll():
                return self._read()
            if not self.child_process.is_alive():
                raise LaneDied(f"lane {self.name}: its process exited with {self.child_process.exitcode}")
            if time.monotonic() > deadline or (task and self._outlives_a_stop(task)):
                raise LaneDied(f"lane {self.name}: its process did not stop")
            if dropped():
                self._late_until = time.monotonic() + LATE_SECONDS
                raise LaneDied(f"lane {self.name}: the task was cancelled")

    def _outlives_a_stop(self, task: Task) -> bool:
        self._shared[child.STOP] = task.stop
        task.upto = max(task.upto, self._shared[child.UPTO])
        self._late_until = task.stop_since + LATE_SECONDS if task.stop else 0.0
        return task.stop > 0 and time.monotonic() - task.stop_since > GRACE_SECONDS[task.stop]

    def _read(self) -> Any:
        try:
            return self._pipe.recv()
        except (EOFError, OSError) as error:
            raise LaneDied(f"lane {self.name}: {error or 'its pipe closed'}") from error

    def _end(self) -> None:
        self.child_process.kill()
        self.child_process.join()
        self._pipe.close()

    def close(self) -> None:
        """Kill the child permanently and wait until it has exited."""
        with self._replacing:
            self._closed = True
            self._end()
