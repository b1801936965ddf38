"""Loop of one lane: leases, computes and commits units of a job until the worker's time slice ends."""

from __future__ import annotations

import logging
import threading
import time

from jobs import errors
from jobs.models import QUANTUM_SECONDS, Device
from jobs.store.work import lease_tokens
from jobs.store.work.leases import Grant, Merge
from jobs.store.work.slots import JobFacts
from jobs.worker import execution, lease_size
from jobs.worker.execution import Computed
from jobs.worker.free_capacity import LanesOnly, Room
from jobs.worker.lanes import Lane, LaneDied, LeaseEnded, Task
from jobs.worker.state import WorkerState
from jobs.worker.telemetry.meter import Share

log = logging.getLogger(__name__)

#: Minimum and maximum delay in seconds before a lane repeats a request for a lease; the delay doubles each time.
#: The maximum is short, because the ranges of a dead worker must be computed soon.
FIRST_LINGER_SECONDS, LINGER_SECONDS = 0.01, 0.15
#: Maximum number of measured rates that are remembered, one per lane and job.
MOST_PACES = 4096


class Slot:
    """Time slice (slot) in which a worker computes one job."""

    def __init__(self, facts: JobFacts, higher: tuple[str, ...]) -> None:
        self.facts = facts
        #: Queues of higher priority; while a job waits in one of these queues, the slot gets no more leases.
        self.higher = higher
        self.open = True
        #: True while a lane derives the job's result.
        self.finishing = False
        self._result = threading.Lock()
        self.granted = 0
        #: Number of lanes that have started to work on the job.
        self.lanes = 0
        #: True if an idle lane could not reserve the resources that the job requires.
        self.lacks_resources = False
        self.opened = time.monotonic()

    def close(self, why: str) -> None:
        if self.open:
            self.open = False
            log.debug("slot closed: %s", why, extra={"job_id": self.facts.job_id})

    def all_leased(self) -> bool:
        """Return True if the slot got at least as many leases as its job has units."""
        return self.granted >= self.facts.total

    def claim_result(self) -> bool:
        """Return True only to the first lane that calls this method, so that one lane derives the result.

        A second lane would need a second copy of all partial results.
        """
        return self._result.acquire(blocking=False)

    def over(self) -> bool:
        return time.monotonic() - self.opened > QUANTUM_SECONDS


class _Backoff:
    """Exponential backoff of a lane that waits for a lease."""

    def __init__(self) -> None:
        self._seconds = FIRST_LINGER_SECONDS

    def seconds(self) -> float:
        """Return the next delay in seconds, and double the delay after it."""
        seconds, self._seconds = self._seconds, min(2 * self._seconds, LINGER_SECONDS)
        return seconds


class Turns:
    """Runs the loops of lanes in threads, and remembers the rate of every lane for each job."""

    def __init__(self, state: WorkerState, room: Room | None = None) -> None:
        self._state = state
        self._room = room or LanesOnly()
        self._store = state.store
        self._paces: dict[tuple[str, str], lease_size.Pace] = {}

    def take(self, lane: Lane, slot: Slot) -> None:
        """Lease and compute units of a job until the slot closes, then return the lane to the pool."""
        patience = _Backoff()
        try:
            while slot.open and lane.ready and not self._state.stopping:
                if self._take_lease(lane, slot) == "wait":
                    self._linger(slot, patience.seconds())
                else:
                    patience = _Backoff()
        except Exception:
            log.exception("a lane stopped working on a job", extra={"job_id": slot.facts.job_id, "lane": lane.name})
            slot.close("error")
            time.sleep(LINGER_SECONDS)
        finally:
            self._room.give_back(lane)
            self._state.pool.give_back(lane)

    def _take_lease(self, lane: Lane, slot: Slot) -> str:
        """Request one lease and compute it. Return `wait` if all units are leased."""
        rate, asked = self._pace(lane, slot.facts), time.monotonic()
        answer = self._ask_for_lease(lane, slot, rate)
        if isinstance(answer, Grant):
            slot.granted += 1
            if slot.all_leased():
                self._state.pool.notify()  # The next job need not wait for the next poll of this slot.
            self._work(lane, slot, Task(slot.facts, answer, asked), rate)
        elif answer == "wait":
            return answer
        elif answer == "finishing" and slot.granted == 0:
            self._finish(lane, slot)
        else:
            slot.close(answer or "unreachable")
        return ""

    def _ask_for_lease(self, lane: Lane, slot: Slot, rate: lease_size.Pace) -> Grant | str | None:
        token, want = lease_tokens.new(), self._room.want(slot.facts, rate)
        return self._state.persist(
            lambda: self._store.leases.lease(
                slot.facts.job_id,
                token,
                want=want,
                least=min(rate.least(), want),
                worker=self._state.worker,
                lane=f"{self._state.worker}/{lane.name}",
                rate=rate.rate if rate.measured else 0.0,
                higher=slot.higher if slot.granted else (),
            )
        )

    def _linger(self, slot: Slot, seconds: float) -> None:
        """Wait for units of this job to become free, or close the slot if another job is waiting."""
        nothing: list[int] = []
        if any(self._state.tolerate(lambda: self._store.slots.waiting(self._state.listened), nothing)):
            slot.close("wait")
        else:
            self._state.pool.wait_until(lambda: not slot.open, seconds)

    def _work(self, lane: Lane, slot: Slot, task: Task, rate: lease_size.Pace) -> None:
        job, token = slot.facts.job_id, task.grant.token
        self._state.tasks[token] = task
        if self._state.stopping:
            task.ask_to_stop(1)
        try:
            with self._state.meter.lease() as share:
                computed, encoded = lane.compute(task)
        except LaneDied as died:
            grant = task.grant
            log.warning("%s", died, extra={"job_id": job, "lane": lane.name, "lo": grant.lo, "hi": grant.hi})
            give_back = self._store.leases.crash if died.touched else self._store.leases.release
            self._state.persist(lambda: give_back(job, token))
        except errors.KernelFailed as failure:
            log.error("a kernel failed: %s", failure, extra={"job_id": job, "lane": lane.name})
            reason = str(failure)
            self._state.persist(lambda: self._store.leases.fail(job, token, reason))
        except LeaseEnded as ended:
            if ended.parts >= execution.FOLD_AT:
                self._fold(slot.facts)
        else:
            if computed.upto <= task.grant.lo or task.stop == 2:
                self._state.persist(lambda: self._store.leases.release(job, token))
            else:
                self._go_on_after(self._commit(task, computed, encoded, rate, share), lane, slot)
        finally:
            self._state.tasks.pop(token, None)

    def _commit(
        self, task: Task, computed: Computed, encoded: bytes, rate: lease_size.Pace, share: Share
    ) -> Merge | None:
        facts, grant = task.facts, task.grant
        rate.learn(computed.upto - grant.lo, computed.seconds)
        self._state.rates[facts.kind] = rate.rate
        device, lo = self._state.device, grant.lo if task.went_on else None
        # A program's duration does not predict the duration of the next job, so a runner reports no speed.
        speed = 0.0 if device is Device.RUNNER else rate.rate / facts.nominal_rate
        return self._state.persist(
            lambda: self._store.leases.commit(
                facts.job_id,
                grant.token,
                computed.upto,
                encoded,
                ms=round(computed.seconds * 1000),
                worker=self._state.worker,
                device=device,
                pace=speed,
                device_ms=round(share.seconds * 1000) if device is Device.GPU else 0,
                joules=share.joules,
                lo=lo,
            )
        )

    def _go_on_after(self, committed: Merge | None, lane: Lane, slot: Slot) -> None:
        if committed is None or not committed.merged:
            log.info("dropped the result of a stale lease", extra={"job_id": slot.facts.job_id})
        elif committed.finishing:
            self._finish(lane, slot)
        elif committed.parts >= execution.FOLD_AT:
            self._fold(slot.facts)

    def _fold(self, facts: JobFacts) -> None:
        try:
            execution.fold(self._store, facts.job_id, facts.kind)
        except errors.KernelFailed as failure:  # The job will fail with this error when it finishes.
            log.error("%s", failure, extra={"job_id": facts.job_id})

    def _finish(self, lane: Lane, slot: Slot) -> None:
        facts = slot.facts
        if not slot.claim_result():
            return
        slot.finishing = True
        slot.close("finishing")
        try:
            if self._state.persist(
                lambda: execution.finish(self._store, facts.job_id, facts.kind, facts.spec, lane.derive)
            ):
                log.info("job done", extra={"job_id": facts.job_id, "kind": facts.kind, "status": "done"})
        except LaneDied as died:  # Another worker derives the result again.
            self._count_derive_crash(facts, lane, died)
        finally:
            slot.finishing = False

    def _count_derive_crash(self, facts: JobFacts, lane: Lane, died: LaneDied) -> None:
        log.warning("%s", died, extra={"job_id": facts.job_id, "lane": lane.name})
        if died.touched and not self._state.stopping:
            token, reason = lease_tokens.new(), f"cannot derive the result: {died}"
            self._state.persist(lambda: self._store.results.count_derive_crash(facts.job_id, token, reason))

    def _pace(self, lane: Lane, facts: JobFacts) -> lease_size.Pace:
        known = self._paces.get((lane.name, facts.job_id))
        if known is None:
            if len(self._paces) > MOST_PACES:
                self._paces.clear()
            known = self._paces[(lane.name, facts.job_id)] = lease_size.Pace(self._room.first_rate(facts))
        return known
