"""A worker's turn at work: hear a bell, ask NEXT, lease from one job for some seconds, leave, ask again.

The same for every device. What differs is the lane: `compute` blocks until its lease is computed, stopped or lost.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from jobs import queues
from jobs.kinds import registry
from jobs.models import Device
from jobs.store.work import slots
from jobs.store.work.lease_store import LeaseStore
from jobs.store.work.slots import Held, Taken
from jobs.worker import small_jobs
from jobs.worker.lanes import Lane, LanePool, Task
from jobs.worker.room import LanesOnly, Room
from jobs.worker.state import WorkerState
from jobs.worker.telemetry.meter import Meter
from jobs.worker.turns import Slot, Turns

#: Seconds that a turn which is over waits for its lanes.
LET_GO_SECONDS = 60.0
#: Seconds that a stopping worker waits for its lanes.
SHUTDOWN_SECONDS = 10.0
#: Seconds between two looks at an open slot, while a lane is idle and while all are busy.
LOOK_IDLE_SECONDS, LOOK_BUSY_SECONDS = 0.05, 0.5
#: Seconds between two looks whether a worker is still drained.
DRAINED_SECONDS = 0.1


class Server:
    """Serves bells with a set of lanes. Thread-safe where the beats and a signal handler touch it."""

    def __init__(
        self,
        store: LeaseStore,
        worker: str,
        device: Device,
        lanes: Sequence[Lane],
        meter: Meter | None = None,
        kinds: Mapping[str, int] | None = None,
        room: Room | None = None,
        shutdown_seconds: float = SHUTDOWN_SECONDS,
    ) -> None:
        self.store = store
        #: The version of each kind's model that the lanes compute.
        self.kinds = registry.versions() if kinds is None else kinds
        self.worker = worker
        self.device = device
        self.listened = queues.for_worker(device)
        self.draining = False
        self.slot: Slot | None = None
        self._room, self._shutdown_seconds = room or LanesOnly(), shutdown_seconds
        self.pool = LanePool(lanes, self._room.announce)
        self.state = WorkerState(store, worker, device, self.listened, self.pool, meter or Meter())
        self._turns = Turns(self.state, self._room)
        self._threads = ThreadPoolExecutor(max_workers=len(self.pool.lanes), thread_name_prefix="lane")

    # -- from outside -----------------------------------------------------------------------------------------------

    @property
    def stopping(self) -> bool:
        return self.pool.stopping

    @property
    def tasks(self) -> dict[str, Task]:
        """Return the leases in lanes' hands, by token."""
        return self.state.tasks

    @property
    def rates(self) -> dict[str, float]:
        """Return the units/s that a lane last reached, by kind."""
        return self.state.rates

    def busy(self) -> int:
        """Count the lanes at work."""
        return self.pool.busy()

    def stop(self) -> None:
        """End the turn: lanes commit what they have. Safe in a signal handler: takes no lock."""
        self.pool.stopping = True
        if self.slot:
            self.slot.close("stop")
        for task in list(self.tasks.values()):
            task.ask_to_stop(1)

    def settle_down(self) -> None:
        """Wait, after stop, for the lanes and give the job back. Whatever is left then expires by itself."""
        self.pool.wait_for_work_to_end(self._shutdown_seconds)
        self._leave()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def reconnect(self) -> None:
        """Drop connections to the store that nobody uses now: another one of this process is dead."""
        self.store.drop_idle_connections()

    # -- turns ------------------------------------------------------------------------------------------------------

    def serve(self, popped: str) -> None:
        """Work until nothing waits. `popped`: queue of the bell just taken, or empty."""
        while not self.stopping:
            if not self.pool.wait_for_idle():
                return
            kinds = self._room.startable(self.kinds, self.pool.idle)
            if not kinds:
                self.pool.wait_for_change(LOOK_BUSY_SECONDS)
                continue
            work = self._next(popped, kinds)
            popped = ""
            if isinstance(work, Taken):
                small_jobs.serve(self.state, work, self._threads)
            elif isinstance(work, Held):
                self._serve_slot(work.job_id)
            elif work == "draining":
                self._sit_out()
            else:
                return

    def _next(self, popped: str, kinds: Mapping[str, int]) -> Held | Taken | str:
        free = len(self.pool.idle)
        take = slots.TAKE * free
        # Of one job a worker computes with all its lanes soon; small jobs, which no runner takes, with the idle ones.
        lanes = self._room.width(self.pool.lanes) if self.device is Device.RUNNER else free
        return self.store.slots.next(
            self.worker,
            self.listened,
            popped=popped,
            lanes=lanes,
            take=take,
            kinds=kinds,
            offer=self._room.offer(),
        )

    def _sit_out(self) -> None:
        """Wait while drained: popping bells, a drained worker would ring and pop the same one for ever."""
        self.draining = True
        while self.draining and not self.stopping:
            time.sleep(DRAINED_SECONDS)

    def _serve_slot(self, job: str) -> None:
        facts = self.store.slots.facts([job], self.device)[0]
        if facts is None:
            return
        slot = self.slot = Slot(facts, queues.higher(facts.queue, self.listened))
        try:
            while slot.open and not self.stopping:
                self._start_idle_lanes(slot)
                changes_soon = self._wants_lane(slot) or slot.granted < slot.lanes
                self.pool.wait_for_change(LOOK_IDLE_SECONDS if changes_soon else LOOK_BUSY_SECONDS)
                if slot.over():
                    slot.close("quantum")
                elif slot.granted >= slot.facts.total:
                    slot.close("all of it is leased")
                elif slot.cramped and not slot.lanes:
                    slot.close("its job does not fit now")
                elif self.pool.all_mending() or not (slot.lanes or self._wants_lane(slot)):
                    slot.close("no lane is ready")
            self._let_go(slot)
        finally:
            self.slot = None

    def _wants_lane(self, slot: Slot) -> bool:
        """Return True while an idle lane could help with the slot's job."""
        return slot.lanes < slot.facts.total and any(self._room.suits(lane, slot.facts.kind) for lane in self.pool.idle)

    def _start_idle_lanes(self, slot: Slot) -> None:
        while slot.open and slot.lanes < slot.facts.total:
            lane = self.pool.borrow(lambda lane: self._room.suits(lane, slot.facts.kind))
            if lane is None:
                return
            if not self._room.take(lane, slot.facts):
                slot.cramped = True
                self.pool.give_back(lane)
                return
            slot.lanes += 1
            self._threads.submit(self._turns.take, lane, slot)

    def _let_go(self, slot: Slot) -> None:
        """Wait until a lane is free, and for a result being derived, or NEXT would derive it again.

        A job that no lane has begun, or none can go on with, goes to others at once.
        """
        if slot.lanes:
            self.pool.wait_until(
                lambda: not slot.finishing and (bool(self.pool.idle) or self.pool.all_mending()), LET_GO_SECONDS
            )
        if not slot.lanes or self.pool.all_mending():
            self._leave()

    def _leave(self) -> None:
        self.state.tolerate(lambda: self.store.slots.leave(self.worker), None)
