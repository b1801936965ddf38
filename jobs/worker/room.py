"""Room of a worker: what it has left for further leases beside idle lanes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from jobs.hosts.requirements import Offer
from jobs.store.work.slots import Facts
from jobs.worker.lanes import Lane
from jobs.worker.pace import Pace


class Room(Protocol):
    """Room for further leases. Thread-safe."""

    def offer(self) -> Offer | None:
        """Return what is free now, as NEXT compares it with what jobs require; None: they require nothing."""

    def startable(self, kinds: Mapping[str, int], idle: Sequence[Lane]) -> Mapping[str, int]:
        """Return the kinds whose jobs may start now on an idle lane. If it is empty, the worker requests no work."""

    def suits(self, lane: Lane, kind: str) -> bool:
        """Return True for a lane that jobs of this kind may run in."""

    def width(self, lanes: Sequence[Lane]) -> int:
        """Return how many of these lanes one job may run in at once."""

    def first_rate(self, facts: Facts) -> float:
        """Return the units/s at which a lane begins that knows nothing of the job."""

    def want(self, facts: Facts, pace: Pace) -> int:
        """Return the units of a lane's next lease of a job."""

    def take(self, lane: Lane, facts: Facts) -> bool:
        """Set aside for a lane what the job requires; False where that is not free."""

    def give_back(self, lane: Lane) -> None:
        """Free what was set aside for a lane, if anything."""

    def announce(self) -> None:
        """Repeat a waiting request for work, because a lane is idle and its resources are free."""


class LanesOnly:
    """Room of a worker whose lanes are all that a lease needs."""

    def offer(self) -> Offer | None:
        return None

    def startable(self, kinds: Mapping[str, int], idle: Sequence[Lane]) -> Mapping[str, int]:
        return kinds

    def suits(self, lane: Lane, kind: str) -> bool:
        return True

    def width(self, lanes: Sequence[Lane]) -> int:
        return len(lanes)

    def first_rate(self, facts: Facts) -> float:
        return facts.expected_rate

    def want(self, facts: Facts, pace: Pace) -> int:
        return pace.want()

    def take(self, lane: Lane, facts: Facts) -> bool:
        return True

    def give_back(self, lane: Lane) -> None:
        return None

    def announce(self) -> None:
        return None
