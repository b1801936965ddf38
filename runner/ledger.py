"""Ledger of a runner's resources: what each lane has set aside for its lease, and what is free."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from jobs import requirements
from jobs.models import MAX_UNITS
from jobs.requirements import Offer, Requirements
from jobs.store.connection import RedisError
from jobs.store.slots import Facts
from jobs.worker.lanes import Lane
from jobs.worker.pace import Pace
from runner.gpus import Gpu

log = logging.getLogger(__name__)

#: Seconds of work that a lease aims at: two calls a lease then cost programs of a second 1 % of their time.
LEASE_SECONDS = 2.1
#: Seconds for which a GPU that another worker has is not offered.
TAKEN_SECONDS = 10.0


class Claims(Protocol):
    """Claims to GPUs, which runners share with GPU workers."""

    def claim(self, gpu: str, worker: str) -> bool: ...

    def give_up(self, gpu: str, worker: str) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Resources:
    """All that a runner has."""

    slots: int
    cpus: float
    memory_mib: int
    gpus: tuple[Gpu, ...] = ()
    host: str = ""
    labels: tuple[str, ...] = ()
    #: Programs of two tenants may run at once: each slot has a user of its own.
    isolated: bool = False

    @property
    def cpus_of_a_slot(self) -> float:
        """CPUs that a job counts as which does not say how many it needs."""
        return self.cpus / self.slots


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Resources that one lane has set aside."""

    job: str
    tenant: str
    cpus: float
    memory_mib: int
    gpus: tuple[Gpu, ...]


class Ledger:
    """Room of a runner, as `jobs.worker.room.Room`. Thread-safe.

    A job's requirements are in its specification. `freed` is called when there is more room than before.
    """

    def __init__(
        self, resources: Resources, claims: Claims, worker: str, freed: Callable[[], None] = lambda: None
    ) -> None:
        self.resources = resources
        self._claims, self._worker = claims, worker
        self._freed = freed
        self._lock = threading.Lock()
        self._entries: dict[str, Entry] = {}
        #: GPUs that others had, and until when they are not offered.
        self._others: dict[str, float] = {}

    # -- what there is ----------------------------------------------------------------------------------------------

    def total(self) -> Offer:
        """Return what a runner offers that does nothing, with the names of its GPUs."""
        row = self._row(self.resources.cpus, self.resources.memory_mib, self.resources.gpus)
        return {**row, "gpus": [{"name": gpu.name, **gpu.row()} for gpu in self.resources.gpus]}

    def offer(self) -> Offer:
        with self._lock:
            return {**self._row(*self._free(), self._free_gpus()), "tenant": self._tenant()}

    def _row(self, cpus: float, memory: int, gpus: Sequence[Gpu]) -> Offer:
        own = self.resources
        return {
            "cpus": round(cpus, 3), "memory_mib": memory, "gpus": [gpu.row() for gpu in gpus], "host": own.host,
            "labels": list(own.labels),
        }  # fmt: skip

    def _free(self) -> tuple[float, int]:
        taken = self._entries.values()
        cpus = self.resources.cpus - sum(entry.cpus for entry in taken)
        return max(0.0, cpus), max(0, self.resources.memory_mib - sum(entry.memory_mib for entry in taken))

    def _free_gpus(self) -> list[Gpu]:
        taken = {gpu.uuid for entry in self._entries.values() for gpu in entry.gpus}
        now = time.monotonic()
        return [gpu for gpu in self.resources.gpus if gpu.uuid not in taken and self._others.get(gpu.uuid, 0) <= now]

    def _tenant(self) -> str:
        """Return the only tenant whose programs may start now; empty: anybody's."""
        return "" if self.resources.isolated else next((one.tenant for one in self._entries.values()), "")

    def open(self) -> bool:
        """Tell whether a job may start that says nothing of CPUs: while there is less, nothing is asked for."""
        with self._lock:
            return self._free()[0] >= self.resources.cpus_of_a_slot - 1e-9

    def running(self) -> dict[str, Entry]:
        """Return what is set aside, by lane."""
        with self._lock:
            return dict(self._entries)

    # -- setting aside ----------------------------------------------------------------------------------------------

    def first_rate(self, facts: Facts) -> float:
        """Return the kind's guess: what programs of other jobs took says nothing of this one's."""
        return facts.nominal_rate

    def want(self, facts: Facts, pace: Pace) -> int:
        return min(pace.want(LEASE_SECONDS), int(facts.spec.get("batch") or MAX_UNITS))

    def take(self, lane: Lane, facts: Facts) -> bool:
        """Set aside what the job requires, its GPUs all or none, in the order of their UUIDs."""
        needs = facts.spec.get("requirements") or {}
        with self._lock:
            if lane.name in self._entries:
                return True
            wanted = self._fitting(needs, facts.tenant)
            if wanted is None or not self._claim(wanted):
                return False
            self._entries[lane.name] = Entry(
                job=facts.job_id, tenant=facts.tenant, cpus=self._cpus(needs), memory_mib=needs.get("memory_mib", 0),
                gpus=tuple(wanted),
            )  # fmt: skip
            return True

    def _cpus(self, needs: Requirements) -> float:
        return float(needs.get("cpus", self.resources.cpus_of_a_slot))

    def _fitting(self, needs: Requirements, tenant: str) -> list[Gpu] | None:
        """Return the GPUs that it would get; None where something is not free."""
        free = self._free_gpus()
        offer = self._row(*self._free(), free)
        if self._tenant() not in ("", tenant):
            return None
        if self._cpus(needs) > offer["cpus"] + 1e-3 or requirements.shortfalls(needs, offer):
            return None
        return [gpu for gpu in free if _is_enough(gpu, needs)][: requirements.gpus_needed(needs)]

    def _claim(self, gpus: Sequence[Gpu]) -> bool:
        claimed = []
        for gpu in gpus:
            if self._is_mine(gpu):
                claimed.append(gpu)
                continue
            self._others[gpu.uuid] = time.monotonic() + TAKEN_SECONDS
            self._give_up(claimed)
            return False
        return True

    def _is_mine(self, gpu: Gpu) -> bool:
        try:
            return self._claims.claim(gpu.uuid, self._worker)
        except RedisError as error:
            log.warning("could not claim %s: %s", gpu.uuid, error)
            return False

    def _give_up(self, gpus: Sequence[Gpu]) -> None:
        for gpu in gpus:
            try:
                self._claims.give_up(gpu.uuid, self._worker)
            except RedisError as error:
                log.warning("could not give %s back: %s; others get it soon", gpu.uuid, error)

    def give_back(self, lane: Lane) -> None:
        with self._lock:
            entry = self._entries.pop(lane.name, None)
        if entry is not None:
            self._give_up(entry.gpus)
            self._freed()

    def gpus(self, lane: str) -> tuple[Gpu, ...]:
        """Return the GPUs that a lane has set aside."""
        entry = self._entries.get(lane)
        return entry.gpus if entry else ()

    def renew(self) -> list[str]:
        """Renew all claims; return the lanes that have lost one to another worker. While the store is away: none."""
        lost = []
        for lane, entry in self.running().items():
            for gpu in entry.gpus:
                try:
                    if not self._claims.claim(gpu.uuid, self._worker):
                        lost.append(lane)
                except RedisError:
                    return lost
        return lost


def _is_enough(gpu: Gpu, needs: Requirements) -> bool:
    least = requirements.capability(needs.get("compute_capability"))
    return gpu.memory_mib >= needs.get("gpu_memory_mib", 0) and requirements.capability(gpu.compute_capability) >= least
