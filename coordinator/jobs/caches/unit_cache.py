"""Units of programs as they were read last: reading those of a large job takes a second of a core."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from coordinator.jobs import units
from coordinator.jobs.units import Units
from jobs.store.work.unit_reads import StoredUnits, UnitMark, UnitReads

#: Bytes of what is kept, about, and seconds after which what nobody asked for is dropped.
MAX_BYTES, IDLE_SECONDS = 64 << 20, 60.0
#: About how many bytes a unit takes, beside its value.
UNIT_BYTES = 300
#: Units that took longer to read than this many seconds of a core are shown again for _WORTH times as long while their
#: job moves on, so that all readers together take at most a fifth of a core for a job.
_COSTLY, _WORTH = 0.05, 4.0


@dataclass(frozen=True)
class _CachedUnits:
    mark: UnitMark
    units: Units
    size: int
    #: Seconds of a core that reading took, and when it began.
    cost: float
    began: float

    def is_valid_for(self, mark: UnitMark, now: float) -> bool:
        """Return True where nothing has changed, or little and a moment ago."""
        if mark == self.mark:
            return True
        lately = self.cost > _COSTLY and now - self.began < self.cost * _WORTH
        return lately and mark.decided == self.mark.decided


class UnitCache:
    """Units of the jobs that were asked for last. Each job is read by one thread at a time; others wait for it."""

    def __init__(self, reads: UnitReads, clock: Callable[[], float] = time.monotonic) -> None:
        self._reads = reads
        self._clock = clock
        self.entries: OrderedDict[str, tuple[float, _CachedUnits]] = OrderedDict()
        self._changing = threading.Lock()
        self._reading = [threading.Lock() for _ in range(16)]

    def get(self, job_id: str) -> Units | None:
        """Return where the units of a job stand; None for one that does not exist.

        NotFound for a kind that runs no programs. One of Unreadable for what is broken.
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
        stored = self._reads.units(job_id)  # after the mark: what changes between the two is noticed the next time
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
