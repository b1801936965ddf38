"""Free capacity of a worker for further leases, in addition to its idle lanes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from jobs.hosts.requirements import Offer
from jobs.store.work.slots import JobFacts
from jobs.worker.lanes import Lane
from jobs.worker.lease_size import Pace


class Room(Protocol):
    """Interface for the free capacity of a worker. Thread-safe."""

    def offer(self) -> Offer | None:
        """Return the free resources that jobs can require, or None if jobs require only a lane."""

    def startable(self, kinds: Mapping[str, int], idle: Sequence[Lane]) -> Mapping[str, int]:
        """Return the kinds whose jobs can start now on an idle lane. If there are none, the worker requests no work."""

    def suits(self, lane: Lane, kind: str) -> bool:
        """Return True if jobs of this kind can run in the lane."""

    def prefers(self, lane: Lane, facts: JobFacts) -> bool:
        """Return True if the lane can start the job faster than other lanes."""

    def width(self, lanes: Sequence[Lane]) -> int:
        """Return the maximum number of these lanes that one job can use at the same time."""

    def first_rate(self, facts: JobFacts) -> float:
        """Return the initial rate, in units per second, of a lane that has not yet computed the job."""

    def want(self, facts: JobFacts, pace: Pace) -> int:
        """Return the number of units of a lane's next lease of a job."""

    def take(self, lane: Lane, facts: JobFacts) -> bool:
        """Reserve the resources that a job requires for a lane. Return False if the resources are not free."""

    def give_back(self, lane: Lane) -> None:
        """Release the resources that are reserved for a lane, if there are any."""

    def announce(self) -> None:
        """Repeat a waiting request for work, because a lane is idle and its resources are free."""


class LanesOnly:
    """Capacity of a worker whose leases need nothing but a lane."""

    def offer(self) -> Offer | None:
        return None

    def startable(self, kinds: Mapping[str, int], idle: Sequence[Lane]) -> Mapping[str, int]:
        return kinds

    def suits(self, lane: Lane, kind: str) -> bool:
        return True

    def prefers(self, lane: Lane, facts: JobFacts) -> bool:
        return False

    def width(self, lanes: Sequence[Lane]) -> int:
        return len(lanes)

    def first_rate(self, facts: JobFacts) -> float:
        return facts.expected_rate

    def want(self, facts: JobFacts, pace: Pace) -> int:
        return pace.want()

    def take(self, lane: Lane, facts: JobFacts) -> bool:
        return True

    def give_back(self, lane: Lane) -> None:
        return None

    def announce(self) -> None:
        return None
