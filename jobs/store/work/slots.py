"""Slots: the current job of each worker, and the facts about a job that its lanes need."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from jobs import queues
from jobs.hosts.labels import as_argument
from jobs.hosts.requirements import Offer
from jobs.models import Device, Spec
from jobs.store import keys, repairs
from jobs.store.server.connection import Unreadable, wrong_type
from jobs.store.server.functions import LEASE_TTL_MS, SLOT_TTL_MS, Part
from jobs.store.work import lease_tokens

#: Maximum number of small jobs per lane that a worker takes in one call.
TAKE = 32
#: Number of items that describe a small job in Redis' reply to a request for work.
_WORDS = 6


@dataclass(frozen=True, kw_only=True)
class Held:
    """Reply to a request for work, with one job. The job is in the worker's slot until the slot ends."""

    job_id: str


@dataclass(frozen=True, kw_only=True)
class JobFacts:
    """Facts about a job that a lane needs to compute it."""

    job_id: str
    kind: str
    spec: Spec
    queue: str
    total: int
    #: Expected rate of one lane in units per second, from the kind's estimate and earlier measurements.
    expected_rate: float
    #: Rate of one lane in units per second, according to the kind's estimate.
    nominal_rate: float
    #: Tenant of the job, or empty for a small job.
    tenant: str = ""
    priority: str = ""
    #: W3C traceparent of the job. Empty for small jobs and for jobs that are not traced.
    traceparent: str = ""
    #: W3C tracestate of the job.
    tracestate: str = ""
    #: ID of the API token that submitted the job, or empty.
    user: str = ""


@dataclass(frozen=True, kw_only=True)
class Taken:
    """Reply to a request for work, with small jobs. Each job is leased completely."""

    jobs: tuple[tuple[str, str], ...]
    facts: tuple[JobFacts, ...]


@dataclass(frozen=True, kw_only=True)
class Description:
    """Kind, version and specification of a job."""

    kind: str
    #: Version of the kind's computation.
    version: str
    #: Specification as JSON.
    spec: bytes


class Slots(Part):
    """Assigns, extends and ends the slots of workers in Redis."""

    def next(
        self,
        worker: str,
        queues: Iterable[str],
        *,
        popped: str = "",
        lanes: int = 1,
        take: int = TAKE,
        kinds: Mapping[str, int] | None = None,
        offer: Offer | None = None,
        owner: str = "",
        labels: Sequence[str] | None = None,
        replicas: bool = False,
    ) -> Held | Taken | str:
        """End the worker's slot and take its best pending job, or up to `take` small jobs per lane.

        Otherwise, return `none` (no work) or `draining` (the worker must not work).

        `kinds` is the supported version of each kind's model; None means all versions. `offer` contains the free
        resources of a runner, and optionally the only tenant whose jobs it accepts. `popped` is the queue of the
        wake-up that was just popped from RQ. `owner` is a prefix for lease tokens. `labels` are the labels of the
        worker's host; None means the labels in the worker's record. `replicas` is True for a runner without a free
        slot, which accepts only replicas of services.
        """
        names = list(queues)
        versions = "" if kinds is None else json.dumps(dict(kinds))
        free = "" if offer is None else json.dumps(dict(offer))
        how, *rest = self._functions.run(
            "next",
            worker,
            popped,
            lanes,
            LEASE_TTL_MS,
            SLOT_TTL_MS,
            json.dumps(names),
            owner + lease_tokens.new(),
            take,
            versions,
            free,
            as_argument(labels),
            int(replicas),
        )
        if how == b"hold":
            return Held(job_id=rest[0].decode())
        if how != b"take":
            return str(how.decode())
        taken = self._taken(rest)
        if taken.jobs:
            return taken
        return self.next(
            worker,
            names,
            lanes=lanes,
            take=take,
            kinds=kinds,
            offer=offer,
            owner=owner,
            labels=labels,
            replicas=replicas,
        )

    def _taken(self, words: list[Any]) -> Taken:
        """Parse the small jobs that a worker has leased. Jobs with an unreadable specification fail and are omitted."""
        readable = []
        for at in range(0, len(words), _WORDS):
            job, token, kind, spec, total, est_ms = words[at : at + _WORDS]
            try:
                facts = _make_facts(job.decode(), kind.decode(), spec, "", int(total), int(est_ms))
                readable.append((facts, token.decode()))
            except Unreadable as error:
                repairs.quarantine(self._functions, job, f"cannot read its spec: {error}")
        return Taken(
            jobs=tuple((facts.job_id, token) for facts, token in readable), facts=tuple(facts for facts, _ in readable)
        )

    def hold(self, worker: str) -> bool:
        """Extend the slot of a worker. Return False if the worker has no slot."""
        return bool(self._functions.run("hold", worker, SLOT_TTL_MS))

    def leave(self, worker: str) -> None:
        """End the slot of a worker."""
        self._functions.run("leave", worker)

    def held(self, worker: str) -> str:
        """Return the job in the worker's slot, or empty if the worker has no slot."""
        reply: bytes | None = self._client.hget(keys.SLOT_JOBS, worker)
        return (reply or b"").decode(errors="replace").rpartition("|")[0]

    def has_computed(self, worker: str, job: str) -> bool:
        """Return True if a job is finishing and the worker computed some of its units."""
        fields = [f"use|{device}|{worker}|units" for device in Device if device is not Device.ANY]
        state, *units = self._client.hmget(keys.job(job), "state", *fields)
        return bool(state == b"finishing" and any(units))

    def described(self, jobs: Sequence[str]) -> list[Description | None]:
        """Return the kind, version and specification of each job. The entry of a missing or unreadable job is None."""
        pipe = self._pipe()
        for job in jobs:
            pipe.hmget(keys.job(job), "kind", "version", "spec")
        return [_parse_description(row) for row in pipe.execute(raise_on_error=False)]

    def anything(self) -> bool:
        """Return False if there is no work for any worker now."""
        places = [place for queue in queues.ALL for place in (keys.pending(queue), keys.holding(queue))]
        return bool(self._client.exists(*places, keys.UNSUPPORTED, keys.UNSUPPORTED_PROGRAMS))

    def facts(self, jobs: Sequence[str], device: str) -> list[JobFacts | None]:
        """Return the facts that lanes of a device need about each job. The entry of a missing or broken job is None."""
        pipe = self._pipe()
        for job in jobs:
            pipe.hmget(
                keys.job(job),
                *("kind", "spec", "queue", "total", "est_ms", "mode", "tenant", "traceparent", "tracestate", "token"),
            )
        pipe.hgetall(keys.PACE)
        *rows, paces = pipe.execute(raise_on_error=False)
        return [self._facts(job, row, paces, device) for job, row in zip(jobs, rows, strict=True)]

    def _facts(self, job: str, row: Any, paces: Any, device: str) -> JobFacts | None:
        """Return the facts about a job, or None if it is missing or unreadable. An unreadable job fails."""
        for reply in (row, paces):
            if isinstance(reply, Exception) and not wrong_type(reply):
                raise reply
        try:
            return _facts(job, row, {} if isinstance(paces, Exception) else paces, device)
        except Unreadable as error:
            repairs.quarantine(self._functions, job, f"cannot read its spec: {error}")
            return None

    def waiting(self, listened: Iterable[str]) -> list[int]:
        """Return the number of pending jobs in each queue of `listened`."""
        pipe = self._pipe()
        for queue in listened:
            pipe.zcard(keys.pending(queue))
        return cast(list[int], pipe.execute())

    def unsupported(self) -> list[str]:
        """Return the kinds of waiting jobs, except programs, that the last worker in their queue does not compute."""
        members = cast("set[bytes]", self._client.smembers(keys.UNSUPPORTED))
        return sorted({member.decode().partition(":")[2].partition("|")[0] for member in members})


def _parse_description(row: Any) -> Description | None:
    if isinstance(row, Exception) or row[0] is None or row[2] is None:
        return None
    return Description(kind=row[0].decode(errors="replace"), version=(row[1] or b"").decode(), spec=row[2])


def _facts(job: str, row: list[bytes | None], paces: dict[bytes, bytes], device: str) -> JobFacts | None:
    if row[0] is None:
        return None
    kind, spec, queue, total, est_ms, mode, tenant, *place = (value.decode() if value else "" for value in row)
    pace = _pace(paces.get(f"{kind}|{mode}|{device}".encode()))
    facts = _make_facts(job, kind, spec, queue, int(total), int(est_ms), pace)
    return replace(
        facts,
        tenant=tenant,
        priority=queue.partition(".")[2],
        traceparent=place[0],
        tracestate=place[1],
        user=place[2],
    )


def _pace(stored: bytes | None) -> float:
    """Return the stored ratio of measured speed to the kind's estimate, or 1 if there is no valid one."""
    with contextlib.suppress(ValueError):
        pace = float(stored or 1.0)
        return pace if 0 < pace < float("inf") else 1.0
    return 1.0


def _make_facts(
    job: str, kind: str, spec: str | bytes, queue: str, total: int, est_ms: int, pace: float = 1.0
) -> JobFacts:
    nominal = total / max(est_ms / 1000, 1e-3)
    return JobFacts(
        job_id=job,
        kind=kind,
        spec=json.loads(spec),
        queue=queue,
        total=total,
        expected_rate=nominal * pace,
        nominal_rate=nominal,
    )
