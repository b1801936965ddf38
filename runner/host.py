"""State of a runner that all of its slots share."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from jobs.store.work.lease_store import Heard, LeaseStore
from jobs.store.work.slots import JobFacts
from runner.files.directories import Places
from runner.files.environments import Environments
from runner.files.inputs import Files, Inputs
from runner.files.workspaces import Workspaces
from runner.gpus import Gpu, Telemetry
from runner.host_errors import Cordon
from runner.ledger import Ledger
from runner.live import Live
from runner.programs.kept import KeptPrograms
from runner.programs.shells import Shells
from runner.replicas.tunnels import Tunnels

log = logging.getLogger(__name__)

#: Maximum number of concurrent processes of one program.
MOST_PROCESSES = 1024


@dataclass(kw_only=True)
class Host:
    """State of a runner: its name, its connections to the coordinator, its folders and its resources."""

    worker: str
    name: str
    store: LeaseStore
    #: Function that opens a job's files under a lease. File transfers stop when the third argument returns True.
    files: Callable[[str, str, Callable[[], bool]], Files]
    places: Places
    inputs: Inputs
    environments: Environments
    ledger: Ledger
    cordon: Cordon
    #: Network address of replicas. Without tunnels, coordinators connect to this address.
    address: str = "127.0.0.1"
    tunnels: Tunnels | None = None
    live: Live = field(default_factory=Live)
    shells: Shells = field(default_factory=Shells)
    telemetry: Telemetry = field(default_factory=Telemetry)
    kept: KeptPrograms = field(default_factory=KeptPrograms)
    workspaces: Workspaces = field(default_factory=Workspaces)
    #: Function that returns True if the runner is stopping.
    stopping: Callable[[], bool] = lambda: False
    #: Memory limit in bytes of a program whose job requests no memory.
    memory_bytes: int = 0
    #: Job ID and unit of each running program, keyed by slot.
    running: dict[str, tuple[str, int]] = field(default_factory=dict)
    #: Slots whose GPUs have been claimed by another worker.
    lost: frozenset[str] = frozenset()
    _said: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.ledger.before_free = self._end_surplus
        self.ledger.is_warm = self._is_warm

    def _is_warm(self, lane: str, facts: JobFacts) -> bool:
        return self.kept.is_warm(lane, facts)

    def _end_surplus(self, lane: str, gpus: Sequence[Gpu]) -> None:
        """End waiting programs that would otherwise use unreserved GPUs or memory."""
        try:
            if gpus:
                self.kept.take(lane)
            self.kept.end_until(lambda used: used <= self.ledger.unreserved_memory_bytes(excluded=lane))
        except Exception:  # An error must not keep the lane from further jobs
            log.exception("cannot end a waiting program", extra={"lane": lane})

    def asked(self, heard: Heard) -> None:
        """Apply user requests from the reply to a heartbeat: follow the output of jobs, and open shells."""
        self.live.follow(heard.follow)
        self.shells.asked(heard.attach)

    def free_disk(self) -> None:
        """Delete cached files and environments until the disk has enough free space for programs."""
        for cache in (self.inputs.cache, self.environments):
            cache.evict_until(lambda: not self.cordon.is_disk_full())

    def say_once(self, text: str) -> None:
        """Log an error only once, because it would be repeated for each unit."""
        if text not in self._said:
            self._said.add(text)
            log.error("%s", text)

    def row(self, busy: int, *, draining: bool = False) -> dict[str, str | int | float]:
        """Return the runner's fields of the worker record, and renew its claims to GPUs.

        `busy` is the number of busy lanes, including lanes of replicas. Replicas do not use slots, so a runner that
        runs only replicas is idle. A draining runner counts as drained only after its replicas have stopped.
        """
        why, programs = self.cordon.why(), max(0, busy - self.ledger.replicas())
        self.lost = frozenset(self.ledger.renew())
        return {
            "offer": json.dumps(self.ledger.total()),
            "beside_replicas": json.dumps(self.ledger.beside_replicas()),
            "busy_lanes": programs,
            "isolation": "uid" if self.ledger.resources.isolated else "shared",
            "running": json.dumps(list(self.running.values())[:64]),
            "cordoned": why,
            **self._describe_gpus(),
            **({"state": "draining" if busy else "drained"} if why else {}),
            **({"state": "idle"} if busy and not (programs or draining or why) else {}),
        }

    def _describe_gpus(self) -> dict[str, str]:
        """Return the measurements of the GPUs, each with the job that has reserved it."""
        jobs = {gpu.uuid: entry.job for entry in self.ledger.running().values() for gpu in entry.gpus}
        gpus = [gpu | ({"job": job} if (job := jobs.get(gpu["uuid"])) else {}) for gpu in self.telemetry.read()]
        return {"gpus": json.dumps(gpus)} if gpus else {}
