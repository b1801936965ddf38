"""A handle of the parent on one child process: it sends work, waits, kills and replaces the child."""

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
from jobs.gathered import Gathered
from jobs.kinds import registry
from jobs.models import Device, Spec
from jobs.store.work.slots import Facts
from jobs.worker.execution import Computed, Derived, Whole
from jobs.worker.lanes import LONG_SECONDS, LaneDied, Task

log = logging.getLogger(__name__)

#: Seconds between a stop flag and giving the lease up, by how the task was asked to stop: commit what is done, or drop.
GRACE_SECONDS = {1: 5.0, 2: 0.5}
#: Seconds between a stop flag and the kill: a chunk of 200 ms takes longer on a loaded machine, a new child longer yet.
LATE_SECONDS = 5.0
#: Small jobs take milliseconds; a child that needs this long for a handful hangs.
SMALL_SECONDS = 30.0
#: A result of tens of megabytes takes seconds; more of them on a loaded machine.
DERIVE_SECONDS = 300.0
#: Signals by which a process ends whose code does what it must not.
CRASHES = (signal.SIGSEGV, signal.SIGILL, signal.SIGBUS, signal.SIGFPE, signal.SIGABRT)
#: Seconds between the end of a child's pipe and its own.
END_SECONDS = 10.0
#: How often the parent looks at a task's stop flag.
LOOK_SECONDS = 0.05

spawn_context = multiprocessing.get_context("spawn")


class ChildLane:
    """A `jobs.worker.lanes.Lane` whose work happens in a spawned process.

    Its worker takes no work of the kinds `refused`. `retire` is told when a new child must refuse another one, and all
    its siblings may be as wrong: a worker that is started again finds out.
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
        """True while its child is alive, warm and without work."""
        return self._free and self.child_process.is_alive()

    @property
    def at(self) -> int:
        """Place of the small job that its child is at, or was when it died."""
        return int(self._shared[child.UPTO])

    def _start(self, recompile: Collection[str] = ()) -> None:
        """Raises OSError where no process can be had; the lane keeps the one that ended."""
        #: The child is warm and waits for work.
        self._free = False
        #: Until when a child that did not stop in time may still answer; monotonic seconds.
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
        """Waits until the child's kernels are compiled and checked. Raises LaneDied when it ends before."""
        warmed: WarmUpResult = self._receive()
        self._free = True
        return warmed

    def first_warm_up(self) -> WarmUpResult:
        """Waits likewise. Where loaded code crashes the child, none of its kernels may be used."""
        try:
            return self.warm_up()
        except LaneDied as died:
            self.child_process.join(END_SECONDS)
            if -(self.child_process.exitcode or 0) not in CRASHES:
                raise
            return WarmUpResult(wrong=dict.fromkeys(registry.computed_on(Device.CPU), str(died)))

    def mend(self) -> None:
        """Waits until the lane is ready again: for a child that is late, else for another. Raises LaneDied."""
        if not self._has_come_late():
            self.replace()
            if wrong := self._unknown(self.first_warm_up()):
                log.warning("compiled code is wrong and is compiled again", extra={"lane": self.name, "wrong": wrong})
                self.replace(wrong)
                self._refuse(self._unknown(self.warm_up()))

    def _unknown(self, warmed: WarmUpResult) -> dict[str, str]:
        """Return why kernels are wrong, by kind, of those that the worker computes."""
        return {kind: why for kind, why in warmed.wrong.items() if kind not in self._refused}

    def _refuse(self, wrong: Mapping[str, str]) -> None:
        for kind, why in wrong.items():
            self._free = False
            self._retire(f"the kernel of {kind} is wrong though it was compiled again: {why}")
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
        self, facts: Sequence[Facts], dropped: Callable[[], bool] = lambda: False
    ) -> list[Whole | errors.KernelFailed]:
        self._check_fit(facts)
        message = ("small", [(fact.kind, fact.spec, fact.total) for fact in facts])
        answer: list[Whole | errors.KernelFailed] = self._ask(message, patience=SMALL_SECONDS, dropped=dropped)
        return answer

    def derive(self, kind: str, spec: Spec, gathered: Gathered) -> Derived:
        answer: Derived | errors.KernelFailed = self._ask(("derive", kind, spec, gathered), patience=DERIVE_SECONDS)
        if isinstance(answer, errors.KernelFailed):
            raise answer
        return answer

    def _check_fit(self, several: Sequence[Facts]) -> None:
        if unfit := self._refused.keys() & {facts.kind for facts in several}:
            raise LaneDied(f"lane {self.name}: its worker refuses {', '.join(sorted(unfit))}", touched=False)

    def _ask(
        self,
        message: tuple[Any, ...],
        *,
        task: Task | None = None,
        patience: float = math.inf,
        dropped: Callable[[], bool] = lambda: False,
    ) -> Any:
        if not self.ready:
            raise LaneDied(f"lane {self.name}: its process ended while it was idle", touched=False)
        self._shared[child.STOP], self._shared[child.UPTO] = 0, task.grant.lo if task else 0
        self._free = False
        try:
            self._pipe.send(message)
            answer = self._receive(task, patience, dropped)
        except OSError as error:  # its pipe is broken
            raise LaneDied(f"lane {self.name}: {error}") from error
        self._free = True
        return answer

    def _has_come_late(self) -> bool:
        """Waits for the answer that nobody wants any more: its child is warm."""
        patience = self._late_until - time.monotonic()
        if patience <= 0 or not wait([self._pipe, self.child_process.sentinel], timeout=patience):
            return False
        with contextlib.suppress(LaneDied):
            self._read()
            self._free = True
        return self.ready

    def replace(self, recompile: Collection[str] = ()) -> None:
        """Ends the child and starts another, which compiles the kinds `recompile` whatever the cache holds of them."""
        with self._replacing:
            if self._closed:
                raise LaneDied(f"lane {self.name}: the worker ends")
            self._end()
            self._start(recompile)

    def _receive(
        self, task: Task | None = None, patience: float = math.inf, dropped: Callable[[], bool] = lambda: False
    ) -> Any:
        """Return the child's next answer. LaneDied when it dies, stops too late, takes over `patience` seconds, or
        `dropped` says that nobody wants it: the child may be compiling, and looks at no flag then.
        """
        deadline = time.monotonic() + patience
        while True:
            wait([self._pipe, self.child_process.sentinel], timeout=LOOK_SECONDS)
            if self._pipe.poll():
                return self._read()
            if not self.child_process.is_alive():
                raise LaneDied(f"lane {self.name}: its process ended with {self.child_process.exitcode}")
            if time.monotonic() > deadline or (task and self._outlives_a_stop(task)):
                raise LaneDied(f"lane {self.name}: its process did not stop")
            if dropped():
                self._late_until = time.monotonic() + LATE_SECONDS
                raise LaneDied(f"lane {self.name}: what it computes was cancelled")

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
        """Kills the child for good and waits for it."""
        with self._replacing:
            self._closed = True
            self._end()
