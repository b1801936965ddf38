"""Heartbeats, drains, claims to GPUs, leadership, and the leader's SWEEP."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jobs import queues
from jobs.models import ANONYMOUS, Actor
from jobs.store.server.functions import GPU_TTL_MS, WORKER_TTL_MS, Part
from jobs.store.work.lease_store import Claimed

#: Leadership moves within five seconds, including the interval in which other coordinators call `lead`.
LEADER_TTL_MS = 3000
#: Seconds of waiting after which a job gets requests reserved for aged jobs.
AGE_SECONDS = 300.0
#: Seconds for which a program waits for capacity before a runner is reserved for it.
RESERVE_SECONDS = 60.0


class Swept(NamedTuple):
    """Counts of one SWEEP."""

    slots_reaped: int
    jobs_returned: int
    jobs_purged: int
    #: Whether one of them reached the limit of a call.
    more: bool


class Woken(NamedTuple):
    """Result of WAKE: number of dependent jobs that were released, skipped or brought back."""

    notified: int
    #: Whether there is more to do.
    more: bool


class Fleet(Part):
    """Records heartbeats and claims of workers, and does the leader's work in Redis."""

    def birth(self) -> str:
        """Return an id of a worker's process that is greater than those of earlier processes, by Redis' clock."""
        seconds, micros = self._client.time()
        return f"{seconds * 1000 + micros // 1000:013d}-{secrets.token_hex(4)}"

    def heartbeat(
        self, worker: str, born: str, facts: Mapping[str, str | int | float], *, leaving: bool = False
    ) -> str:
        """Record a worker's heartbeat and return ok, drain or taken.

        drain: finish and take no new work. taken: a later process uses this name. `born` is the id that `birth`
        returned when the process started.
        """
        flat = [item for pair in facts.items() for item in pair]
        reply: bytes = self._functions.run("worker", worker, born, 0 if leaving else WORKER_TTL_MS, *flat)
        return reply.decode()

    def drain(self, worker: str, on: bool = True, actor: Actor = ANONYMOUS) -> bool:
        """Have a worker finish and take no new work, or undo that. Return False if the worker is unknown."""
        return self._functions.run_acknowledged_texts("drain", worker, int(on), *actor) == ["ok"]

    def claim(self, gpus: Sequence[str], worker: str, priority: str = "") -> Claimed:
        """Claim or renew all of these GPUs (UUIDs), or none.

        A claim lasts GPU_TTL_MS, and PROGRAM_GPU_TTL_MS for runners. `priority` is that of the work that is computed
        there or waits for it; empty for none. If programs wait for a GPU, GPU workers get it only for work of a higher
        priority.
        """
        held, wanted, by = self._functions.run("claim", json.dumps(list(gpus)), worker, GPU_TTL_MS, priority)
        return Claimed(held=bool(held), wanted=wanted.decode(), by=by.decode())

    def give_up(self, gpus: Sequence[str], worker: str, priority: str = "") -> None:
        """Release claims that this worker still has. Programs may claim the GPUs first for three seconds."""
        self._functions.run("claim", json.dumps(list(gpus)), worker, 0, priority)

    def lead(self, candidate: str) -> bool:
        """Take or renew the leadership for LEADER_TTL_MS."""
        return bool(self._functions.run("lead", candidate, LEADER_TTL_MS))

    def sweep(self, age_seconds: float = AGE_SECONDS, reserve_seconds: float = RESERVE_SECONDS) -> Swept:
        """End what is overdue and repair what crashes left, a limited amount for each call.

        The first job of a queue that has waited for `age_seconds` gets one request in eight, whatever its priority. A
        runner is reserved for a program that has waited for capacity for `reserve_seconds`; 0 disables this.
        """
        reaped, returned, purged, more = self._functions.run(
            "sweep", json.dumps(queues.ALL), int(age_seconds * 1000), int(reserve_seconds * 1000)
        )
        return Swept(reaped, returned, purged, bool(more))

    def wake(self) -> Woken:
        """Notify jobs that depend on others that ended or were retried, a limited number for each call."""
        notified, more = self._functions.run("wake")
        return Woken(notified, bool(more))
