"""The parent's handle on one child process: sends it work, waits, kills and replaces it."""

from __future__ import annotations

import logging
import multiprocessing
import os
import time
from collections.abc import Sequence
from multiprocessing.connection import wait
from typing import Any

from cpu_worker import child
from jobs import errors, serving
from jobs.execution import Computed, Whole
from jobs.leases import Facts
from jobs.serving import LaneDied, Task

log = logging.getLogger(__name__)

#: Seconds between a stop flag and the kill, by how the task was asked to stop: commit what is done, or drop.
GRACE_SECONDS = {1: 5.0, 2: 0.5}
#: Small jobs take milliseconds; a child that needs this long for a handful hangs.
SMALL_SECONDS = 30.0
#: How often the parent looks at a task's stop flag.
LOOK_SECONDS = 0.05

_spawn = multiprocessing.get_context("spawn")


class ChildLane:
    """A `jobs.serving.Lane` whose work happens in a spawned process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.restarts = -1
        self._start()

    @property
    def pid(self) -> int | None:
        return self._process.pid

    def _start(self) -> None:
        self._pipe, theirs = _spawn.Pipe()
        self._shared = _spawn.RawArray("q", 2)
        arguments = (theirs, self._shared, os.getpid())
        self._process = _spawn.Process(target=child.main, args=arguments, name=f"lane-{self.name}", daemon=True)
        self._process.start()
        theirs.close()
        self._warm = False
        self.restarts += 1

    def warm_up(self) -> dict[str, float]:
        """Waits until the child's kernels are compiled; seconds by kind. Raises LaneDied when they cannot be."""
        seconds: dict[str, float] = self._receive(None)
        self._warm = True
        return seconds

    def compute(self, task: Task) -> tuple[Computed, bytes]:
        facts, grant = task.facts, task.grant
        answer = self._ask(task, "lease", facts.kind, facts.spec, grant.lo, grant.hi, serving.LONG_SECONDS)
        if isinstance(answer, errors.KernelFailed):
            raise answer
        upto, partial, seconds = answer
        return Computed(upto=upto, partial={}, seconds=seconds), partial

    def compute_small(self, facts: Sequence[Facts]) -> list[Whole | errors.KernelFailed]:
        answer: list[Whole | errors.KernelFailed] = self._ask(
            None, "small", [(fact.kind, fact.spec, fact.total) for fact in facts]
        )
        return answer

    def _ask(self, task: Task | None, *message: Any) -> Any:
        if not self._process.is_alive():  # it died while idle: no work is lost
            self._replace()
        try:
            if not self._warm:
                self.warm_up()
            self._shared[child.STOP], self._shared[child.UPTO] = 0, task.grant.lo if task else 0
            self._pipe.send(message)
            return self._receive(task)
        except (LaneDied, OSError) as error:  # OSError: its pipe is broken
            self._replace()
            raise error if isinstance(error, LaneDied) else LaneDied(f"lane {self.name}: {error}") from error

    def _replace(self) -> None:
        self.close()
        self._start()

    def _receive(self, task: Task | None) -> Any:
        """The child's next answer; LaneDied when it dies, hangs or does not stop in time."""
        patience = time.monotonic() + SMALL_SECONDS
        while True:
            wait([self._pipe, self._process.sentinel], timeout=LOOK_SECONDS)
            if self._pipe.poll():
                return self._read()
            if not self._process.is_alive():
                raise LaneDied(f"lane {self.name}: its process ended with {self._process.exitcode}")
            if task is None:
                hangs = self._warm and time.monotonic() > patience
            else:
                self._shared[child.STOP] = task.stop
                task.upto = max(task.upto, self._shared[child.UPTO])
                hangs = task.stop > 0 and time.monotonic() - task.stop_since > GRACE_SECONDS[task.stop]
            if hangs:
                raise LaneDied(f"lane {self.name}: its process did not stop")

    def _read(self) -> Any:
        try:
            return self._pipe.recv()
        except (EOFError, OSError) as error:
            raise LaneDied(f"lane {self.name}: {error or 'its pipe closed'}") from error

    def close(self) -> None:
        """Kills the child and waits for it."""
        self._process.kill()
        self._process.join()
        self._pipe.close()
