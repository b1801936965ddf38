"""Reads of workers and queues from Redis, in one or two round trips each.

A key of the wrong type counts as missing and is recorded in `unreadable_entries`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence, Set
from typing import NamedTuple

from jobs import queues
from jobs.models import DEFAULT_TENANT, Device
from jobs.store import keys, unreadable_entries
from jobs.store.server.functions import Part

#: Maximum number of tenants that are read per queue. Tenants with the least usage come first.
_TENANTS = 200


class Heartbeats(NamedTuple):
    """Names of known and live workers, and of workers whose record may have changed."""

    #: Workers with a heartbeat after `since`, in any order.
    workers: Sequence[bytes]
    living: Set[bytes]
    #: Workers with a heartbeat after `lately_ms`.
    latest: Set[bytes]
    #: Counter of changes to draining, which modify a worker's record between heartbeats.
    drains: bytes | None
    #: Redis time in milliseconds since 1970.
    now_ms: float


class LastHeard(NamedTuple):
    """Time of a worker's last heartbeat, and whether the worker counts as dead."""

    #: Redis time in milliseconds since 1970, or 0 if unknown.
    seen_ms: int
    #: True if the worker counts as dead.
    lost: bool


class Load(NamedTuple):
    """Queued and running work, and the data for estimating its duration."""

    #: Milliseconds of queued and running work for a single lane, keyed by queue.
    work: Mapping[bytes, bytes]
    #: Ratio of the measured speed to the kind's estimate, keyed by kind|mode|device.
    paces: Mapping[bytes, bytes]
    #: Number of jobs that workers can take now, keyed by queue and tenant.
    waiting: Mapping[str, Mapping[str, int]]
    #: Weight and limits of each tenant, encoded as weight|max_lanes|max_jobs.
    shares: Mapping[bytes, bytes]


class QueueHead(NamedTuple):
    """First job and length of one index of waiting jobs."""

    queue: str
    #: Number of jobs in this index.
    depth: int
    #: Job that has waited longest in this index, or empty if the index is empty.
    first: str


class FleetReads(Part):
    """Reads workers and queues from Redis."""

    def heartbeats(self, now: float, since: float, lately_ms: float) -> Heartbeats:
        """Return the workers with heartbeats after `since` and `lately_ms`, and the workers that are alive at `now`.

        `now` and `since` are in seconds since 1970, `lately_ms` is in milliseconds.
        """
        pipe = self._pipe().time().get(keys.DRAINS)
        pipe.zrangebyscore(keys.NODES, since * 1000, "+inf").zrangebyscore(keys.WORKERS, f"({now * 1000}", "+inf")
        pipe.zrangebyscore(keys.NODES, lately_ms, "+inf")
        (seconds, micros), drains, known, living, latest = unreadable_entries.replies(pipe)
        return Heartbeats(
            workers=known or (),
            living=frozenset(living or ()),
            latest=frozenset(latest or ()),
            drains=drains,
            now_ms=seconds * 1000 + micros / 1000,
        )

    def living(self) -> list[bytes]:
        """Return the names of all live workers."""
        pipe = self._pipe().time().zrange(keys.WORKERS, 0, -1, withscores=True)
        (seconds, micros), known = unreadable_entries.replies(pipe)
        return [name for name, until in known or () if until > seconds * 1000 + micros / 1000]

    def workers(self, names: Sequence[bytes]) -> list[Mapping[bytes, bytes]]:
        """Return the record of each worker. The record of a worker that does not exist is empty."""
        pipe = self._pipe()
        for name in names:
            pipe.hgetall(keys.worker("").encode() + name)
        return [fields or {} for fields in unreadable_entries.replies(pipe)] if names else []

    def last_heard(self, names: Iterable[str]) -> dict[str, LastHeard]:
        """Return the last heartbeat of each worker that has a readable record."""
        asked = sorted(set(names))
        pipe = self._pipe()
        for name in asked:
            pipe.zscore(keys.WORKERS, name).hget(keys.worker(name), "seen")
        *replies, (seconds, micros) = unreadable_entries.replies(pipe.time())
        now = seconds * 1000 + micros // 1000
        stored = zip(asked, zip(replies[::2], replies[1::2], strict=True), strict=True)
        return dict(unreadable_entries.readable("worker", stored, lambda name, pair: (name, _last_heard(pair, now))))

    def load(self) -> Load:
        """Return the current load of the cluster, in one or two round trips."""
        pipe = self._pipe().hgetall(keys.LOAD).hgetall(keys.PACE).hgetall(keys.SHARES).smembers(keys.CAPPED)
        for queue in queues.ALL:
            pipe.zcard(keys.pending(queue)).zrange(keys.order(queue), 0, _TENANTS - 1)
        work, paces, shares, capped, *replies = unreadable_entries.replies(pipe)
        waiting = {queue: {DEFAULT_TENANT: jobs} for queue, jobs in zip(queues.ALL, replies[::2], strict=True) if jobs}
        if shares:
            names = {
                queue: [name for name in order or () if not _is_capped(queue, name, capped or ())]
                for queue, order in zip(queues.ALL, replies[1::2], strict=True)
            }
            waiting = self._waiting_by_tenant(names)
        return Load(work or {}, paces or {}, waiting, shares or {})

    def _waiting_by_tenant(self, names: Mapping[str, Sequence[bytes]]) -> dict[str, dict[str, int]]:
        pipe = self._pipe()
        places = [(queue, name.decode(errors="replace")) for queue, several in names.items() for name in several]
        for queue, name in places:
            pipe.zcard(keys.tenant_pending(queue, name))
        waiting: dict[str, dict[str, int]] = {}
        for (queue, name), jobs in zip(places, unreadable_entries.replies(pipe) if places else (), strict=True):
            waiting.setdefault(queue, {})[name] = jobs or 0
        return waiting

    def queue_heads(self) -> list[QueueHead]:
        """Return the length and the first job of each index of waiting jobs. A queue can have several indexes."""
        [members] = unreadable_entries.replies(self._pipe().sunion(keys.UNSUPPORTED, keys.UNSUPPORTED_PROGRAMS))
        unsupported = [member.decode(errors="replace") for member in members or ()]
        places = [(queue, keys.pending(queue)) for queue in queues.ALL]
        places += [(member.partition(":")[0], keys.unsupported_member(member)) for member in unsupported]
        pipe = self._pipe()
        for _, place in places:
            pipe.zcard(place).zrange(place, 0, 0)
        replies = unreadable_entries.replies(pipe)
        return [
            QueueHead(queue, depth or 0, ids[0].decode(errors="replace") if ids else "")
            for (queue, _), depth, ids in zip(places, replies[::2], replies[1::2], strict=True)
        ]

    def count_wakeups(self) -> dict[str, int]:
        """Return the number of wake-ups in each queue."""
        pipe = self._pipe()
        for queue in queues.ALL:
            pipe.llen(keys.rq_queue(queue))
        return dict(zip(queues.ALL, pipe.execute(), strict=True))


def _last_heard(stored: tuple[float | None, bytes | None], now: int) -> LastHeard:
    expiry, seen = stored
    return LastHeard(int(seen or 0), expiry is None or expiry <= now)


def _is_capped(queue: str, tenant: bytes, capped: Container[bytes]) -> bool:
    """Return True if a limit on lanes or GPU seconds prevents all jobs of a tenant in a queue."""
    return tenant in capped or (Device(queue.partition(".")[0]) is Device.GPU and b"gpu:" + tenant in capped)
