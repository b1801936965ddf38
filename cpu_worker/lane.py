"""Handle of a CPU worker for one child process: sends work, waits for answers, kills and replaces the child."""

from __future__ import annotations

import contextlib
import logging
import math
import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any, Protocol

from cpu_worker import child
from cpu_worker.child import Load, Loaded, Started
from jobs import errors
from jobs.models import Spec
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
#: Timeout in seconds for a new child to answer. It imports numba first, which takes long on a loaded machine.
START_SECONDS = 120.0
#: Number of consecutive children with a failed start after which the worker exits.
MAX_FAILED_STARTS = 3
#: Interval in seconds at which the parent checks a task's stop flag.
POLL_SECONDS = 0.05

spawn_context = multiprocessing.get_context("spawn")
fork_context = multiprocessing.get_context("forkserver")
fork_context.set_forkserver_preload(["cpu_worker.template"])


class KernelStates(Protocol):
    """Interface through which lanes select kernels to load, and report the results. Thread-safe."""

    #: Whether new children can start with the kernels that the fork server has loaded.
    can_fork: bool

    def loadable(self, loaded: AbstractSet[str]) -> list[str]:
        """Return the kinds that a lane with these kernels must load before it gets more work."""

    def load_options(self, kind: str) -> Load: ...

    def report_loaded(self, kind: str, loaded: Loaded) -> None: ...

    def report_missing(self, kind: str) -> None:
        """Report that the cache has no compiled code of a kind."""

    def report_wrong(self, kind: str, how: Load, why: str) -> None:
        """Report that a loaded kernel returns wrong results, raises an error or crashes its process."""

    def report_failed_start(self, why: str) -> None:
        """Report that no child of a lane can start."""


class ChildLane:
    """Lane of a CPU worker, which computes in a child process.

    The child loads compiled kernels while the lane is idle. It never compiles one during a lease.
    """

    def __init__(self, name: str, kernels: KernelStates) -> None:
        self.name = name
        self.restarts = -1
        #: Kinds whose kernels the child has loaded.
        self.loaded: set[str] = set()
        self._kernels = kernels
        self._failed_starts = 0
        self._closed = False
        self._replacing = threading.Lock()
        self._start()

    @property
    def pid(self) -> int | None:
        return self.child_process.pid

    @property
    def ready(self) -> bool:
        """Whether the child is alive and idle, and has loaded every compiled kernel."""
        return self._is_free() and not self._kernels.loadable(self.loaded)

    def _is_free(self) -> bool:
        return self._free and self.child_process.is_alive()

    @property
    def at(self) -> int:
        """Index of the small job that the child is computing, or was computing when it died."""
        return int(self._shared[child.UPTO])

    def _start(self) -> None:
        """Start a child process.

        If this raises OSError, the lane keeps the handle of the old process, which has exited.
        """
        #: Whether the child has started and is idle.
        self._free = False
        #: Monotonic time in seconds until which a child that is starting, or that did not stop in time, can answer.
        self._late_until = 0.0
        self.loaded = set()
        ours, theirs = spawn_context.Pipe()
        shared = spawn_context.RawArray("q", 2)
        with theirs:
            self.child_process = self._start_process(theirs, shared)
        self._pipe, self._shared = ours, shared
        self._late_until = time.monotonic() + START_SECONDS
        self.restarts += 1

    def _start_process(self, *arguments: Any) -> BaseProcess:
        """Fork a child from the fork server, or spawn it if the server fails or has loaded wrong kernels."""
        name = f"lane-{self.name}"
        if self._kernels.can_fork:
            forked = fork_context.Process(target=child.main, args=arguments, name=name, daemon=True)
            try:
                forked.start()
                return forked
            except (OSError, EOFError) as error:
                log.warning("cannot fork a lane; starting it without loaded kernels: %s", error)
                self._kernels.can_fork = False
        spawned = spawn_context.Process(target=child.main, args=arguments, name=name, daemon=True)
        spawned.start()
        return spawned

    def repair(self) -> None:
        """Make the lane ready: wait for a starting or late child, or replace it, then load kernels. Raises LaneDied."""
        if not self._has_answered():
            self.replace()
            self._check_start()
        for kind in self._kernels.loadable(self.loaded):
            self._load(kind)

    def _check_start(self) -> None:
        if self._has_answered():
            self._failed_starts = 0
            return
        why = f"lane {self.name}: its process does not start; see the previous lines of this log"
        self._failed_starts += 1
        if self._failed_starts >= MAX_FAILED_STARTS:
            self._kernels.report_failed_start(why)
        raise LaneDied(why, touched=False)

    def _load(self, kind: str) -> None:
        loaded = self.load(kind, how := self._kernels.load_options(kind))
        if loaded is None:
            self._kernels.report_missing(kind)
        elif loaded.wrong:
            self._free = False  # Replace the child, because it cannot load the same kernel twice.
            self._kernels.report_wrong(kind, how, loaded.wrong)
            raise LaneDied(f"lane {self.name}: wrong kernel: {kind}", touched=False)
        else:
            self.loaded.add(kind)
            self._kernels.report_loaded(kind, loaded)

    def load(self, kind: str, how: Load) -> Loaded | None:
        """Let the child load or compile a kernel. Raises LaneDied if the child dies."""
        try:
            loaded: Loaded | None = self._ask(("load", kind, how))
            return loaded
        except LaneDied as died:
            self.child_process.join(END_SECONDS)
            if -(self.child_process.exitcode or 0) in CRASHES:
                self._kernels.report_wrong(kind, how, str(died))
            raise

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
        if unfit := {facts.kind for facts in several} - self.loaded:
            raise LaneDied(f"lane {self.name} has no kernel of {', '.join(sorted(unfit))}", touched=False)

    def _ask(
        self,
        message: tuple[Any, ...],
        *,
        task: Task | None = None,
        patience: float = math.inf,
        dropped: Callable[[], bool] = lambda: False,
    ) -> Any:
        if not self._is_free():
            raise LaneDied(f"lane {self.name}: its process exited while idle", touched=False)
        self._shared[child.STOP], self._shared[child.UPTO] = 0, task.grant.lo if task else 0
        self._free = False
        try:
            self._pipe.send(message)
            answer = self._receive(task, patience, dropped)
        except OSError as error:  # The pipe is broken.
            raise LaneDied(f"lane {self.name}: {error}") from error
        self._free = True
        return answer

    def _has_answered(self) -> bool:
        """Return True if the child can get work. Wait for a child that is starting, or finishing a cancelled task."""
        patience = self._late_until - time.monotonic()
        if not self._free and patience > 0 and wait([self._pipe, self.child_process.sentinel], timeout=patience):
            with contextlib.suppress(LaneDied):
                answer = self._read()
                self._free, self._late_until = True, 0.0
                if isinstance(answer, Started) and answer.removed:
                    log.info("removed compiled code that was unused for a month", extra={"folders": answer.removed})
        return self._is_free()

    def replace(self) -> None:
        """Kill the child and start a new one."""
        with self._replacing:
            if self._closed:
                raise LaneDied(f"lane {self.name}: the worker is stopping")
            self._end()
            self._start()

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
