"""Main loop of a worker: request a job, lease from it for a few seconds, and repeat."""

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
from jobs.worker.free_capacity import LanesOnly, Room
from jobs.worker.lane_loop import Slot, Turns
from jobs.worker.lanes import Lane, LanePool, Task
from jobs.worker.state import WorkerState
from jobs.worker.telemetry.meter import Meter

#: Maximum time in seconds that a worker waits for its lanes after the end of its time slice (slot) for a job.
CLOSE_SLOT_SECONDS = 60.0
#: Maximum time in seconds that a stopping worker waits for its lanes.
SHUTDOWN_SECONDS = 10.0
#: Poll intervals in seconds during a time slice (slot): with an idle lane, and with only busy lanes.
POLL_IDLE_SECONDS, POLL_BUSY_SECONDS = 0.05, 0.5
#: Poll interval in seconds of a drained worker that waits to be resumed.
DRAINED_SECONDS = 0.1


class Server:
    """Main loop of a worker: after a wake-up signal, takes jobs and computes them with the worker's lanes.

    Methods that heartbeats and signal handlers call are thread-safe.
    """

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
        #: Model version of each kind that the lanes compute.
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

    # -- calls from other threads ----------------------------------------------------------------------------------

    @property
    def stopping(self) -> bool:
        return self.pool.stopping

    @property
    def tasks(self) -> dict[str, Task]:
        """Return the leases that the lanes are computing, keyed by token."""
        return self.state.tasks

    @property
    def rates(self) -> dict[str, float]:
        """Return the last measured rate of a lane in units per second, keyed by kind."""
        return self.state.rates

    def busy(self) -> int:
        """Return the number of lanes that are computing."""
        return self.pool.busy()

    def stop(self) -> None:
        """Stop taking work, and make all lanes commit. Takes no lock, so signal handlers can call it."""
        self.pool.stopping = True
        if self.slot:
            self.slot.close("stop")
        for task in list(self.tasks.values()):
            task.ask_to_stop(1)

    def settle_down(self) -> None:
        """Wait until the lanes have stopped, then release the current job. Leases that remain will expire."""
        self.pool.wait_for_work_to_end(self._shutdown_seconds)
        self._leave()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def reconnect(self) -> None:
        """Close idle connections to the store, because another connection of this process is dead."""
        self.store.drop_idle_connections()

    # -- slots -----------------------------------------------------------------------------------------------------

    def serve(self, popped: str) -> None:
        """Compute jobs until none is waiting. `popped` is the queue of the received wake-up, or an empty string."""
        while not self.stopping:
            if not self.pool.wait_for_idle():
                return
            kinds = self._room.startable(self.kinds, self.pool.idle)
            if not kinds:
                self.pool.wait_for_change(POLL_BUSY_SECONDS)
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
        # A runner soon uses all its lanes for one job. Only other workers take small jobs, which need idle lanes.
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
        """Wait while the worker is drained; otherwise, it would receive and requeue the same wake-up endlessly."""
        self.draining = True
        while self.draining and not self.stopping:
            time.sleep(DRAINED_SECONDS)

    def _serve_slot(self, job: str) -> None:
        facts = self.store.slots.facts([job], self.device)[0]
        if facts is None:
            return
        slot = self.slot = Slot(facts, queues.with_higher_priority(facts.queue, self.listened))
        try:
            while slot.open and not self.stopping:
                self._start_idle_lanes(slot)
                changes_soon = self._wants_lane(slot) or slot.granted < slot.lanes
                self.pool.wait_for_change(
                    POLL_IDLE_SECONDS if changes_soon else POLL_BUSY_SECONDS, unless=slot.all_leased
                )
                if slot.over():
                    slot.close("quantum")
                elif slot.all_leased():
                    slot.close("all units are leased")
                elif slot.lacks_resources and not slot.lanes:
                    slot.close("the job's requirements do not fit now")
                elif self.pool.all_repairing() or not (slot.lanes or self._wants_lane(slot)):
                    slot.close("no lane is ready")
            self._wait_for_lanes(slot)
        finally:
            self.slot = None

    def _wants_lane(self, slot: Slot) -> bool:
        """Return True if an idle lane could compute the job of this slot."""
        return slot.lanes < slot.facts.total and any(self._room.suits(lane, slot.facts.kind) for lane in self.pool.idle)

    def _start_idle_lanes(self, slot: Slot) -> None:
        while slot.open and slot.lanes < slot.facts.total:
            lane = self.pool.borrow(
                lambda lane: self._room.suits(lane, slot.facts.kind), lambda lane: self._room.prefers(lane, slot.facts)
            )
            if lane is None:
                return
            if not self._room.take(lane, slot.facts):
                slot.lacks_resources = True
                self.pool.give_back(lane)
                return
            slot.lanes += 1
            self._threads.submit(self._turns.take, lane, slot)

    def _wait_for_lanes(self, slot: Slot) -> None:
        """Wait until a lane is free and no result is being derived, so that no result is derived twice."""
        if slot.lanes:
            self.pool.wait_until(
                lambda: not slot.finishing and (bool(self.pool.idle) or self.pool.all_repairing()), CLOSE_SLOT_SECONDS
            )
        if not slot.lanes or self.pool.all_repairing():
            self._leave()

    def _leave(self) -> None:
        self.state.tolerate(lambda: self.store.slots.leave(self.worker), None)
