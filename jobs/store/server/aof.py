"""State of Redis' append-only file (AOF), and requests to rewrite the file."""

from __future__ import annotations

from typing import Any, NamedTuple

from jobs.store import keys, unreadable_entries
from jobs.store.server.connection import ResponseError
from jobs.store.server.functions import Part


class AofState(NamedTuple):
    """State of the append-only file, as Redis reports it in INFO."""

    #: True while Redis is reading the file. Redis then reports the file as disabled.
    loading: bool
    enabled: bool
    #: True if a rewrite is running or starts after the current snapshot.
    rewriting: bool
    #: True if the last rewrite since the start of Redis failed.
    failed: bool
    #: True if the last write to the file failed. Redis then rejects writes until a write succeeds.
    unwritten: bool = False


class RewriteRefused(Exception):
    """Redis refuses to rewrite the file: the user lacks permission, Redis cannot fork, or the command does not
    exist.
    """


class Aof(Part):
    """Reads the state of the append-only file, and requests rewrites of the file."""

    def cause(self) -> str:
        """Return a text that identifies the current run of Redis and the number of rejected writes.

        The text is empty if Redis reports neither.
        """
        pipe = self._pipe()
        pipe.info("server")
        pipe.info("errorstats")
        server, refused = pipe.execute()
        run_id, times = str(server.get("run_id", "")), refused.get("errorstat_MISCONF", {}).get("count", 0)
        return f"{run_id}:{times}" if run_id and times else run_id

    def state(self) -> AofState:
        """Return the state of Redis' append-only file."""
        info: dict[str, Any] = self._client.info("persistence")
        return AofState(
            loading=bool(info.get("loading")),
            enabled=bool(info.get("aof_enabled")),
            rewriting=bool(info.get("aof_rewrite_in_progress") or info.get("aof_rewrite_scheduled")),
            failed=info.get("aof_last_bgrewrite_status") == "err",
            unwritten=info.get("aof_last_write_status") == "err",
        )

    def rewrite(self) -> None:
        """Start to rewrite the append-only file in the background. Raises RewriteRefused."""
        try:
            self._client.execute_command("BGREWRITEAOF")
        except ResponseError as error:
            if "in progress" not in str(error):
                raise RewriteRefused(str(error)) from error

    def rewritten(self) -> str:
        """Return the cause of the last successful rewrite, or an empty text if there was none."""
        [cause] = unreadable_entries.replies(self._pipe().get(keys.REWRITTEN))
        return cause.decode(errors="replace") if cause else ""

    def note_rewritten(self, cause: str) -> None:
        """Record the cause of a successful rewrite, so that later leaders do not repeat it."""
        self._client.set(keys.REWRITTEN, cause)
