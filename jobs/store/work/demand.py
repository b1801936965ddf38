"""Reads of waiting and running work. The leader computes the number of required workers from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jobs import queues
from jobs.store import keys, unreadable_entries
from jobs.store.server.functions import Part
from threads_protocol.states import JobState

#: Maximum number of waiting jobs that are read from all queues together.
#: The same limit applies to running jobs.
MOST_READ = 500
#: Minimum number of jobs that are read from each index.
_LEAST_READ = 5
#: Maximum number of tenants that are read per queue. Tenants with the least usage come first.
_TENANTS = 200
#: Fields of a job that describe its work and its limits.
FIELDS = (
    "state",
    "queue",
    "tenant",
    "kind",
    "mode",
    "load",
    "total",
    "done",
    "grain",
    "max_running",
    "small",
    "deferred",
)


@dataclass(frozen=True, kw_only=True)
class Demand:
    """Waiting and running work of the cluster at one time."""

    #: Time of the read in seconds since 1970, by Redis time.
    now: float
    #: Running jobs and jobs in slots of workers, each with the number of jobs that it represents.
    running: Sequence[tuple[str, tuple[Sequence[bytes | None], float]]] = ()
    #: Jobs that wait in queues, each with the number of jobs that it represents.
    waiting: Sequence[tuple[str, tuple[Sequence[bytes | None], float]]] = ()
    #: Number of jobs in each queue that wait for a worker that supports them.
    unsupported: Mapping[str, int] = field(default_factory=dict)
    #: Weight and limits of each tenant, encoded as weight|max_lanes|max_jobs.
    shares: Mapping[bytes, bytes] = field(default_factory=dict)
    #: Tenants that use all of their lanes. gpu:tenant means that today's GPU seconds are used up.
    capped: frozenset[str] = frozenset()
    #: Ratio of the measured speed to the kind's estimate, keyed by kind|mode|device.
    paces: Mapping[bytes, bytes] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _Index:
    """IDs of waiting and running jobs, and the keys of their indexes."""

    #: Random sample of the running jobs.
    running: Sequence[bytes]
    running_count: int
    #: Jobs that are in the slots of workers.
    held: frozenset[bytes]
    #: Redis keys of the indexes of waiting jobs.
    places: Sequence[str]
    unsupported: Sequence[str]


class DemandReads(Part):
    """Reads the demand for workers, and stores the number of workers that the leader computes."""

    def read(self) -> Demand:
        """Return the waiting and running work. This always takes six round trips to Redis."""
        pipe = self._pipe().time().hgetall(keys.PACE).hgetall(keys.SHARES).smembers(keys.CAPPED)
        (seconds, micros), paces, shares, capped = unreadable_entries.replies(pipe)
        index = self._index()
        waiting, unsupported = self._waiting(index)
        ids = sorted(index.held.union(index.running))
        represented = max(1.0, index.running_count / len(index.running)) if index.running else 1.0
        running = {job: 1.0 if job in index.held else represented for job in ids}
        return Demand(
            now=seconds + micros / 1e6,
            running=self._jobs(running),
            waiting=self._jobs({job: weight for job, weight in waiting.items() if job not in running}),
            unsupported=unsupported,
            shares=shares or {},
            paces=paces or {},
            capped=frozenset(name.decode(errors="replace") for name in capped or ()),
        )

    def _index(self) -> _Index:
        pipe = self._pipe()
        for state in (JobState.RUNNING, JobState.FINISHING):
            pipe.zrandmember(keys.in_state(state), MOST_READ).zcard(keys.in_state(state))
        pipe.hvals(keys.SLOT_JOBS).sunion(keys.UNSUPPORTED, keys.UNSUPPORTED_PROGRAMS)
        for queue in queues.ALL:
            pipe.zrange(keys.order(queue), 0, _TENANTS - 1)
        running, count, finishing, finishing_count, held, unsupported, *tenants = unreadable_entries.replies(pipe)
        return _Index(
            running=[*(running or ()), *(finishing or ())],
            running_count=(count or 0) + (finishing_count or 0),
            held=frozenset(text.partition(b"|")[0] for text in held or ()),
            places=[place for queue, names in zip(queues.ALL, tenants, strict=True) for place in _places(queue, names)],
            unsupported=[member.decode(errors="replace") for member in unsupported or ()],
        )

    def _waiting(self, index: _Index) -> tuple[dict[bytes, float], dict[str, int]]:
        """Return the waiting jobs and how many jobs each of them represents, and the number of unsupported jobs per
        queue.
        """
        pipe = self._pipe()
        for place in (*index.places, *map(keys.unsupported_member, index.unsupported)):
            pipe.zcard(place)
        counts = [count or 0 for count in unreadable_entries.replies(pipe)]
        unsupported: dict[str, int] = {}
        for member, count in zip(index.unsupported, counts[len(index.places) :], strict=True):
            queue = member.partition(":")[0]
            unsupported[queue] = unsupported.get(queue, 0) + count
        waiting = {place: count for place, count in zip(index.places, counts, strict=False) if count}
        return self._first(waiting), unsupported

    def _first(self, counts: Mapping[str, int]) -> dict[bytes, float]:
        """Return the first jobs of each index, and how many jobs each of them represents."""
        most = max(_LEAST_READ, MOST_READ // max(1, len(counts)))
        pipe = self._pipe()
        for place in counts:
            pipe.zrange(place, 0, most - 1)
        replies = unreadable_entries.replies(pipe) if counts else []
        return {
            job_id: max(1.0, count / len(ids))
            for count, ids in zip(counts.values(), replies, strict=True)
            for job_id in ids or ()
        }

    def _jobs(self, weights: Mapping[bytes, float]) -> list[tuple[str, tuple[Any, float]]]:
        """Return the ID and the fields of each job that exists."""
        pipe = self._pipe()
        for job_id in weights:
            pipe.hmget(keys.job("").encode() + job_id, *FIELDS)
        rows = unreadable_entries.replies(pipe) if weights else []
        stored = zip(weights.items(), rows, strict=True)
        return [(job_id.decode(errors="replace"), (row, weight)) for (job_id, weight), row in stored if row and row[0]]

    def scales(self) -> bytes | None:
        """Return the stored desired numbers of workers, or None if they have expired."""
        [stored] = unreadable_entries.replies(self._pipe().get(keys.DESIRED))
        return stored if stored is None else bytes(stored)

    def write_scales(self, text: str, seconds: int) -> None:
        """Store the desired numbers of workers, as JSON, for `seconds`. Only the leader calls this method."""
        self._client.set(keys.DESIRED, text, ex=seconds)


def _places(queue: str, tenants: Iterable[bytes] | None) -> list[str]:
    """Return the keys of the indexes of jobs that wait in a queue. With registered tenants, each tenant has an
    index.
    """
    names = [name.decode(errors="replace") for name in tenants or ()]
    return [keys.tenant_pending(queue, name) for name in names] or [keys.pending(queue)]
