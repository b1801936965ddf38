"""Rewrite Redis' append-only file after each start of Redis and after a full disk. Only the leader requests rewrites.

A rewrite removes two defects that Redis 7.0 can leave in the file (docs/durability.md):

- If the file ends within a transaction, Redis keeps the incomplete transaction and executes it at the next start.
- If the disk was full, the file can have a hole. Redis cannot start with such a file.
"""

from __future__ import annotations

import logging

from jobs.store.server.aof import Aof, RewriteRefused

log = logging.getLogger(__name__)

#: Number of `run_once` calls (about one per second) between two rewrite requests after a failure.
RETRY_ROUNDS = 60


class AofRewriter:
    """Detects that Redis has restarted or failed to write, and requests a rewrite until one succeeds."""

    def __init__(self, aof: Aof) -> None:
        self._aof = aof
        self._begin("")

    def _begin(self, cause: str) -> None:
        """Record a new reason for a rewrite, and reset the state. An empty reason requires no rewrite."""
        self._cause = cause
        self._is_done = not cause
        self._has_requested = self._has_logged = False
        self._retry_in = 0

    def run_once(self) -> bool:
        """Request a rewrite if one is due. Return True if no work is left."""
        cause = self._aof.cause()
        if cause != self._cause:
            self._begin(cause)
        self._is_done = self._is_done or self._advance()
        return self._is_done

    def _advance(self) -> bool:
        """Request the rewrite or check its progress. Return True if it is finished or Redis uses no such file."""
        state = self._aof.state()
        if state.loading or state.unwritten:
            return False
        if not state.enabled or self._aof.rewritten() == self._cause:
            return True
        if state.rewriting:  # this process or another client has requested the rewrite
            self._has_requested = True
        elif self._has_requested and not state.failed:
            self._aof.note_rewritten(self._cause)
            return True
        else:
            self._request()
        return False

    def _request(self) -> None:
        self._retry_in -= 1
        if self._retry_in > 0:
            return
        self._retry_in = RETRY_ROUNDS
        try:
            self._aof.rewrite()
            self._has_requested = True
        except RewriteRefused as error:
            if not self._has_logged:
                log.warning("redis did not rewrite its append-only file after its start or a full disk: %s", error)
            self._has_logged = True
