"""Host of programs: what all slots of one runner share."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from jobs.store.work.lease_store import Heard, LeaseStore
from runner.faults import Cordon
from runner.files.environments import Environments
from runner.files.inputs import Files, Inputs
from runner.files.places import Places
from runner.files.workspaces import Workspaces
from runner.ledger import Ledger
from runner.live import Live
from runner.programs.shells import Shells
from runner.replicas.tunnels import Tunnels

log = logging.getLogger(__name__)

#: Processes and descendants of one program that may live at once.
MOST_PROCESSES = 1024


@dataclass(kw_only=True)
class Host:
    """One runner: its name, its way to the coordinator, its folders and its resources."""

    worker: str
    name: str
    store: LeaseStore
    #: Files of a job under one of its leases; gives up once its third argument says so.
    files: Callable[[str, str, Callable[[], bool]], Files]
    places: Places
    inputs: Inputs
    environments: Environments
    ledger: Ledger
    cordon: Cordon
    #: Address at which its replicas of services listen, and coordinators reach them, unless that is through tunnels.
    address: str = "127.0.0.1"
    tunnels: Tunnels | None = None
    live: Live = field(default_factory=Live)
    shells: Shells = field(default_factory=Shells)
    workspaces: Workspaces = field(default_factory=Workspaces)
    #: Tells whether the runner ends.
    stopping: Callable[[], bool] = lambda: False
    #: Bytes of memory that a program may use whose job says nothing.
    memory_bytes: int = 0
    #: Job and unit that run now, by slot.
    running: dict[str, tuple[str, int]] = field(default_factory=dict)
    #: Slots whose GPUs are another worker's now.
    lost: frozenset[str] = frozenset()
    _said: set[str] = field(default_factory=set)

    def asked(self, heard: Heard) -> None:
        """Take in what people want of running programs now."""
        self.live.follow(heard.follow)
        self.shells.asked(heard.attach)

    def free_disk(self) -> None:
        """Remove cached files and environments until programs can start: a full disk stops every program here."""
        for cache in (self.inputs.cache, self.environments):
            cache.evict_until(lambda: not self.cordon.is_disk_full())

    def say_once(self, text: str) -> None:
        """Log an error that would come with each unit, the first time."""
        if text not in self._said:
            self._said.add(text)
            log.error("%s", text)

    def row(self, busy: int, *, draining: bool = False) -> dict[str, str | int | float]:
        """Return what a runner's heartbeat says beside what every worker's does, and renew its claims to GPUs.

        `busy` is the number of busy lanes. It includes lanes of replicas, which are not slots: a runner with replicas
        alone is idle, but one that takes no work is drained only without them.
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
            **({"state": "draining" if busy else "drained"} if why else {}),
            **({"state": "idle"} if busy and not (programs or draining or why) else {}),
        }
