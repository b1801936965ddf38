"""Heartbeats, draining of workers, claims to GPUs, the election of the leader, and the leader's cleanup."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jobs import queues
from jobs.models import ANONYMOUS, Actor
from jobs.store.server.functions import GPU_TTL_MS, WORKER_TTL_MS, Part
from jobs.store.work.lease_store import Claimed

#: Milliseconds for which a leadership is valid. If the leader fails, another one takes over within five seconds.
LEADER_TTL_MS = 3000
#: Seconds of waiting after which a job counts as aged. Some requests for work are reserved for aged jobs.
AGE_SECONDS = 300.0
#: Seconds that a program waits for capacity before the cluster reserves a runner for it.
RESERVE_SECONDS = 60.0


class SweepCounts(NamedTuple):
    """Numbers of changes that one cleanup call made in Redis."""

    slots_reaped: int
    jobs_returned: int
    jobs_purged: int
    #: True if the call reached its limit, so that another call is needed.
    more: bool


class WakeCounts(NamedTuple):
    """Numbers of dependent jobs that one call released, skipped or restored."""

    notified: int
    #: True if more jobs wait for a notification.
    more: bool


class Fleet(Part):
    """Records heartbeats and GPU claims in Redis, and runs the leader's cleanup."""

    def birth(self) -> str:
        """Return a new ID for a worker process. The ID is greater than the IDs of all earlier processes."""
        seconds, micros = self._client.time()
        return f"{seconds * 1000 + micros // 1000:013d}-{secrets.token_hex(4)}"

    def heartbeat(
        self, worker: str, born: str, facts: Mapping[str, str | int | float], *, leaving: bool = False
    ) -> str:
        """Record a worker's heartbeat. Return `ok`, or the reason why the worker must stop taking work.

        The reason is `drain` if a user drains the worker, or `taken` if a later process uses its name. `born` is the ID
        that `birth` returned when the process started.
        """
        flat = [item for pair in facts.items() for item in pair]
        reply: bytes = self._functions.run("worker", worker, born, 0 if leaving else WORKER_TTL_MS, *flat)
        return reply.decode()

    def drain(self, worker: str, on: bool = True, actor: Actor = ANONYMOUS) -> bool:
        """Drain a worker: it finishes its work and takes no new work. `on=False` undoes this.

        Return False if the worker is unknown.
        """
        return self._functions.run_acknowledged_texts("drain", worker, int(on), *actor) == ["ok"]

    def claim(self, gpus: Sequence[str], worker: str, priority: str = "") -> Claimed:
        """Claim GPUs by their UUIDs, or renew the claims. Claim either all of the GPUs or none.

        A claim lasts GPU_TTL_MS, and PROGRAM_GPU_TTL_MS for runners. `priority` is the priority of the work that runs
        on these GPUs or waits for them; empty for none. If programs wait for a GPU, GPU workers get it only for work of
        a higher priority.
        """
        held, wanted, by = self._functions.run("claim", json.dumps(list(gpus)), worker, GPU_TTL_MS, priority)
        return Claimed(held=bool(held), wanted=wanted.decode(), by=by.decode())

    def give_up(self, gpus: Sequence[str], worker: str, priority: str = "") -> None:
        """Release the worker's claims to GPUs. For three seconds, programs can claim the GPUs first."""
        self._functions.run("claim", json.dumps(list(gpus)), worker, 0, priority)

    def lead(self, candidate: str) -> bool:
        """Acquire or renew the leadership for LEADER_TTL_MS milliseconds. Return True if the candidate is the
        leader.
        """
        return bool(self._functions.run("lead", candidate, LEADER_TTL_MS))

    def sweep(self, age_seconds: float = AGE_SECONDS, reserve_seconds: float = RESERVE_SECONDS) -> SweepCounts:
        """End overdue work, and repair the effects of crashes. One call does a limited amount of work."""
        reaped, returned, purged, more = self._functions.run(
            "sweep", json.dumps(queues.ALL), int(age_seconds * 1000), int(reserve_seconds * 1000)
        )
        return SweepCounts(reaped, returned, purged, bool(more))

    def wake(self) -> WakeCounts:
        """Notify jobs whose dependencies ended or were retried. One call notifies a limited number of jobs."""
        notified, more = self._functions.run("wake")
        return WakeCounts(notified, bool(more))
