"""Lanes as a worker sees them, and the pool that lends the idle ones out and has broken ones mended."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from jobs import errors
from jobs.gathered import Gathered
from jobs.models import Spec
from jobs.store.work.leases import Grant
from jobs.store.work.slots import Facts
from jobs.worker import pace
from jobs.worker.execution import Computed, Derived, Whole

log = logging.getLogger(__name__)

#: A lease that takes longer than this many seconds commits what it has, if it has anything.
LONG_SECONDS = 2 * pace.TARGET_SECONDS
#: Seconds before another try to mend a lane.
MEND_SECONDS = 0.5
#: How often a waiting thread looks whether the worker stops, in seconds: a signal handler can wake nobody.
LOOK_SECONDS = 1.0


class LaneDied(Exception):
    """The lane's process died or was given up, its work is lost. Not `touched`: it had died before the work came."""

    def __init__(self, why: str, *, touched: bool = True) -> None:
        super().__init__(why)
        self.touched = touched


class LeaseEnded(Exception):
    """The lane has ended its lease by itself; nothing of it is left to be committed or given back."""

    def __init__(self, parts: int = 0) -> None:
        super().__init__("the lane has ended its lease")
        #: Parts of the job that wait to be folded, as COMMIT last said.
        self.parts = parts


class Task:
    """One lease in a lane's hands. `stop` is set from other threads."""

    def __init__(self, facts: Facts, grant: Grant, asked: float | None = None) -> None:
        self.facts = facts
        #: What is left of it: a lane that commits and goes on puts another here.
        self.grant = grant
        #: The lane has committed some of it, and went on.
        self.went_on = False
        #: When the call began by which the store kept it last, in monotonic seconds.
        self.kept_at = time.monotonic() if asked is None else asked
        self.upto = grant.lo
        #: 0 go on; 1 stop at the next chunk and commit; 2 stop and drop.
        self.stop = 0
        self.stop_since = 0.0

    def ask_to_stop(self, how: int) -> None:
        if how > self.stop:
            self.stop = how
            self.stop_since = time.monotonic()


class Lane(Protocol):
    """Computes one lease, or a few small jobs, at a time. Gets work only while it is ready."""

    name: str

    @property
    def ready(self) -> bool:
        """Tell whether work would start at once. Cheap, and asked from any thread."""

    @property
    def at(self) -> int:
        """Place of the small job that it computes, or last computed, among those of its last call."""

    def mend(self) -> None:
        """Block until the lane is ready again, for seconds. Raises LaneDied when that did not work out."""

    def compute(self, task: Task) -> tuple[Computed, bytes]:
        """Block; the partial, of the units of `task.grant`, comes encoded.

        Raises KernelFailed; LeaseEnded; LaneDied: then the lane wants mending.
        """

    def compute_small(
        self, facts: Sequence[Facts], dropped: Callable[[], bool] = lambda: False
    ) -> list[Whole | errors.KernelFailed]:
        """Compute whole jobs; each is computed or failed. Raises LaneDied.

        A lane that can ask `dropped` meanwhile; once it answers True nobody wants any of them.
        """

    def derive(self, kind: str, spec: Spec, gathered: Gathered) -> Derived:
        """Do `execution.derive` where it keeps no heartbeat waiting. Raises KernelFailed or LaneDied."""


class LanePool:
    """The lanes of a worker: idle, lent, or being mended by a thread each. Thread-safe.

    `announce` is called when a lane has become idle.
    """

    def __init__(self, lanes: Sequence[Lane], announce: Callable[[], None] = lambda: None) -> None:
        self.lanes = list(lanes)
        self._announce = announce
        self.idle: list[Lane] = list(lanes)
        #: Lanes that a thread makes ready again; they get no work.
        self.mending: list[Lane] = []
        #: Set once the worker stops: nobody waits for a lane then, and none is mended.
        self.stopping = False
        self._changed = threading.Condition()

    def busy(self) -> int:
        """Count the lanes at work."""
        return len(self.lanes) - len(self.idle) - len(self.mending)

    def all_mending(self) -> bool:
        return len(self.mending) == len(self.lanes)

    def borrow(self, suits: Callable[[Lane], bool] = lambda lane: True) -> Lane | None:
        """Take an idle lane that is ready and suitable; None if there is none."""
        with self._changed:
            found = next((lane for lane in reversed(self.idle) if suits(lane)), None) if self._any_ready() else None
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
        """Wait for an idle lane that is ready; False when the worker stops."""
        with self._changed:
            while not self.stopping:
                if self._changed.wait_for(self._any_ready, LOOK_SECONDS):
                    break
            return not self.stopping

    def wait_until(self, true: Callable[[], bool], seconds: float) -> None:
        """Wait until `true` answers so after a change of a lane, the worker stops, or the seconds are over."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while not self.stopping and (left := deadline - time.monotonic()) > 0:
                if self._changed.wait_for(true, min(left, LOOK_SECONDS)):
                    break

    def wait_for_change(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait(seconds)

    def wait_for_work_to_end(self, seconds: float) -> None:
        """Wait until no lane is at work, also when the worker stops."""
        with self._changed:
            self._changed.wait_for(lambda: self.busy() == 0, seconds)

    # -- mending --------------------------------------------------------------------------------------------------

    def _any_ready(self) -> bool:
        """Have idle lanes that are not ready mended; True when others are left. Call it with the lock."""
        for lane in [lane for lane in self.idle if not lane.ready]:
            mending = threading.Thread(target=self.mend, args=(lane,), name=f"mend-{lane.name}", daemon=True)
            mending.start()  # first: where no thread can be had, the lane stays idle and is seen again
            self.idle.remove(lane)
            self.mending.append(lane)
        return bool(self.idle)

    def mend(self, lane: Lane) -> None:
        """Try until the lane is ready or the worker stops, then put it back among the idle ones."""
        while not (self.stopping or lane.ready):
            try:
                lane.mend()
            except Exception as error:  # whatever it is, else the lane would be lost
                log.warning("a lane could not be mended: %r", error, extra={"lane": lane.name})
                time.sleep(MEND_SECONDS)
        with self._changed:
            self.mending.remove(lane)
            self.idle.append(lane)
            self._changed.notify_all()
        self._announce()
