"""Redis' append-only file, the AOF: whether Redis keeps one, and its rewriting."""

from __future__ import annotations

from typing import Any, NamedTuple

from jobs.store import keys, skipped
from jobs.store.connection import ResponseError
from jobs.store.scripts import Part


class AofState(NamedTuple):
    """State of the file, as INFO describes it."""

    #: Redis still reads it, and says meanwhile that it is off.
    loading: bool
    enabled: bool
    #: A rewrite runs, or will as soon as Redis has ended a snapshot.
    rewriting: bool
    #: The last rewrite since Redis' start failed.
    failed: bool


class RewriteRefused(Exception):
    """Redis does not rewrite its file: the user may not ask for it, or Redis cannot fork, or has no such command."""


class Aof(Part):
    """Asks Redis about its append-only file, and to rewrite it."""

    def run_id(self) -> str:
        """Return what tells this start of Redis from others; empty where Redis does not say."""
        return str(self._client.info("server").get("run_id", ""))

    def state(self) -> AofState:
        """Return the state of the file."""
        info: dict[str, Any] = self._client.info("persistence")
        return AofState(
            loading=bool(info.get("loading")),
            enabled=bool(info.get("aof_enabled")),
            rewriting=bool(info.get("aof_rewrite_in_progress") or info.get("aof_rewrite_scheduled")),
            failed=info.get("aof_last_bgrewrite_status") == "err",
        )

    def rewrite(self) -> None:
        """Begin a rewrite, in a process that Redis forks. RewriteRefused when Redis does not."""
        try:
            self._client.execute_command("BGREWRITEAOF")
        except ResponseError as error:
            if "in progress" not in str(error):
                raise RewriteRefused(str(error)) from error

    def rewritten(self) -> str:
        """Return the `run_id` under which the file was last rewritten for good; empty: none."""
        [run_id] = skipped.replies(self._pipe().get(keys.REWRITTEN))
        return run_id.decode(errors="replace") if run_id else ""

    def note_rewritten(self, run_id: str) -> None:
        """Let every later leader know that the file was rewritten under this `run_id`."""
        self._client.set(keys.REWRITTEN, run_id)
