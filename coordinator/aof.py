"""Rewriting of Redis' append-only file once after each start of Redis. Only the leader asks for it.

Redis 6.2 and 7.0 that start with a file torn inside a transaction leave the beginning of that transaction in it, and
their next start executes that beginning: half a script (docs/durability.md). A rewritten file holds no such beginning.
"""

from __future__ import annotations

import logging

from jobs.store.aof import Aof, RewriteRefused

log = logging.getLogger(__name__)

#: Rounds, about seconds, between two requests when Redis refused one or failed.
RETRY_ROUNDS = 60


class AofRewriter:
    """Sees by `run_id` that Redis started, and has it rewrite its file until that succeeds."""

    def __init__(self, aof: Aof) -> None:
        self._aof = aof
        self._begin("")

    def _begin(self, run_id: str) -> None:
        """Forget the start of Redis before this one."""
        self._run_id = run_id
        self._done = not run_id
        self._asked = self._logged = False
        self._retry_in = 0

    def round(self) -> bool:
        """Ask for a rewrite where one is due. True: nothing is left to do for this start of Redis."""
        run_id = self._aof.run_id()
        if run_id != self._run_id:
            self._begin(run_id)
        self._done = self._done or self._is_safe()
        return self._done

    def _is_safe(self) -> bool:
        """Return True when the file was rewritten since this start, or there is none; else do the next step."""
        state = self._aof.state()
        if state.loading:
            return False
        if not state.enabled or self._aof.rewritten() == self._run_id:
            return True
        if state.rewriting:  # whoever asked
            self._asked = True
        elif self._asked and not state.failed:
            self._aof.note_rewritten(self._run_id)
            return True
        else:
            self._ask()
        return False

    def _ask(self) -> None:
        self._retry_in -= 1
        if self._retry_in > 0:
            return
        self._retry_in = RETRY_ROUNDS
        try:
            self._aof.rewrite()
            self._asked = True
        except RewriteRefused as error:
            if not self._logged:
                log.warning("redis did not rewrite its append-only file after its start: %s", error)
            self._logged = True
