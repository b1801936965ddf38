"""Bookkeeping of a runner's resources: lane reservations and free resources."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from jobs.hosts import requirements
from jobs.hosts.requirements import Offer, Requirements
from jobs.kinds import registry
from jobs.models import MAX_UNITS
from jobs.store.server.connection import RedisError
from jobs.store.work.lease_store import Claimed
from jobs.store.work.slots import JobFacts
from jobs.worker.lanes import Lane
from jobs.worker.lease_size import Pace
from runner.gpus import Gpu

log = logging.getLogger(__name__)

#: Target duration of a lease in seconds. For programs of one second, API calls then take 1 % of the time.
LEASE_SECONDS = 2.1
#: Seconds for which a GPU is not offered after another worker claimed it.
#: After use outside the cluster, a GPU is not offered for `FOREIGN_SECONDS`.
TAKEN_SECONDS, FOREIGN_SECONDS = 2.0, 10.0
#: Prefix of the names of replica lanes. These lanes use no slot.
REPLICA_LANE = "replica-"


class Claims(Protocol):
    """Claims to GPUs, which prevent two workers from using the same GPU."""

    def claim(self, gpus: Sequence[str], worker: str, priority: str = "") -> Claimed: ...

    def give_up(self, gpus: Sequence[str], worker: str, priority: str = "") -> None: ...


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Total resources of a runner."""

    slots: int
    #: Maximum number of replicas that run at the same time.
    replicas: int = 0
    cpus: float
    memory_mib: int
    gpus: tuple[Gpu, ...] = ()
    host: str = ""
    labels: tuple[str, ...] = ()
    #: True if each slot has its own Unix user, so that programs of different tenants can run at the same time.
    isolated: bool = False

    @property
    def cpus_of_a_slot(self) -> float:
        """Return the number of CPUs that are reserved for a job without a CPU requirement."""
        return self.cpus / self.slots


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Resources reserved for one lane."""

    job: str
    tenant: str
    #: True for a replica of a service, because replicas run until a user stops them.
    is_endless: bool
    cpus: float
    memory_mib: int
    gpus: tuple[Gpu, ...]
    priority: str = ""


class Ledger:
    """Free and reserved resources of a runner, as an implementation of `jobs.worker.free_capacity.Room`. Thread-safe.

    A job's requirements are in its specification. A replica of a service uses no slot, and no CPUs unless its job
    requests some. `freed` is called after resources became free. `foreign` returns how a GPU is used outside the
    cluster.
    """

    def __init__(
        self,
        resources: Resources,
        claims: Claims,
        worker: str,
        freed: Callable[[], None] = lambda: None,
        foreign: Callable[[Gpu], str] = lambda gpu: "",
    ) -> None:
        self.resources = resources
        self._claims, self._worker = claims, worker
        self._freed, self._foreign = freed, foreign
        #: Function that is called with a lane and its GPUs before its resources become free.
        self.before_free: Callable[[str, Sequence[Gpu]], None] = lambda lane, gpus: None
        #: Function that returns True if a lane's waiting program can run the units of a job.
        self.is_warm: Callable[[str, JobFacts], bool] = lambda lane, facts: False
        self._lock = threading.Lock()
        self._entries: dict[str, Entry] = {}
        #: Monotonic time at which each temporarily excluded GPU is offered again.
        self._others: dict[str, float] = {}
        #: Description of each GPU's use outside the cluster, keyed by the GPU's UUID.
        self._lies: dict[str, str] = {}

    # -- offers of resources -------------------------------------------------------------------------------------------

    def total(self) -> Offer:
        """Return the resources that an idle runner offers, including the names of its GPUs."""
        gpus = [gpu for gpu in self.resources.gpus if gpu.uuid not in self._lies]
        row = self._offer(self.resources.cpus, self.resources.memory_mib, gpus)
        return {**row, "gpus": [{"name": gpu.name, **gpu.row()} for gpu in gpus]}

    def offer(self) -> Offer:
        with self._lock:
            return {**self._offer(*self._compute_free(), self._list_free_gpus()), "tenant": self._tenant()}

    def beside_replicas(self) -> Offer:
        """Return the resources that programs could use if no other program were running.

        `replicas` is the number of replicas that can be added, and `replica_jobs` the jobs of those that are running.
        `works_for` is the only tenant whose jobs can start now.
        """
        with self._lock:
            replicas = [entry for entry in self._entries.values() if entry.is_endless]
            taken = {gpu.uuid for entry in replicas for gpu in entry.gpus} | self._lies.keys()
            row = self._offer(
                *self._compute_remaining(replicas), [gpu for gpu in self.resources.gpus if gpu.uuid not in taken]
            )
            more = self.resources.replicas - len(replicas)
            jobs = sorted(entry.job for entry in replicas)
            tenants = {"tenant": self._tenant(replicas), "works_for": self._tenant()}
            return {**row, **tenants, "replicas": more, "replica_jobs": jobs}

    def _offer(self, cpus: float, memory: int, gpus: Sequence[Gpu]) -> Offer:
        own = self.resources
        return {
            "cpus": round(cpus, 3),
            "memory_mib": memory,
            "gpus": [gpu.row() for gpu in gpus],
            "host": own.host,
            "labels": list(own.labels),
        }

    def _compute_free(self) -> tuple[float, int]:
        return self._compute_remaining(self._entries.values())

    def _compute_remaining(self, taken: Collection[Entry]) -> tuple[float, int]:
        """Return the free CPUs and the free memory in MiB after subtracting reservations."""
        cpus = self.resources.cpus - sum(entry.cpus for entry in taken)
        return max(0.0, cpus), max(0, self.resources.memory_mib - sum(entry.memory_mib for entry in taken))

    def _list_free_gpus(self) -> list[Gpu]:
        taken = {gpu.uuid for entry in self._entries.values() for gpu in entry.gpus}
        now = time.monotonic()
        return [gpu for gpu in self.resources.gpus if gpu.uuid not in taken and self._others.get(gpu.uuid, 0) <= now]

    def _tenant(self, entries: Collection[Entry] | None = None) -> str:
        """Return the only tenant that can share the runner with these reservations, or an empty string for any
        tenant.
        """
        some = self._entries.values() if entries is None else entries
        return "" if self.resources.isolated else next((one.tenant for one in some), "")

    # -- lanes ------------------------------------------------------------------------------------------------------

    def startable(self, kinds: Mapping[str, int], idle: Sequence[Lane]) -> Mapping[str, int]:
        """Return the kinds whose jobs can start in one of the idle lanes.

        The runner requests no programs while fewer CPUs are free than a job without a CPU requirement gets.
        """
        with self._lock:
            has_cpus = self._compute_free()[0] >= self.resources.cpus_of_a_slot - 1e-9
        return {
            kind: version
            for kind, version in kinds.items()
            if (has_cpus or kind in registry.endless_kinds()) and any(self.suits(lane, kind) for lane in idle)
        }

    def suits(self, lane: Lane, kind: str) -> bool:
        return lane.name.startswith(REPLICA_LANE) == (kind in registry.endless_kinds())

    def width(self, lanes: Sequence[Lane]) -> int:
        return self.resources.slots

    def running(self) -> dict[str, Entry]:
        """Return the reservations of all lanes, keyed by lane name."""
        with self._lock:
            return dict(self._entries)

    def unreserved_memory_bytes(self, excluded: str = "") -> int:
        """Return the memory that no job has reserved, except for the job in the lane `excluded`."""
        with self._lock:
            others = [entry for lane, entry in self._entries.items() if lane != excluded]
            return self._compute_remaining(others)[1] << 20

    # -- reservations --------------------------------------------------------------------------------------------------

    def first_rate(self, facts: JobFacts) -> float:
        """Return the rate that the kind estimates. Earlier jobs do not predict the durations of a job's programs."""
        return facts.nominal_rate

    def want(self, facts: JobFacts, pace: Pace) -> int:
        return min(pace.want(LEASE_SECONDS), int(facts.spec.get("batch") or MAX_UNITS))

    def take(self, lane: Lane, facts: JobFacts) -> bool:
        """Reserve the resources that a job requires. Reserve either all required GPUs or none."""
        needs = facts.spec.get("requirements") or {}
        with self._lock:
            if lane.name in self._entries:
                return True
            is_endless = facts.kind in registry.endless_kinds()
            cpus = float(needs.get("cpus", 0.0 if is_endless else self.resources.cpus_of_a_slot))
            wanted = self._fitting(needs, cpus, facts.tenant)
            if wanted is None or not self._claim(wanted, facts.priority):
                return False
            self._entries[lane.name] = Entry(
                job=facts.job_id,
                tenant=facts.tenant,
                is_endless=is_endless,
                cpus=cpus,
                memory_mib=needs.get("memory_mib", 0),
                gpus=tuple(wanted),
                priority=facts.priority,
            )
            return True

    def _fitting(self, needs: Requirements, cpus: float, tenant: str) -> list[Gpu] | None:
        """Return the GPUs that a job would get, or None if its requirements do not fit."""
        free = self._list_free_gpus()
        offer = self._offer(*self._compute_free(), free)
        if self._tenant() not in ("", tenant):
            return None
        if cpus > offer["cpus"] + 1e-3 or requirements.shortfalls(needs, offer):
            return None
        return [gpu for gpu in free if _is_enough(gpu, needs)][: requirements.gpus_needed(needs)]

    def _claim(self, gpus: Sequence[Gpu], priority: str) -> bool:
        """Claim all of the GPUs or none. If a GPU is in use elsewhere, do not offer it for a while."""
        if not gpus:
            return True
        try:
            held = self._claims.claim([gpu.uuid for gpu in gpus], self._worker, priority).held
        except RedisError as error:
            log.warning("cannot claim the GPUs %s: %s", ", ".join(gpu.uuid for gpu in gpus), error)
            held = False
        if not held:
            self._leave_out(gpus, TAKEN_SECONDS)
            return False
        taken = [gpu for gpu in gpus if self._is_used_by_others(gpu)]
        if taken:
            self._leave_out(taken, FOREIGN_SECONDS)
            self._give_up(gpus, priority)
        return not taken

    def _leave_out(self, gpus: Sequence[Gpu], seconds: float) -> None:
        until = time.monotonic() + seconds
        self._others.update({gpu.uuid: until for gpu in gpus})

    def _is_used_by_others(self, gpu: Gpu) -> bool:
        lies = self._foreign(gpu)
        if lies and lies != self._lies.get(gpu.uuid):
            log.warning("the GPU %s is not offered to programs: %s", gpu.uuid, lies)
        if lies:
            self._lies[gpu.uuid] = lies
        else:
            self._lies.pop(gpu.uuid, None)
        return bool(lies)

    def _give_up(self, gpus: Sequence[Gpu], priority: str) -> None:
        names = [gpu.uuid for gpu in gpus]
        try:
            self._claims.give_up(names, self._worker, priority)
        except RedisError as error:
            log.warning("cannot release the GPUs %s: %s; the claims will expire", ", ".join(names), error)

    def prefers(self, lane: Lane, facts: JobFacts) -> bool:
        return self.is_warm(lane.name, facts)

    def give_back(self, lane: Lane) -> None:
        self.before_free(lane.name, self.gpus(lane.name))
        with self._lock:
            entry = self._entries.pop(lane.name, None)
        if entry is not None and entry.gpus:
            self._give_up(entry.gpus, entry.priority)

    def announce(self) -> None:
        self._freed()

    def replicas(self) -> int:
        """Return the number of running service replicas."""
        return sum(entry.is_endless for entry in self.running().values())

    def gpus(self, lane: str) -> tuple[Gpu, ...]:
        """Return the GPUs that a lane has reserved."""
        entry = self._entries.get(lane)
        return entry.gpus if entry else ()

    def renew(self) -> list[str]:
        """Renew the claims to all GPUs, and return the lanes whose GPUs another worker has claimed.

        Call this method about once per second: it also offers GPUs again that were excluded temporarily. If the store
        is unreachable, the remaining lanes are not checked.
        """
        self._offer_again()
        lost = []
        for lane, entry in self.running().items():
            if not entry.gpus:
                continue
            try:
                names = [gpu.uuid for gpu in entry.gpus]
                if not self._claims.claim(names, self._worker, entry.priority).held:
                    lost.append(lane)
            except RedisError:
                return lost
        return lost

    def _offer_again(self) -> None:
        now = time.monotonic()
        with self._lock:
            over = [uuid for uuid, until in self._others.items() if until <= now]
            for uuid in over:
                del self._others[uuid]
        if over:  # The waiting request for work contains an outdated offer.
            self._freed()


def _is_enough(gpu: Gpu, needs: Requirements) -> bool:
    least = requirements.capability(needs.get("compute_capability"))
    return gpu.memory_mib >= needs.get("gpu_memory_mib", 0) and requirements.capability(gpu.compute_capability) >= least
