"""Cache of the workers' Redis hashes. A worker is read again only after its next heartbeat."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from jobs.store import Store
from jobs.store.fleet_reads import Heartbeats

#: Seconds for which a worker stays listed after its last heartbeat.
LOST_SECONDS = 3600
#: Maximum age of a cached hash in milliseconds. A change made with redis-cli becomes visible after this time.
KEPT_MS = 5000


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class StoredWorker:
    """Redis hash of a worker, as read at one time."""

    name: str
    fields: Mapping[bytes, bytes]
    #: Time of the read in milliseconds, by Redis' clock.
    read_ms: float


@dataclass(frozen=True, kw_only=True)
class _Reading:
    """Result of a read of all workers."""

    workers: Mapping[bytes, StoredWorker] = field(default_factory=dict)
    drains: bytes | None = None
    at_ms: float = 0.0


class WorkerTable:
    """Thread-safe cache of the workers for one coordinator."""

    def __init__(self) -> None:
        self._seen = _Reading()

    def read(self, store: Store) -> tuple[list[tuple[StoredWorker, bool]], float]:
        """Return the known workers in order of name, with a flag for each live worker; and the current time.

        Workers are known for LOST_SECONDS after their last heartbeat. The time is in seconds since 1970, by Redis'
        clock.
        """
        seen, now = self._seen, store.clock.now()
        heard = store.fleet_reads.heartbeats(now, now - LOST_SECONDS, math.floor(seen.at_ms))
        kept = dict(_filter_unchanged(seen, heard))
        changed = [name for name in heard.workers if name not in kept]
        kept.update(_read(store, changed, heard.now_ms))
        self._seen = _Reading(workers=kept, drains=heard.drains, at_ms=heard.now_ms)
        known = [(worker, name in heard.living) for name, worker in kept.items() if worker.fields]
        return sorted(known, key=lambda one: one[0].name), heard.now_ms / 1000


def _filter_unchanged(seen: _Reading, heard: Heartbeats) -> Iterator[tuple[bytes, StoredWorker]]:
    """Yield the cached workers that are still valid. If Redis' clock has stepped back, no worker is valid."""
    if seen.drains != heard.drains or heard.now_ms < seen.at_ms:
        return
    oldest = heard.now_ms - KEPT_MS
    for name in heard.workers:
        worker = seen.workers.get(name)
        if worker and name not in heard.latest and worker.read_ms > oldest:
            yield name, worker


def _read(store: Store, names: Sequence[bytes], now_ms: float) -> Iterator[tuple[bytes, StoredWorker]]:
    for name, fields in zip(names, store.fleet_reads.workers(names), strict=True):
        yield name, StoredWorker(name=name.decode(errors="replace"), fields=fields, read_ms=now_ms)
