"""Elect the leader among the coordinators, and do its maintenance work."""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable
from functools import partial

from coordinator.background.aof import AofRewriter
from jobs import marks
from jobs.kinds import registry
from jobs.models import MarkKind
from jobs.store import Store
from jobs.store.fleet import AGE_SECONDS, RESERVE_SECONDS
from jobs.store.server import connection
from jobs.store.work import wakeups

log = logging.getLogger(__name__)

#: Maximum number of cleanup calls to Redis per round.
_MAX_REPEATS = 50
#: Minimum number of new ranges before a mark is merged again.
#: Number of rounds between two checks of the marks.
_MERGE_AT, _MERGE_EVERY = 64, 10
#: Number of rounds between two prunings of usage and unused libraries.
#: Number of rounds between two recounts of stored bytes.
PRUNE_EVERY, _RECOUNT_EVERY = 3600, 600
#: Number of rounds between two repairs of the wake-up signals.
_WAKE_UPS_EVERY = 60


class Leader:
    """Competes for the leadership, and does the leader's maintenance work.

    The leader calls `record` after each round.
    """

    def __init__(
        self,
        store: Store,
        record: Callable[[], None] = lambda: None,
        *,
        age_seconds: float = AGE_SECONDS,
        reserve_seconds: float = RESERVE_SECONDS,
    ) -> None:
        self._record = record
        self._store = store
        self._aof = AofRewriter(store.aof)
        self._age_seconds, self._reserve_seconds = age_seconds, reserve_seconds
        self._id = uuid.uuid4().hex
        self._rounds = self._wake_ups_in = 0
        self.is_leading = self._is_loaded = False
        #: Number of ranges after the last merge, by kind and name of the mark.
        self._merged: dict[tuple[str, str], int] = {}

    def _try(self, failure: str, call: Callable[[], None]) -> bool:
        """Call a function and return True if it succeeds. Log a failure, so that the leader's next task still runs.

        For example, writes fail if Redis is full.
        """
        try:
            call()
        except connection.Unreachable as error:
            log.warning("%s: %s", failure, error)
        except Exception:
            log.exception(failure)
        else:
            return True
        return False

    def run_once(self) -> None:
        """Acquire or renew the leadership, and do the leader's work. Give up the leadership if Redis is unreachable."""
        try:
            self._run_once()
        except connection.Unreachable:
            self.is_leading = False
            raise

    def _run_once(self) -> None:
        self._load_functions()
        self.is_leading = self._store.fleet.lead(self._id)
        if self._wake_ups_in <= 0 and self._try("wake-up signals were not restored", self._restore_wake_ups):
            self._wake_ups_in = _WAKE_UPS_EVERY
        self._wake_ups_in -= 1
        self._rounds += 1
        if self.is_leading:
            self._sweep()
            self._try("idle attachments were not ended", self._end_attachments)
            self._try("redis' append-only file was not rewritten", self._rewrite_aof)
            if self._rounds % _MERGE_EVERY == 0:
                self._merge_marks()
            if self._rounds % PRUNE_EVERY == 0:
                self._try("old usage was not deleted", self._store.usage.prune)
                self._try("unused functions were not deleted", self._delete_libraries)
            if self._rounds % _RECOUNT_EVERY == 1:
                self._try("stored bytes were not recounted", self._recount)
            self._try("metrics were not recorded", self._record)

    def _load_functions(self) -> None:
        """Load the Redis functions, unless this process has already loaded them."""
        if not self._is_loaded:
            with contextlib.suppress(*connection.Unreachable):
                self._store.libraries.load()
                self._is_loaded = True

    def _end_attachments(self) -> None:
        self._store.attachments.sweep()

    def _rewrite_aof(self) -> None:
        self._aof.run_once()

    def _delete_libraries(self) -> None:
        if deleted := self._store.libraries.delete_unused():
            log.info("unused functions were deleted", extra={"libraries": deleted})

    def _restore_wake_ups(self) -> None:
        wakeups.create_wakeup_job(self._store)
        wakeups.remove_dead_workers(self._store)

    def _recount(self) -> None:
        if tenants := self._store.stored_bytes.recount():
            log.info("stored bytes were recounted", extra={"tenants": len(tenants)})

    def _sweep(self) -> None:
        """Return the jobs of dead workers to their queues, and purge expired jobs, until no work is left."""
        calls = [self._store.fleet.sweep(self._age_seconds, self._reserve_seconds)]
        while calls[-1].more and len(calls) <= _MAX_REPEATS:
            calls.append(self._store.fleet.sweep(self._age_seconds, self._reserve_seconds))
        reaped, returned, purged, _ = map(sum, zip(*calls, strict=True))
        if reaped or returned or purged:
            counts = {"slots_reaped": reaped, "jobs_returned": returned, "jobs_purged": purged}
            log.info("the leader swept slots and jobs", extra=counts)

    def _merge_marks(self) -> None:
        for kind in registry.names():
            for name, mark in registry.definition(kind).mark_kinds.items():
                self._try(f"the mark {name} of {kind} was not merged", partial(self.merge_mark, kind, name, mark))

    def merge_mark(self, kind: str, name: str, mark: MarkKind) -> None:
        """Merge the adjacent ranges of a mark if their number has grown by 1/8 and 64 since the last merge.

        The threshold grows with the number of remaining ranges, because reading ranges that cannot be merged is
        useless.
        """
        remaining = self._merged.get((kind, name), 0)
        if self._store.marks.count(kind, name) <= remaining + remaining // 8 + _MERGE_AT:
            return
        stored = self._store.marks.read(kind, name)
        merged = marks.merge_marks(stored, mark)
        self._store.marks.replace(kind, name, stored, merged)
        self._merged[(kind, name)] = len(merged)
