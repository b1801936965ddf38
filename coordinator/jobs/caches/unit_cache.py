"""Cache of the units of programs. Reading the units of a large job takes a second of CPU time."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from coordinator.jobs import units
from coordinator.jobs.units import Units
from jobs.store.work.unit_reads import StoredUnits, UnitMark, UnitReads

#: Approximate maximum size of the cache in bytes.
#: Seconds without requests after which an entry is dropped.
MAX_BYTES, IDLE_SECONDS = 64 << 20, 60.0
#: Approximate size of a unit in bytes, without its value.
UNIT_BYTES = 300
#: Units of an active job whose reading takes over _COSTLY CPU seconds are cached for _WORTH times that duration.
_COSTLY, _WORTH = 0.05, 4.0


@dataclass(frozen=True)
class _CachedUnits:
    mark: UnitMark
    units: Units
    size: int
    #: CPU seconds that the read took.
    cost: float
    #: Start time of the read.
    began: float

    def is_valid_for(self, mark: UnitMark, now: float) -> bool:
        """Return True if the units are unchanged, or if they are recent and were expensive to read."""
        if mark == self.mark:
            return True
        lately = self.cost > _COSTLY and now - self.began < self.cost * _WORTH
        return lately and mark.decided == self.mark.decided


class UnitCache:
    """Caches the units of recently requested jobs. One thread at a time reads a job; other threads wait."""

    def __init__(self, reads: UnitReads, clock: Callable[[], float] = time.monotonic) -> None:
        self._reads = reads
        self._clock = clock
        self.entries: OrderedDict[str, tuple[float, _CachedUnits]] = OrderedDict()
        self._changing = threading.Lock()
        self._reading = [threading.Lock() for _ in range(16)]

    def get(self, job_id: str) -> Units | None:
        """Return the units of a job, or None if the job does not exist.

        Raises NotFound for a kind that runs no programs, and an error of Unreadable for corrupt data.
        """
        with self._reading[hash(job_id) % len(self._reading)]:
            mark, now = self._reads.mark(job_id), self._clock()
            kept = self._find(job_id, now)
            if kept is None or mark is None or not kept.is_valid_for(mark, now):
                kept = self._read(job_id, mark, now) if mark else None
                self._keep(job_id, kept, now)
            return kept.units if kept else None

    def _read(self, job_id: str, mark: UnitMark, now: float) -> _CachedUnits | None:
        began = time.thread_time()
        stored = self._reads.units(job_id)  # read after the mark, so that the next call notices later changes
        if stored is None:
            return None
        found = units.read_units(job_id, stored)
        return _CachedUnits(mark, found, _size(stored), time.thread_time() - began, now)

    def _find(self, job_id: str, now: float) -> _CachedUnits | None:
        with self._changing:
            while self.entries and next(iter(self.entries.values()))[0] < now - IDLE_SECONDS:
                self.entries.popitem(last=False)
            if job_id not in self.entries:
                return None
            kept = self.entries[job_id][1]
            self.entries[job_id] = now, kept
            self.entries.move_to_end(job_id)
            return kept

    def _keep(self, job_id: str, kept: _CachedUnits | None, now: float) -> None:
        with self._changing:
            self.entries.pop(job_id, None)
            if kept is None:
                return
            self.entries[job_id] = now, kept
            while len(self.entries) > 1 and sum(each.size for _, each in self.entries.values()) > MAX_BYTES:
                self.entries.popitem(last=False)


def _size(stored: StoredUnits) -> int:
    return len(stored.accumulator or b"") + sum(map(len, stored.parts)) + stored.total * UNIT_BYTES
