"""The leader's round, each second. Every coordinator runs one; whoever holds `ct:leader` acts."""

from __future__ import annotations

import logging
import operator
import threading
import time
import uuid
from collections.abc import Callable

from jobs import queues
from jobs.kinds import registry
from jobs.models import MarkKind
from jobs.store import bells, leases, marks
from jobs.store.leases import Leases

log = logging.getLogger(__name__)

ROUND_SECONDS = 1.0
#: AUDIT ends this many slots, puts this many jobs back and purges this many at most; a round with more to do repeats it
#: this often.
_FULL, _REPEATS = (100, 100, 50), 50
#: A mark of more ranges than this is joined, this often.
_JOIN_AT, _JOIN_EVERY = 64, 10
#: The bells' templates are put back this often, in case somebody flushed them, and killed workers' names struck out.
_BELLS_EVERY = 60


class Janitor(threading.Thread):
    def __init__(self, book: Leases, record: Callable[[], None] = lambda: None) -> None:
        super().__init__(name="janitor", daemon=True)
        self._record = record
        self._book = book
        self._me = uuid.uuid4().hex
        self._ended = threading.Event()
        self._rounds = self._bells_in = 0
        self.leading = False
        #: Ranges that the last joining left, by mark.
        self._joined: dict[str, int] = {}

    def run(self) -> None:
        due = time.monotonic() + ROUND_SECONDS
        while not self._ended.wait(max(0.0, due - time.monotonic())):
            due = max(due + ROUND_SECONDS, time.monotonic())
            try:
                self.round()
            except leases.Unreachable as error:
                self.leading = False
                log.warning("no audit: redis cannot be reached: %s", error)
            except Exception:
                log.exception("the audit failed")

    def _aside(self, without: str, call: Callable[[], None]) -> bool:
        """Does what must not hold up what moves work when it fails, as it does in a full Redis. True: it was done."""
        try:
            call()
        except leases.Unreachable as error:
            log.warning("%s: %s", without, error)
        except Exception:
            log.exception(without)
        else:
            return True
        return False

    def round(self) -> None:
        """One look: take or keep the lead, and audit when leading."""
        self.leading = self._book.lead(self._me)
        if self._bells_in <= 0 and self._aside("bells were not put back", self._place_bells):
            self._bells_in = _BELLS_EVERY
        self._bells_in -= 1
        self._rounds += 1
        if self.leading:
            self._audit()
            if placed := self._book.reindex():
                log.warning("an index was put aside and built anew", extra={"jobs": placed})
            if self._rounds % _JOIN_EVERY == 0:
                self._join_marks()
            self._aside("figures were not written down", self._record)

    def _place_bells(self) -> None:
        bells.place_bells(self._book.client)
        bells.forget_dead_workers(self._book.client)

    def _audit(self) -> None:
        """Repeats AUDIT while it does as much as it may: all jobs of a worker that died come back at once."""
        found = [self._book.audit(queues.ALL)]
        while any(map(operator.ge, found[-1], _FULL)) and len(found) <= _REPEATS:
            found.append(self._book.audit(queues.ALL))
        reaped, returned, purged = map(sum, zip(*found, strict=True))
        if reaped or returned or purged:
            log.info("audit", extra={"slots_reaped": reaped, "jobs_returned": returned, "jobs_purged": purged})

    def _join_marks(self) -> None:
        for kind in registry.names():
            definition = registry.marking(kind)
            for name, mark in (definition.MARKS if definition else {}).items():
                self._join(marks.where(kind, name), name, mark)

    def _join(self, where: str, name: str, mark: MarkKind) -> None:
        """Joins a mark's ranges once there are an eighth and 64 more than the last time left: many that do not touch
        would be read again and again for nothing."""
        left = self._joined.get(where, 0)
        if self._book.count_marks(where) <= left + left // 8 + _JOIN_AT:
            return
        readable = marks.read(name, self._book.marks(where))
        found = marks.rows(marks.joined(readable, mark))
        self._joined[where] = len(found)
        self._book.replace_marks(where, list(marks.rows(readable)), found)

    def stop(self) -> None:
        self._ended.set()
