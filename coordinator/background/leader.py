"""Periodic work of the leader. Every coordinator runs it; only the one that leads acts."""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable

from coordinator.background.aof import AofRewriter
from jobs import marks
from jobs.kinds import registry
from jobs.models import MarkKind
from jobs.store import Store
from jobs.store.fleet import AGE_SECONDS, RESERVE_SECONDS
from jobs.store.server import connection
from jobs.store.work import bells

log = logging.getLogger(__name__)

#: How often a round with more to do repeats SWEEP at most.
_REPEATS = 50
#: Ranges beyond an eighth more than the last joining left, from which on a mark is joined; rounds between two looks.
_JOIN_AT, _JOIN_EVERY = 64, 10
#: Rounds between two times that usage of old days is added up and unused libraries are deleted, and that stored bytes
#: are counted again.
_PRUNE_EVERY, _RECOUNT_EVERY = 3600, 600
#: Rounds between two times that bells' templates are put back, in case somebody flushed them, and the names of killed
#: workers are struck out.
_BELLS_EVERY = 60


class Leader:
    """Leads, or waits to lead. Calls `record` to store metrics after each round in which it leads."""

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
        self._me = uuid.uuid4().hex
        self._rounds = self._bells_in = 0
        self.leading = self._loaded = False
        #: Ranges that the last joining left, by mark.
        self._joined: dict[tuple[str, str], int] = {}

    def _aside(self, without: str, call: Callable[[], None]) -> bool:
        """Call what must not hold up the sweep when it fails, as it does in a full Redis. True: it succeeded."""
        try:
            call()
        except connection.Unreachable as error:
            log.warning("%s: %s", without, error)
        except Exception:
            log.exception(without)
        else:
            return True
        return False

    def round(self) -> None:
        """Take or keep the lead, and sweep if leading. A coordinator that does not reach Redis does not lead."""
        try:
            self._round()
        except connection.Unreachable:
            self.leading = False
            raise

    def _round(self) -> None:
        self._load_functions()
        self.leading = self._store.fleet.lead(self._me)
        if self._bells_in <= 0 and self._aside("bells were not put back", self._place_bells):
            self._bells_in = _BELLS_EVERY
        self._bells_in -= 1
        self._rounds += 1
        if self.leading:
            self._sweep()
            self._aside("shells of silent principals were not ended", self._end_attachments)
            self._aside("redis' append-only file was not rewritten", self._rewrite_aof)
            if self._rounds % _JOIN_EVERY == 0:
                self._join_marks()
            if self._rounds % _PRUNE_EVERY == 0:
                self._store.usage.prune()
                self._aside("unused functions were not deleted", self._delete_libraries)
            if self._rounds % _RECOUNT_EVERY == 1:
                self._aside("stored bytes were not counted again", self._recount)
            self._aside("figures were not written down", self._record)

    def _load_functions(self) -> None:
        """Load the functions once. If that fails and Redis lacks them, the next call fails and says why."""
        if not self._loaded:
            with contextlib.suppress(*connection.Unreachable):
                self._store.libraries.load()
                self._loaded = True

    def _end_attachments(self) -> None:
        self._store.attachments.sweep()

    def _rewrite_aof(self) -> None:
        self._aof.round()

    def _delete_libraries(self) -> None:
        if deleted := self._store.libraries.delete_unused():
            log.info("functions that no process uses were deleted", extra={"libraries": deleted})

    def _place_bells(self) -> None:
        bells.place_bells(self._store)
        bells.forget_dead_workers(self._store)

    def _recount(self) -> None:
        if tenants := self._store.stored_bytes.recount():
            log.info("stored bytes were counted again", extra={"tenants": len(tenants)})

    def _sweep(self) -> None:
        """Repeat SWEEP while there is more to do: all jobs of a worker that died come back at once."""
        calls = [self._store.fleet.sweep(self._age_seconds, self._reserve_seconds)]
        while calls[-1].more and len(calls) <= _REPEATS:
            calls.append(self._store.fleet.sweep(self._age_seconds, self._reserve_seconds))
        reaped, returned, purged, _ = map(sum, zip(*calls, strict=True))
        if reaped or returned or purged:
            did = {"slots_reaped": reaped, "jobs_returned": returned, "jobs_purged": purged}
            log.info("the leader's checks", extra=did)

    def _join_marks(self) -> None:
        for kind in registry.names():
            for name, mark in registry.definition(kind).mark_kinds.items():
                self.join_mark(kind, name, mark)

    def join_mark(self, kind: str, name: str, mark: MarkKind) -> None:
        """Join a mark's ranges once there are an eighth and 64 more than the last time left.

        Many that do not touch would be read again and again for nothing.
        """
        left = self._joined.get((kind, name), 0)
        if self._store.marks.count(kind, name) <= left + left // 8 + _JOIN_AT:
            return
        stored = self._store.marks.read(kind, name)
        joined = marks.joined(stored, mark)
        self._store.marks.replace(kind, name, stored, joined)
        self._joined[(kind, name)] = len(joined)
