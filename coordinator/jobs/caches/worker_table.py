"""Workers as a replica last read them: each is read again after its next heartbeat, and not before."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from jobs.store import Store
from jobs.store.fleet_reads import Heartbeats

#: A worker is kept for this many seconds after its last sign of life.
LOST_SECONDS = 3600
#: What changes a worker's hash without a heartbeat or a drain, such as a person with redis-cli, is seen this late.
KEPT_MS = 5000


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class StoredWorker:
    """A worker's hash as it was read; another object once it was read again."""

    name: str
    fields: Mapping[bytes, bytes]
    #: When it was read, in ms of Redis' clock.
    read_ms: float


@dataclass(frozen=True, kw_only=True)
class _Reading:
    """Result of a reading."""

    workers: Mapping[bytes, StoredWorker] = field(default_factory=dict)
    drains: bytes | None = None
    at_ms: float = 0.0


class WorkerTable:
    """The one copy of the workers that a replica keeps. Thread-safe: threads that read at once each read changes."""

    def __init__(self) -> None:
        self._seen = _Reading()

    def read(self, store: Store) -> tuple[list[tuple[StoredWorker, bool]], float]:
        """Return workers that were heard of within LOST_SECONDS by name, each with whether it lives, and the time.

        The time is Redis', in seconds since 1970.
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
    """Yield what need not be read again; after a step back of Redis' clock that is nothing."""
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
