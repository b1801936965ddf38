"""Redis' append-only file (AOF): its state, and rewriting it."""

from __future__ import annotations

from typing import Any, NamedTuple

from jobs.store import keys, skipped
from jobs.store.server.connection import ResponseError
from jobs.store.server.functions import Part


class AofState(NamedTuple):
    """State of the file according to INFO."""

    #: Redis is still reading the file. Meanwhile it reports the file as disabled.
    loading: bool
    enabled: bool
    #: A rewrite is running, or starts when a snapshot has ended.
    rewriting: bool
    #: The last rewrite since Redis' start failed.
    failed: bool
    #: The last write to the file failed. Redis refuses writes until one succeeds.
    unwritten: bool = False


class RewriteRefused(Exception):
    """Redis does not rewrite its file: the user may not request it, Redis cannot fork, or it has no such command."""


class Aof(Part):
    """Reads the state of the append-only file and has it rewritten."""

    def cause(self) -> str:
        """Return a text that changes when Redis starts and when it has refused writes because of its disk.

        Empty if Redis reports neither.
        """
        pipe = self._pipe()
        pipe.info("server")
        pipe.info("errorstats")
        server, refused = pipe.execute()
        run_id, times = str(server.get("run_id", "")), refused.get("errorstat_MISCONF", {}).get("count", 0)
        return f"{run_id}:{times}" if run_id and times else run_id

    def state(self) -> AofState:
        """Return the state of the file."""
        info: dict[str, Any] = self._client.info("persistence")
        return AofState(
            loading=bool(info.get("loading")),
            enabled=bool(info.get("aof_enabled")),
            rewriting=bool(info.get("aof_rewrite_in_progress") or info.get("aof_rewrite_scheduled")),
            failed=info.get("aof_last_bgrewrite_status") == "err",
            unwritten=info.get("aof_last_write_status") == "err",
        )

    def rewrite(self) -> None:
        """Start a rewrite, in a process that Redis forks. Raise RewriteRefused if Redis refuses."""
        try:
            self._client.execute_command("BGREWRITEAOF")
        except ResponseError as error:
            if "in progress" not in str(error):
                raise RewriteRefused(str(error)) from error

    def rewritten(self) -> str:
        """Return the `cause` for which the file was last rewritten successfully; empty if none."""
        [cause] = skipped.replies(self._pipe().get(keys.REWRITTEN))
        return cause.decode(errors="replace") if cause else ""

    def note_rewritten(self, cause: str) -> None:
        """Record for later leaders that the file was rewritten for this `cause`."""
        self._client.set(keys.REWRITTEN, cause)
