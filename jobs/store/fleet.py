"""Heartbeats, drains, claims to GPUs, leadership, and the leader's sweep."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jobs import queues
from jobs.models import ANONYMOUS, Actor
from jobs.store.server.functions import GPU_TTL_MS, WORKER_TTL_MS, Part
from jobs.store.work.lease_store import Claimed

#: With the round in which others ask for the lead, it moves within five seconds.
LEADER_TTL_MS = 3000
#: Seconds of waiting after which a job gets turns that are those of higher priorities.
AGE_SECONDS = 300.0
#: Seconds for which a program waits for room before a runner is kept for it.
RESERVE_SECONDS = 60.0


class Swept(NamedTuple):
    """Counts of what a sweep did."""

    slots_reaped: int
    jobs_returned: int
    jobs_purged: int
    #: One of them reached the most of a call.
    more: bool


class Woken(NamedTuple):
    """Dependent jobs that were released, skipped or brought back."""

    notified: int
    #: There is more to do.
    more: bool


class Fleet(Part):
    """Writes what workers say of themselves, and what the leader does for all."""

    def birth(self) -> str:
        """Return what tells a worker's process from others of its name; of a later one it sorts later.

        By Redis' clock.
        """
        seconds, micros = self._client.time()
        return f"{seconds * 1000 + micros // 1000:013d}-{secrets.token_hex(4)}"

    def heartbeat(
        self, worker: str, born: str, facts: Mapping[str, str | int | float], *, leaving: bool = False
    ) -> str:
        """Write a worker's sign of life and return one of three words.

        ok; drain: finish and take nothing new; taken: a later process has this name. `born` is what `birth` gave when
        the process began.
        """
        flat = [item for pair in facts.items() for item in pair]
        reply: bytes = self._functions.run("worker", worker, born, 0 if leaving else WORKER_TTL_MS, *flat)
        return reply.decode()

    def drain(self, worker: str, on: bool = True, actor: Actor = ANONYMOUS) -> bool:
        """Let a worker finish and take nothing new, or take that back; False when nobody knows the worker."""
        return self._functions.kept_words("drain", worker, int(on), *actor) == ["ok"]

    def claim(self, gpus: Sequence[str], worker: str, priority: str = "") -> Claimed:
        """Take or renew all of some GPUs, by UUID, or none of them.

        For GPU_TTL_MS, and for programs, which are what a runner claims GPUs for, PROGRAM_GPU_TTL_MS. `priority`: of
        what is computed there, or waits for it; empty for nothing. A GPU for which programs wait is refused to a GPU
        worker that computes nothing of a higher priority.
        """
        held, wanted, by = self._functions.run("claim", json.dumps(list(gpus)), worker, GPU_TTL_MS, priority)
        return Claimed(held=bool(held), wanted=wanted.decode(), by=by.decode())

    def give_up(self, gpus: Sequence[str], worker: str, priority: str = "") -> None:
        """End claims, as far as they are still this worker's. Programs have three seconds for the next claim."""
        self._functions.run("claim", json.dumps(list(gpus)), worker, 0, priority)

    def lead(self, candidate: str) -> bool:
        """Take or renew the leadership for LEADER_TTL_MS."""
        return bool(self._functions.run("lead", candidate, LEADER_TTL_MS))

    def sweep(self, age_seconds: float = AGE_SECONDS, reserve_seconds: float = RESERVE_SECONDS) -> Swept:
        """End what is overdue and put right what crashes left, a limited amount a call.

        The head of a queue that has waited for `age_seconds` gets one turn in eight, whatever its priority. A program
        that has waited for room on a runner for `reserve_seconds` has one kept for it; 0: none has.
        """
        reaped, returned, purged, more = self._functions.run(
            "sweep", json.dumps(queues.ALL), int(age_seconds * 1000), int(reserve_seconds * 1000)
        )
        return Swept(reaped, returned, purged, bool(more))

    def wake(self) -> Woken:
        """Notify jobs that depend on others which have ended or are tried again, a limited number a call."""
        notified, more = self._functions.run("wake")
        return Woken(notified, bool(more))
