"""Rewriting of Redis' append-only file after each start of Redis and after a full disk. Only the leader asks for it.

Redis 7.0 servers that start with a file torn inside a transaction leave the beginning of that transaction in it, and
their next start executes that beginning: half a script (docs/durability.md). Redis 7.0 whose disk was full leaves a
hole in the file, with which it does not start again. A rewritten file holds neither.
"""

from __future__ import annotations

import logging

from jobs.store.server.aof import Aof, RewriteRefused

log = logging.getLogger(__name__)

#: Rounds, about seconds, between two requests when Redis refused one or failed.
RETRY_ROUNDS = 60


class AofRewriter:
    """Sees that Redis started or could not write, and has it rewrite its file until that succeeds."""

    def __init__(self, aof: Aof) -> None:
        self._aof = aof
        self._begin("")

    def _begin(self, cause: str) -> None:
        """Forget the cause of a rewrite before this one."""
        self._cause = cause
        self._done = not cause
        self._asked = self._logged = False
        self._retry_in = 0

    def round(self) -> bool:
        """Ask for a rewrite where one is due. True: nothing is left to do."""
        cause = self._aof.cause()
        if cause != self._cause:
            self._begin(cause)
        self._done = self._done or self._is_safe()
        return self._done

    def _is_safe(self) -> bool:
        """Return True when the file was rewritten since, or there is none; else do the next step."""
        state = self._aof.state()
        if state.loading or state.unwritten:
            return False
        if not state.enabled or self._aof.rewritten() == self._cause:
            return True
        if state.rewriting:  # whoever asked
            self._asked = True
        elif self._asked and not state.failed:
            self._aof.note_rewritten(self._cause)
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
                log.warning("redis did not rewrite its append-only file after its start or a full disk: %s", error)
            self._logged = True
