"""Simulates a fleet of workers that call the real functions, on a test clock on which a minute takes seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from jobs import queues
from jobs.models import QUANTUM_SECONDS, Device
from jobs.store.work.leases import Grant
from jobs.store.work.slots import Held, Taken
from tests.contract.lease_model import Bench

TICK_MS = 100
#: Number of units that a lane computes per millisecond.
RATE = 1.0
LEASE_MS = 1000


@dataclass
class Lane:
    """A lane that computes one lease at a time."""

    name: str
    grant: Grant | None = None
    job: str = ""
    #: Time at which the lease is finished, and its duration.
    until: int = 0
    ms: int = 0


@dataclass
class SimulatedWorker:
    """A worker with its slot and its busy lanes, which may still compute for an earlier slot's job."""

    name: str
    listened: tuple[str, ...]
    lanes: list[Lane]
    job: str = ""
    higher: tuple[str, ...] = ()
    opened: int = 0
    granted: bool = False


@dataclass
class Fleet:
    """The workers of a cluster; `tick` advances the clock by TICK_MS."""

    bench: Bench
    workers: int = 2
    lanes: int = 2
    age_seconds: float = 1e9
    now: int = 0
    #: Lane time in milliseconds, by job.
    used: Counter[str] = field(default_factory=Counter)
    #: Time of each job's first lease.
    started: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._several = [
            SimulatedWorker(f"w{number}", queues.for_worker(Device.CPU), self._lanes(number))
            for number in range(self.workers)
        ]
        for worker in self._several:
            self.bench.store.fleet.heartbeat(worker.name, "1", {"device": "cpu"})

    def _lanes(self, number: int) -> list[Lane]:
        return [Lane(f"w{number}/{lane}") for lane in range(self.lanes)]

    def run(self, seconds: float) -> Iterator[int]:
        """Yield the time in milliseconds after each tick."""
        end = self.now + int(seconds * 1000)
        while self.now < end:
            self.tick()
            yield self.now

    def tick(self) -> None:
        """Advance the clock: lanes commit, workers take the best job, and heartbeats are sent each second."""
        self.bench.advance(TICK_MS)
        self.now += TICK_MS
        if self.now % 1000 == 0:
            self._beat()
        for worker in self._several:
            self._commit(worker)
            self._fill(worker)

    def _beat(self) -> None:
        for worker in self._several:
            self.bench.store.fleet.heartbeat(worker.name, "1", {"device": "cpu"})
            if worker.job:
                self.bench.store.slots.hold(worker.name)
            for lane in worker.lanes:
                if lane.grant:
                    self.bench.beat(lane.grant.token)
        self.bench.sweep(self.age_seconds)

    def _commit(self, worker: SimulatedWorker) -> None:
        for lane in worker.lanes:
            if lane.grant and self.now >= lane.until:
                token, lane.grant = lane.grant.token, None
                if self.bench.commit(token, worker=worker.name, ms=lane.ms).finishing:
                    self.bench.finish(lane.job)
                self.used[lane.job] += lane.ms

    def _fill(self, worker: SimulatedWorker) -> None:
        """Give idle lanes leases of the slot's job. End the slot like a worker, and request the next job."""
        for _ in range(4):
            if worker.job and self.now - worker.opened > QUANTUM_SECONDS * 1000:
                worker.job = ""
            if worker.job:
                self._lease(worker)
            idle = sum(lane.grant is None for lane in worker.lanes)
            if worker.job or not idle or not self._next(worker, idle):
                return

    def _next(self, worker: SimulatedWorker, idle: int) -> bool:
        """Request work; return False if there is none."""
        answer = self.bench.next(worker.name, worker.listened, lanes=idle, take=0, kinds={"sum": 1})
        assert not isinstance(answer, Taken)
        if not isinstance(answer, Held):
            return False
        queue = self.bench.jobs[answer.job_id].new.queue
        worker.job, worker.opened, worker.granted = answer.job_id, self.now, False
        worker.higher = queues.with_higher_priority(queue, worker.listened)
        return True

    def _lease(self, worker: SimulatedWorker) -> None:
        for lane in worker.lanes:
            if lane.grant is not None:
                continue
            answer = self.bench.lease(
                worker.job,
                LEASE_MS,
                worker.name,
                lane=lane.name,
                rate=RATE * 1000,
                higher=worker.higher if worker.granted else (),
            )
            if isinstance(answer, Grant):
                lane.grant, lane.job, worker.granted = answer, worker.job, True
                lane.ms = int((answer.hi - answer.lo) / RATE)
                lane.until = self.now + lane.ms
                self.started.setdefault(worker.job, self.now)
            elif answer == "wait":
                if any(self.bench.store.slots.waiting(worker.listened)):
                    worker.job = ""
                return
            else:
                worker.job = ""
                return
